"""One row per change, in the same transaction; and no edit of the table goes unseen."""

import random
import threading
from datetime import timedelta

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control import audit
from control.audit import Actor, Anchor, chain
from control.models import AuditEvent, AuditHead, PublishedState, Tenant
from control.services import records
from tests.fakes.installation import ALICE

pytestmark = pytest.mark.django_db
EDITABLE = (
    "at", "actor", "origin", "action", "object_type", "object_id", "object_name", "reason", "changes", "revision",
    "previous_digest", "digest",
)  # fmt: skip


def write_rows(count):
    for number in range(count):
        with audit.change(
            Actor(f"actor-{number % 3}", "admin"), "updated", reason=f"because {number}"
        ) as entry:
            entry.object_type, entry.object_id, entry.object_name = "tenant", str(number), f"t{number}"
            entry.note("weight", before=number, after=number + 1)


def sql(statement, *values):
    """Behind everybody's back: as a person with the database's password would."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET session_replication_role = replica")  # switches triggers off
        else:
            cursor.execute("DROP TRIGGER IF EXISTS control_auditevent_no_update")
        cursor.execute(statement, values)
        if connection.vendor == "postgresql":
            cursor.execute("SET session_replication_role = DEFAULT")


def test_an_untouched_log_is_whole(db):
    assert audit.verify() is None
    write_rows(20)
    assert audit.verify() is None
    assert audit.anchor().seq == 20


def test_each_of_a_thousand_random_edits_is_found(db):
    write_rows(40)
    originals = {row.seq: row for row in AuditEvent.objects.all()}
    dice = random.Random(4711)  # noqa: S311  # which edits to try
    missed = []
    for _ in range(1000):
        seq, name = dice.randint(1, 40), dice.choice(EDITABLE)
        original = getattr(originals[seq], name)
        statement = f"UPDATE control_auditevent SET {name} = %s WHERE seq = %s"  # noqa: S608  # our own names
        sql(statement, _edited(original, name, dice), seq)
        if audit.verify() is None:
            missed.append((seq, name))
        sql(statement, original, seq)
    assert missed == []
    assert audit.verify() is None


def _edited(value, name, dice):
    if name == "at":
        return value + timedelta(microseconds=dice.choice((-1, 1)) * dice.randint(1, 10**9))
    if name == "revision":
        return dice.randint(1, 99)
    if name in ("previous_digest", "digest"):
        place = dice.randrange(64)
        return value[:place] + ("0" if value[place] != "0" else "1") + value[place + 1 :]
    place = dice.randint(0, len(value))
    return value[:place] + dice.choice("xyz \u00e9\u4e2d") + value[place:]


@pytest.mark.parametrize("seq", [1, 5, 9, 10])
def test_a_removed_row_is_found(db, seq):
    write_rows(10)
    sql("DELETE FROM control_auditevent WHERE seq = %s", seq)
    fault = audit.verify()
    assert fault is not None
    assert fault.seq == seq


def test_two_exchanged_rows_are_found(db):
    write_rows(4)
    for old, new in ((2, 99), (3, 2), (99, 3)):
        sql("UPDATE control_auditevent SET seq = %s WHERE seq = %s", new, old)
    assert audit.verify().seq == 2


def test_a_rewritten_chain_is_found_with_the_anchor_that_was_kept_elsewhere(db):
    write_rows(5)
    kept = audit.anchor()
    _rewrite_from(3)
    assert audit.verify() is None  # whoever can write everything can also recompute everything ...
    assert audit.verify(kept).seq == 5  # ... but not what was kept elsewhere


def test_a_log_that_was_cut_short_behind_its_head_is_found_with_the_anchor(db):
    write_rows(5)
    kept = audit.anchor()
    last = AuditEvent.objects.get(seq=4)
    sql("DELETE FROM control_auditevent WHERE seq = 5")
    sql("UPDATE control_audithead SET seq = 4, digest = %s", last.digest)
    assert audit.verify() is None
    assert audit.verify(kept).seq == 5


def _rewrite_from(first):
    rows = list(AuditEvent.objects.order_by("seq"))
    previous = rows[first - 2].digest
    for row in rows[first - 1 :]:
        row.reason, row.previous_digest = "nothing happened", previous
        row.digest = previous = chain.digest_of(row)
        sql(
            "UPDATE control_auditevent SET reason = %s, previous_digest = %s, digest = %s WHERE seq = %s",
            row.reason, row.previous_digest, row.digest, row.seq,
        )  # fmt: skip
    sql("UPDATE control_audithead SET digest = %s", previous)


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40)
values = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), words)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reason=words, name=words, changes=st.dictionaries(words, st.tuples(values, values), max_size=4))
def test_whatever_is_written_down_verifies_after_it_was_read_back(db, reason, name, changes):
    with audit.change(Actor("alice", "api"), "updated", reason=reason) as entry:
        entry.object_name = name
        for field, (before, after) in changes.items():
            entry.note(field, before=before, after=after)
    assert audit.verify() is None


def test_a_change_that_fails_leaves_neither_itself_nor_a_row(db):
    before = audit.anchor()
    with pytest.raises(RuntimeError, match="on the way"), audit.change(ALICE, "created") as entry:  # noqa: PT012  # the block is what is undone
        tenant = Tenant(name="acme")
        tenant.save()
        entry.about(tenant)
        raise RuntimeError("on the way")
    assert not Tenant.objects.exists()
    assert audit.anchor() == before


def test_a_change_whose_row_cannot_be_written_is_undone(db, monkeypatch):
    def fail(event):
        raise RuntimeError("killed between change and audit")

    monkeypatch.setattr(chain, "append", fail)
    with pytest.raises(RuntimeError, match="killed"):
        records.write(ALICE, Tenant(name="acme"))
    assert not Tenant.objects.exists()


def test_a_change_of_nothing_leaves_no_row(db):
    before = audit.anchor()
    with audit.change(ALICE, "updated") as entry:
        entry.skip()
    assert audit.anchor() == before


@pytest.mark.django_db(transaction=True)
def test_writers_at_the_same_time_make_one_chain_without_gaps():
    with audit.change(ALICE, "first"):
        pass
    problems = []

    def work():
        try:
            write_rows(5)
        except Exception as error:  # noqa: BLE001  # told to the test's own thread
            problems.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert problems == []
    assert audit.anchor().seq == 21
    assert audit.verify() is None


def test_an_anchor_survives_being_printed(db):
    write_rows(2)
    assert Anchor.parse(f" {audit.anchor()}\n") == audit.anchor()


@pytest.mark.parametrize("text", ["", "1", "x:" + "0" * 64, "1:abc"])
def test_a_text_that_is_no_anchor_is_refused(text):
    with pytest.raises(ValueError, match="number:digest"):
        Anchor.parse(text)


def test_heads_and_counters_exist_once(db):
    write_rows(3)
    records.write(ALICE, Tenant(name="acme"))
    assert AuditHead.objects.count() == 1
    assert PublishedState.objects.count() <= 1
