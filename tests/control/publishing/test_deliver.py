"""To a real Valkey: signed, only forwards, never in the way of saving."""

import time
from datetime import timedelta

import pytest

from control import publishing
from control.models import PublishedState
from control.publishing import Delivery, deliver
from control.services import generations, overrides, records
from gateway.contract import codec, keys
from gateway.contract.envelope import SigningKey, unseal
from gateway.core.vocabulary import OverrideKind
from tests.fakes.installation import ALICE, install, queue
from tests.fakes.published import a_snapshot, sealed

pytestmark = pytest.mark.django_db(transaction=True)
KEYS = (SigningKey(b"a signing key for tests only"),)


def stored(valkey, kind="snapshot"):
    with valkey.client() as client:
        data = client.get({"snapshot": keys.SNAPSHOT, "overrides": keys.OVERRIDES}[kind])
    return unseal(KEYS, kind, data)


def change(size):
    policy = queue()
    policy.max_size = size
    records.write(ALICE, policy)


def force_open(lifetime_s=600):
    return overrides.set_override(
        ALICE,
        overrides.SetOverride(
            kind=OverrideKind.BREAKER, target="b1", value="open", reason="drill", lifetime_s=lifetime_s
        ),
    )


def test_a_saved_change_is_in_valkey_at_once_signed_and_announced(valkey):
    install()
    with valkey.client() as client:
        channel = client.pubsub(ignore_subscribe_messages=True)
        channel.subscribe(keys.CHANGES)
        channel.get_message(timeout=1)
        change(123)
        announced = channel.get_message(timeout=1)
    header, body = stored(valkey)
    snapshot = codec.decode_snapshot(body)
    assert snapshot.tiers[0].policy.queue.max_size == 123
    assert header.version == (1, 0, snapshot.revision)
    assert announced["data"].decode() == f"snapshot {snapshot.revision}"


def test_an_override_is_in_valkey_at_once_and_gone_when_released(valkey):
    install()
    made = force_open()
    header, body = stored(valkey, "overrides")
    (spec,) = codec.decode_overrides(body).overrides
    assert (spec.id, spec.target, spec.value, spec.actor) == (made.key, "b1", "open", "alice")
    assert spec.expires_at - spec.created_at == pytest.approx(600)
    overrides.release_override(ALICE, made.key)
    later, body = stored(valkey, "overrides")
    assert codec.decode_overrides(body).overrides == ()
    assert later.version > header.version


def test_a_change_that_is_rolled_back_is_never_sent(valkey):
    install()
    before, _ = stored(valkey)
    with pytest.raises(RuntimeError), records.together():  # noqa: PT012  # the block is what is undone
        change(77)
        raise RuntimeError
    assert stored(valkey)[0] == before


def test_saving_goes_on_while_valkey_is_away_and_the_tick_catches_up(valkey):
    install()
    valkey.kill()
    begun = time.monotonic()
    change(99)
    force_open()
    assert time.monotonic() - begun < 2.0
    valkey.start()
    assert publishing.republish_if_behind() == {"snapshot": Delivery.SENT, "overrides": Delivery.SENT}
    assert codec.decode_snapshot(stored(valkey)[1]).tiers[0].policy.queue.max_size == 99
    assert len(codec.decode_overrides(stored(valkey, "overrides")[1]).overrides) == 1
    assert set(publishing.republish_if_behind().values()) == {Delivery.CURRENT}


def test_a_frozen_valkey_holds_a_save_for_a_quarter_second_at_most(valkey, settings):
    install()
    assert settings.VALKEY_TIMEOUT_S <= 0.25
    valkey.freeze()
    try:
        begun = time.monotonic()
        delivery = deliver.deliver_snapshot()
        took_s = time.monotonic() - begun
    finally:
        valkey.thaw()
    assert delivery is Delivery.UNREACHABLE
    assert took_s < 1.0  # a quarter second of waiting, and room for a busy machine


