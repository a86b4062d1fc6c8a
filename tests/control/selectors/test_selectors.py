"""Reads give frozen values, never rows, in the same number of queries however much there is."""

import dataclasses
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.db import models as django_models

from control import selectors
from control.models import Incident, Membership, Pool, Tenant, Tier
from control.selectors import AuditFilter
from control.services import keys, records
from tests.fakes.installation import ALICE, hire, queue

pytestmark = pytest.mark.django_db


def test_policy_reads_as_it_was_written(installed):
    assert [(tier.rank, tier.name, tier.max_size) for tier in selectors.tiers()] == [
        (0, "realtime-interactive", 200), (1, "agent-workflow", 500), (2, "batch-extraction", 1000),
    ]  # fmt: skip
    (pool,) = selectors.pools()
    assert (pool.name, pool.models) == ("chat", ("tiny", "tiny-alias"))
    (backend,) = selectors.backends("chat")
    assert (backend.name, backend.pool, backend.engine) == ("b1", "chat", "llama_cpp")
    assert selectors.backends("another") == ()


def test_tenants_read_with_their_counts_and_keys_without_digests(installed):
    minted = keys.mint_key(ALICE, keys.MintKey(tenant="acme", name="ci"))
    (tenant,) = selectors.tenants()
    assert (tenant.name, tenant.grants, tenant.keys) == ("acme", 1, 1)
    (key,) = selectors.keys_of("acme")
    assert key.prefix == f"sg_live_{minted.public_id}"
    assert "digest" not in {field.name for field in dataclasses.fields(key)}
    (grant,) = selectors.grants_of("acme")
    assert (grant.pool, grant.tier, grant.tier_name) == ("chat", 1, "agent-workflow")


def test_pages_of_the_audit_log_follow_one_another_without_gap_or_repetition(installed):
    total = selectors.audit_page(limit=200).rows[0].seq
    seen, before = [], None
    while True:
        page = selectors.audit_page(before=before, limit=4)
        seen += [row.seq for row in page.rows]
        before = page.next_before
        if before is None:
            break
    assert seen == list(range(total, 0, -1))


def test_the_audit_log_is_filtered(installed):
    policy = queue()
    policy.max_size = 7
    records.write(ALICE, policy, reason="smaller for a test")
    for wanted in (
        AuditFilter(text="SMALLER"),
        AuditFilter(action="updated"),
        AuditFilter(object_type="queuepolicy", action="updated", actor="alice"),
    ):
        (row,) = selectors.audit_page(wanted=wanted).rows
        assert row.changes == {"max_size": (200, 7)}
    assert selectors.audit_page(wanted=AuditFilter(actor="nobody")).rows == ()
    assert selectors.audit_page(wanted=AuditFilter(since=datetime(2100, 1, 1, tzinfo=UTC))).rows == ()
    assert selectors.audit_page(wanted=AuditFilter(until=datetime(2000, 1, 1, tzinfo=UTC))).rows == ()


def test_a_page_is_bounded_whatever_is_asked_for(installed):
    assert len(selectors.audit_page(limit=-5).rows) == 1
    assert len(selectors.audit_page(limit=10**9).rows) <= 200


def test_the_current_policy_reads_back_whole(installed):
    snapshot = selectors.current_snapshot()
    assert snapshot.revision == selectors.current_revision_number() == selectors.revisions(1)[0].number
    assert [pool.policy.name for pool in snapshot.pools] == ["chat"]


def test_an_empty_installation_reads_as_empty(db):
    assert selectors.current_snapshot() is None
    assert selectors.current_revision_number() == 0
    assert selectors.pending_migrations() == 0
    for read in (
        selectors.tiers,
        selectors.pools,
        selectors.backends,
        selectors.tenants,
        selectors.overrides_in_force,
    ):
        assert read() == ()


def test_access_is_what_the_membership_says(installed):
    assert selectors.access_of(AnonymousUser()) == selectors.Access()
    for role, rights in (("viewer", (1, 0, 0)), ("operator", (1, 1, 0)), ("admin", (1, 1, 1))):
        hire(role, role)
        access = selectors.access_of(User.objects.get(username=role))
        assert (access.may_view, access.may_override, access.may_edit) == tuple(map(bool, rights))
    king = User.objects.create(username="king", is_superuser=True)
    assert selectors.access_of(king).may_edit
    king.is_active = False
    assert selectors.access_of(king) == selectors.Access()


def test_only_open_incidents_are_open(db):
    at = datetime(2026, 11, 30, tzinfo=UTC)
    Incident.objects.create(key="i1", kind="shedding", title="Shedding P2", opened_at=at)
    Incident.objects.create(key="i2", kind="breaker", title="b2 open", opened_at=at, closed_at=at)
    assert [row.key for row in selectors.open_incidents()] == ["i1"]


def test_reads_cost_the_same_however_much_there_is(installed, django_assert_num_queries):
    pool, tier = Pool.objects.get(), Tier.objects.get(rank=2)
    for number in range(4):
        tenant = Tenant(name=f"t{number}")
        records.write(ALICE, tenant)
        keys.mint_key(ALICE, keys.MintKey(tenant=tenant.name, name="k", tier=2))
    assert (pool.name, tier.rank) == ("chat", 2)
    for read in (
        selectors.tiers, selectors.pools, selectors.backends, selectors.tenants, selectors.revisions,
        selectors.audit_page, selectors.overrides_in_force, selectors.latest_overrides, selectors.pending_quota_requests,
        lambda: selectors.keys_of("t0"), lambda: selectors.grants_of("acme"),
    ):  # fmt: skip
        with django_assert_num_queries(1):
            read()


def test_no_row_leaves_the_selectors(installed):
    hire("olga", "operator")
    results = [
        *selectors.tiers(), *selectors.pools(), *selectors.backends(), *selectors.tenants(), *selectors.revisions(),
        *selectors.audit_page().rows, selectors.access_of(User.objects.get(username="olga")),
    ]  # fmt: skip
    assert Membership.objects.exists()
    for value in results:
        assert not isinstance(value, django_models.Model)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, dataclasses.fields(value)[0].name, None)
