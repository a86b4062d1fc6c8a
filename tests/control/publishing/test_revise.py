"""Numbers grow by one with every change that gateways can see, and a bad policy is none."""

import pytest
from django.db import transaction

from control import publishing
from control.models import PolicyRevision, QueuePolicy, Tenant, Tier, writing
from control.services import Invalid, records
from gateway.contract import codec
from tests.fakes.installation import ALICE, queue

pytestmark = pytest.mark.django_db


def newest():
    return PolicyRevision.objects.order_by("-number").first()


def test_each_change_is_the_next_revision_with_author_and_summary(installed):
    before = newest().number
    policy = queue()
    policy.max_size = 111
    written = records.write(ALICE, policy)
    row = newest()
    assert (row.number, written.revision, row.author) == (before + 1, before + 1, "alice")
    assert row.summary == "queuepolicy realtime-interactive updated"
    snapshot = publishing.read_revision(row.number)
    assert snapshot.revision == row.number
    assert snapshot.tiers[0].policy.queue.max_size == 111


def test_what_gateways_cannot_see_makes_no_revision(installed):
    before = newest().number
    tenant = Tenant.objects.get()
    tenant.title = "Another title"
    written = records.write(ALICE, tenant)
    assert written == records.Written(None, is_changed=True)
    assert newest().number == before


def test_before_there_is_a_tier_there_is_nothing_to_publish(db):
    written = records.write(ALICE, Tenant(name="early"))
    assert written.revision is None
    assert not PolicyRevision.objects.exists()


def test_a_policy_with_a_problem_is_refused_with_the_name_of_the_thing_and_nothing_stays(installed, audited):
    before = newest().number
    policy = queue()
    policy.timeout_s, policy.max_size = 0.01, 222
    with audited(0), pytest.raises(Invalid) as refused:
        records.write(ALICE, policy)
    assert [problem.field for problem in refused.value.problems] == ["timeout_s"]
    assert queue().max_size == 200
    assert newest().number == before


def test_what_only_the_whole_policy_shows_is_refused_as_well(installed, audited):
    batch = Tier.objects.get(rank=2)
    batch.floor = 1.0
    agent = Tier.objects.get(rank=1)
    agent.floor = 1.0
    with audited(0), pytest.raises(Invalid) as refused, records.together():  # noqa: PT012  # the block is what is undone
        records.write(ALICE, batch)
        records.write(ALICE, agent)
    assert "floor" in str(refused.value)
    assert Tier.objects.get(rank=2).floor == 0.1


def test_problems_name_the_thing_not_its_place(installed):
    with transaction.atomic(), writing():
        QueuePolicy.objects.update(timeout_s=3600.0)
        Tier.objects.filter(rank=1).update(name="has space")
        problems = publishing.policy_problems(publishing.build_snapshot(1))
        transaction.set_rollback(True)
    assert any(problem.field.startswith("tiers[has space]") for problem in problems)


def test_a_kept_revision_is_what_gateways_get_byte_for_byte(installed):
    row = newest()
    assert codec.encode(publishing.read_revision(row.number)) == bytes(row.body)


def test_a_revision_that_never_was_is_an_error(installed):
    with pytest.raises(PolicyRevision.DoesNotExist):
        publishing.read_revision(10_000)