def test_an_emptied_valkey_gets_everything_again(valkey):
    install()
    with valkey.client() as client:
        client.flushall()
    publishing.republish_if_behind()
    header, _ = stored(valkey)
    assert header.seq == PublishedState.objects.get().revision


@pytest.mark.parametrize(
    "lie",
    [
        b"nonsense",
        sealed(a_snapshot(), (9, 9, 9), key=SigningKey(b"somebody else's")),
        sealed(a_snapshot(), (9, 9, 9)).replace(b"tiny", b"tinz"),
    ],
    ids=["nonsense", "other-key", "forged"],
)
def test_what_is_not_ours_is_replaced(valkey, lie):
    install()
    with valkey.client() as client:
        client.set(keys.SNAPSHOT, lie)
    assert publishing.deliver_snapshot() is Delivery.SENT
    assert stored(valkey)[0].seq == PublishedState.objects.get().revision


def test_an_older_version_never_replaces_a_newer_one(valkey):
    install()
    newer = sealed(a_snapshot(9999), (1, 0, 9999), key=KEYS[0])
    with valkey.client() as client:
        client.set(keys.SNAPSHOT, newer)
        assert publishing.deliver_snapshot() is Delivery.AHEAD
        assert client.get(keys.SNAPSHOT) == newer


def test_a_restored_backup_needs_a_new_generation(valkey):
    install()
    with valkey.client() as client:
        client.set(keys.SNAPSHOT, sealed(a_snapshot(9999), (4, 0, 9999), key=KEYS[0]))
    assert generations.begin(ALICE) == 5
    assert publishing.republish_if_behind()["snapshot"] is Delivery.SENT
    assert stored(valkey)[0].generation == 5
    assert stored(valkey, "overrides")[0].generation == 5


def test_the_previous_signing_key_still_counts_while_keys_are_rotated(valkey, settings):
    install()
    settings.SIGNING_KEY_PREVIOUS = settings.SIGNING_KEY
    settings.SIGNING_KEY = "the next signing key, for tests"
    assert publishing.deliver_snapshot() is Delivery.CURRENT
    change(55)
    with valkey.client() as client:
        header, _ = unseal(deliver.signing_keys(), "snapshot", client.get(keys.SNAPSHOT))
    assert header.key_id == SigningKey(settings.SIGNING_KEY.encode()).key_id


def test_looking_each_second_costs_two_small_reads_where_nothing_is_missing(
    valkey, django_assert_num_queries
):
    install()
    publishing.republish_if_behind()
    with django_assert_num_queries(2) as asked:
        publishing.republish_if_behind()
    assert not any("body" in query["sql"] for query in asked.captured_queries)


def test_before_the_first_revision_there_is_nothing_to_send(valkey):
    assert publishing.deliver_snapshot() is Delivery.NOTHING


def test_expired_overrides_are_not_in_the_set(valkey):
    install()
    made = force_open(lifetime_s=1)
    state = PublishedState.objects.get()
    version = state.overrides_version
    assert (
        len(publishing.overrides_in_force(version, made.expires_at - timedelta(milliseconds=1)).overrides)
        == 1
    )
    assert publishing.overrides_in_force(version, made.expires_at).overrides == ()


def test_two_who_deliver_at_once_leave_the_newest(valkey, monkeypatch):
    """Somebody else's newer snapshot arrives between our look and our write: ours does not replace it."""
    install()
    newer = sealed(a_snapshot(9999), (1, 0, 9999), key=KEYS[0])
    looked = deliver._present

    def look_and_lose(connection, kind, key):
        seen = looked(connection, kind, key)
        with valkey.client() as client:
            client.set(keys.SNAPSHOT, newer)
        return seen

    with valkey.client() as client:
        client.delete(keys.SNAPSHOT)
    monkeypatch.setattr(deliver, "_present", look_and_lose)
    assert publishing.deliver_snapshot() is Delivery.AHEAD
    with valkey.client() as client:
        assert client.get(keys.SNAPSHOT) == newer
