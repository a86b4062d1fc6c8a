"""Invariants are the database's: each is broken behind the back of every form and service, and refused."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.utils import timezone

from control import models
from control.models import UnauditedWrite, writing
from control.models.documents import is_messages, is_model_names, is_ranks

pytestmark = pytest.mark.django_db
NOW = timezone.now()


@pytest.mark.parametrize(
    ("table", "changes"),
    [
        ("QueuePolicy", {"max_size": 0}),
        ("QueuePolicy", {"max_size": 200_000}),
        ("QueuePolicy", {"timeout_s": 0.0}),
        ("QueuePolicy", {"timeout_s": 1e9}),
        ("QueuePolicy", {"drop": "newest"}),
        ("QueuePolicy", {"max_size_per_tenant": 10_000}),
        ("QueuePolicy", {"retry_after_max_s": 61}),
        ("Tier", {"rank": 10}),
        ("Tier", {"ttft_objective_s": 0.0}),
        ("Tier", {"weight": 0.0}),
        ("Tier", {"floor": 1.5}),
        ("Tier", {"hold_back_kv": 0.0}),
        ("Pool", {"min_limit": 300}),
        ("Pool", {"kv_target": 1.1}),
        ("Pool", {"breaker_failure_ratio": 0.0}),
        ("Pool", {"watermark_safe": 60}),
        ("Pool", {"algorithm": "guess"}),
        ("Backend", {"weight": -1.0}),
        ("Backend", {"credential": "hunter2"}),
        ("Grant", {"weight": 0.0}),
        ("Grant", {"requests_per_min": 0}),
        ("Grant", {"concurrency": 0}),
    ],
)
def test_a_value_outside_its_range_is_refused_by_the_database(installed, table, changes):
    rows = getattr(models, table).objects
    with pytest.raises(IntegrityError), transaction.atomic(), writing():
        rows.filter(pk=rows.order_by("pk").first().pk).update(**changes)


def _pool():
    return models.Pool.objects.get()


CONTRADICTIONS = {
    "a second grant for the pool": lambda: models.Grant(
        tenant=models.Tenant.objects.get(), pool=_pool(), tier=models.Tier.objects.get(rank=0)
    ),
    "a second tenant of the name": lambda: models.Tenant(name="acme"),
    "a key that expires at its creation": lambda: _key(expires_at=NOW),
    "an overlap that never ends": lambda: _key(previous_digest="e"),
    "a tenant role without tenant": lambda: models.Membership(user=_user(), role="tenant-owner"),
    "a staff role with tenant": lambda: models.Membership(
        user=_user(), role="admin", tenant=models.Tenant.objects.get()
    ),
    "a decision without date": lambda: models.QuotaRequest(
        grant=models.Grant.objects.get(), requested_by="a", requested_at=NOW, state="approved"
    ),
    "an override of no length": lambda: _override(lifetime_s=0),
    "an override of more than a day": lambda: _override(lifetime_s=86_401),
    "an override that ended before it began": lambda: _override(expires_at=NOW - timedelta(seconds=1)),
    "an override without reason": lambda: _override(reason=""),
    "an override without actor": lambda: _override(actor=""),
    "a second head of the audit log": lambda: models.AuditHead(id=2),
    "a second published state": lambda: models.PublishedState(id=2),
}


@pytest.mark.parametrize("make", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_row_that_contradicts_itself_or_another_is_refused_by_the_database(installed, make):
    row = make()
    with pytest.raises(IntegrityError), transaction.atomic(), writing():
        row.save()


def _key(**changes):
    return models.ApiKey(
        tenant=models.Tenant.objects.get(), public_id="x", name="k", digest="d", created_at=NOW, **changes
    )


def _user():
    return User.objects.create(username="u")


def _override(**changes):
    values = {
        "key": "ov_1", "kind": "breaker", "target": "b1", "value": "open", "actor": "a", "reason": "drill",
        "created_at": NOW, "lifetime_s": 60, "expires_at": NOW + timedelta(seconds=60),
    }  # fmt: skip
    return models.Override(**{**values, **changes})


def test_two_overrides_in_force_for_one_target_are_refused_by_the_database(installed):
    with writing():
        _override().save()
    with pytest.raises(IntegrityError), transaction.atomic(), writing():
        _override(key="ov_2", value="closed").save()


def test_a_second_staff_role_is_refused_by_the_database(installed):
    user = _user()
    with writing():
        models.Membership(user=user, role="viewer").save()
    with pytest.raises(IntegrityError), transaction.atomic(), writing():
        models.Membership(user=user, role="admin").save()


GUARDED = [
    models.Tenant, models.Grant, models.ApiKey, models.Tier, models.QueuePolicy, models.Pool, models.Backend,
    models.Override, models.Membership, models.QuotaRequest, models.AuditEvent, models.AuditHead,
    models.PolicyRevision, models.PublishedState,
]  # fmt: skip


@pytest.mark.parametrize("table", GUARDED, ids=lambda table: table.__name__)
def test_every_way_of_writing_needs_an_audited_change(table):
    row = table()
    for attempt in (
        row.save,
        row.delete,
        lambda: table.objects.update(pk=1),
        lambda: table.objects.all().delete(),
        lambda: table.objects.bulk_create([row]),
        lambda: table.objects.bulk_update([row], ["pk"]),
        table.objects.create,
        lambda: table.objects.get_or_create(pk=77),
    ):
        with pytest.raises(UnauditedWrite):
            attempt()


def test_reverse_relations_are_guarded_as_well(installed):
    tenant = models.Tenant.objects.get()
    with pytest.raises(UnauditedWrite):
        tenant.grants.update(weight=2.0)
    with pytest.raises(UnauditedWrite):
        tenant.grants.all().delete()


def test_the_licence_to_write_ends_with_its_block(installed):
    with writing():
        models.Tenant.objects.update(title="x")
    with pytest.raises(UnauditedWrite):
        models.Tenant.objects.update(title="y")


@pytest.mark.parametrize(
    "table", [models.AuditEvent, models.PolicyRevision], ids=lambda table: table.__name__
)
def test_append_only_rows_are_never_changed_not_even_in_an_audited_change(installed, table):
    row = table.objects.first()
    for attempt in (
        row.save,
        row.delete,
        lambda: table.objects.update(pk=9),
        lambda: table.objects.all().delete(),
    ):
        with pytest.raises(UnauditedWrite), writing():
            attempt()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE control_auditevent SET actor = 'somebody else'",
        "UPDATE control_policyrevision SET author = 'somebody else'",
    ],
)
def test_the_database_itself_refuses_to_change_what_is_append_only(installed, statement):
    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)


def test_names_are_fit_for_labels_and_keys():
    for bad in ("", "UPPER", "with space", "-dash-first", "x" * 64, "ünïcode", "a/b"):
        with pytest.raises(ValidationError) as refused:
            models.Tenant(name=bad).full_clean()
        assert "name" in refused.value.message_dict


@pytest.mark.parametrize(
    "value",
    ["chat", [], [1], [""], ["with space"], ["twice", "twice"], {"a": 1}, ["x" * 300], None],
    ids=["text", "none", "number", "empty", "spaces", "twice", "object", "long", "null"],
)
def test_model_names_are_a_list_of_different_words(value):
    with pytest.raises(ValidationError):
        is_model_names(value)


@pytest.mark.parametrize("value", ["0", [0, 0], ["0"], [10], [True], [-1]], ids=str)
def test_ranks_are_a_list_of_different_numbers(value):
    with pytest.raises(ValidationError):
        is_ranks(value)


@pytest.mark.parametrize(
    "value",
    [[], {"fr": "x"}, {"en": ""}, {"en": 1}, {"en": "x" * 1001}],
    ids=["list", "language", "empty", "number", "long"],
)
def test_messages_are_text_by_language(value):
    with pytest.raises(ValidationError):
        is_messages(value)
