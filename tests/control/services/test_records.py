import pytest
from django.contrib.auth.models import User

from control.models import AuditEvent, Backend, Grant, Membership, Override, Pool, QueuePolicy, Tenant, Tier
from control.services import Conflict, Invalid, records
from tests.fakes.installation import ALICE, queue

pytestmark = pytest.mark.django_db


def test_a_write_leaves_one_row_that_says_who_what_and_from_what_to_what(installed, audited):
    policy = queue()
    policy.max_size, policy.drop = 150, "tail"
    with audited(1):
        records.write(ALICE, policy, reason="less waiting")
    row = AuditEvent.objects.order_by("-seq").first()
    assert (row.actor, row.origin, row.action, row.object_type) == (
        "alice",
        "admin",
        "updated",
        "queuepolicy",
    )
    assert (row.object_name, row.reason) == ("realtime-interactive", "less waiting")
    assert row.changes == '{"drop":["early-drop-on-pressure","tail"],"max_size":[200,150]}'
    assert row.revision is not None


def test_saving_what_is_already_so_changes_nothing(installed, audited):
    with audited(0):
        assert records.write(ALICE, queue()) == records.Written(None, is_changed=False)


def test_a_field_that_is_wrong_is_named(installed, audited):
    policy = queue()
    policy.max_size = 0
    with audited(0), pytest.raises(Invalid) as refused:
        records.write(ALICE, policy)
    assert [problem.field for problem in refused.value.problems] == ["max_size"]


def test_a_constraint_that_would_be_broken_is_told_in_words(installed):
    pool = Pool.objects.get()
    pool.min_limit = 999
    with pytest.raises(Invalid, match="not above the max limit"):
        records.write(ALICE, pool)


def test_what_is_in_use_is_not_deleted_and_its_users_are_named(installed, audited):
    for row, user in (
        (queue(), "P0 realtime-interactive"),
        (Pool.objects.get(), "b1"),
        (Tier.objects.get(rank=1), "acme / chat"),
    ):
        with audited(0), pytest.raises(Conflict, match=user):
            records.remove(ALICE, row)


def test_a_deletion_leaves_one_row_with_what_was_there(installed, audited):
    backend = Backend.objects.get()
    with audited(1):
        records.remove(ALICE, backend, reason="gone")
    row = AuditEvent.objects.order_by("-seq").first()
    assert (row.action, row.object_name, row.reason) == ("deleted", "b1", "gone")
    assert '"url":["http://127.0.0.1:9101",null]' in row.changes


def test_deleting_a_tenant_tells_what_went_with_it(installed, audited):
    with audited(1):
        records.remove(ALICE, Tenant.objects.get())
    assert not Grant.objects.exists()
    assert '"control.Grant":1' in AuditEvent.objects.order_by("-seq").first().changes


def test_a_row_that_was_deleted_meanwhile_is_a_conflict(installed):
    policy = QueuePolicy(name="short-lived")
    records.write(ALICE, policy)
    stale = QueuePolicy.objects.get(name="short-lived")
    records.remove(ALICE, policy)
    stale.max_size = 10
    with pytest.raises(Conflict, match="deleted meanwhile"):
        records.write(ALICE, stale)


def test_tiers_go_from_the_bottom_only(installed, audited):
    with audited(0), pytest.raises(Invalid, match="ranks must be"):
        records.remove(ALICE, Tier.objects.get(rank=0))
    records.remove(ALICE, Tier.objects.get(rank=2))
    assert [tier.rank for tier in Tier.objects.all()] == [0, 1]


def test_a_rehearsal_tells_every_problem_and_saves_nothing(installed, audited):
    policy = queue()
    policy.delay_budget_s = 9.0
    with audited(0):
        (problem,) = records.rehearse(policy)
    assert problem.field == "tiers[realtime-interactive].queue.delay_budget_s"
    assert "above timeout_s" in problem.message
    assert queue().delay_budget_s is None


def test_a_rehearsal_of_a_new_row_leaves_it_new(installed):
    backend = Backend(name="b2", pool=Pool.objects.get(), url="ftp://somewhere", engine="vllm")
    assert [problem.field for problem in records.rehearse(backend)] == ["backends[b2].url"]
    assert backend.pk is None
    backend.url = "http://127.0.0.1:9102"
    assert records.rehearse(backend) == ()
    records.write(ALICE, backend)
    assert Backend.objects.count() == 2


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/",
        "http://metadata.google.internal/",
        "http://user:pw@h/",
        "file:///etc/passwd",
        "h:80",
        "http://10.0.0.7:8000/v1",  # pasted from a client: every call would be the engine's 404
        "http://10.0.0.7:8000/v1/",
    ],
)
def test_an_address_that_could_be_used_against_us_or_never_works_is_refused_at_save(installed, url):
    backend = Backend.objects.get()
    backend.url = url
    with pytest.raises(Invalid, match="url"):
        records.write(ALICE, backend)


def test_private_addresses_are_refused_where_they_are_not_allowed(installed, settings):
    settings.ALLOW_PRIVATE_BACKENDS = False
    backend = Backend.objects.get()
    for field, url in (("url", "http://10.0.0.7:8000"), ("metrics_url", "http://127.0.0.1/metrics")):
        backend.url, backend.metrics_url = "http://engine.example.org", ""
        setattr(backend, field, url)
        with pytest.raises(Invalid) as refused:
            records.write(ALICE, backend)
        assert [problem.field for problem in refused.value.problems] == [field]


def test_writes_together_stay_or_go_together(installed, audited):
    with audited(0), pytest.raises(Invalid), records.together():  # noqa: PT012  # the block is what is undone
        records.write(ALICE, Tenant(name="one"))
        records.write(ALICE, Tenant(name="NOT A NAME"))
    assert not Tenant.objects.filter(name="one").exists()


@pytest.mark.parametrize("row", [AuditEvent(), Override()], ids=["audit", "override"])
def test_what_has_its_own_service_is_not_edited_as_a_row(row):
    with pytest.raises(TypeError):
        records.write(ALICE, row)
    with pytest.raises(TypeError):
        records.remove(ALICE, row)


def test_people_are_written_without_their_password_and_without_a_revision(db):
    user = User(username="bob")
    user.set_password("not in any log")
    written = records.write(ALICE, user)
    row = AuditEvent.objects.get()
    assert written.revision is None
    assert user.password not in row.changes
    assert '"password":[null,"sha:' in row.changes
    records.write(ALICE, Membership(user=user, role="viewer"))
    assert AuditEvent.objects.count() == 2
