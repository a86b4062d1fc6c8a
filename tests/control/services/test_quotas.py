import pytest

from control import selectors
from control.audit import Actor
from control.models import Grant, QuotaRequest
from control.services import Conflict, Invalid, NotFound, quotas
from tests.fakes.installation import ALICE

pytestmark = pytest.mark.django_db
OWNER = Actor("tina", "selfservice")


def ask(**changes):
    values = {"tenant": "acme", "pool": "chat", "justification": "launch on Monday", "requests_per_min": 600}
    return quotas.ask(OWNER, quotas.AskQuota(**{**values, **changes}))


def test_a_request_waits_for_a_decision_and_is_audited(installed, audited):
    with audited(1):
        number = ask(tokens_per_min=90_000)
    (row,) = selectors.pending_quota_requests()
    assert (row.number, row.tenant, row.pool, row.requested_by) == (number, "acme", "chat", "tina")
    assert (row.requests_per_min, row.tokens_per_min, row.concurrency) == (600, 90_000, None)


def test_an_approval_gives_the_grant_what_was_asked_for_and_no_more(installed, audited):
    number = ask()
    with audited(2):  # the decision, and the grant
        quotas.decide(ALICE, number, approve=True, answer="good luck")
    grant = Grant.objects.get()
    assert (grant.requests_per_min, grant.tokens_per_min) == (600, None)
    row = QuotaRequest.objects.get()
    assert (row.state, row.decided_by, row.answer) == ("approved", "alice", "good luck")


def test_a_decline_changes_no_grant(installed, audited):
    number = ask()
    with audited(1):
        quotas.decide(ALICE, number, approve=False)
    assert Grant.objects.get().requests_per_min is None


def test_a_decision_is_made_once(installed, audited):
    number = ask()
    quotas.decide(ALICE, number, approve=False)
    with audited(0), pytest.raises(Conflict, match="declined already"):
        quotas.decide(ALICE, number, approve=True)


def test_one_request_at_a_time(installed, audited):
    ask()
    with audited(0), pytest.raises((Conflict, Invalid)):
        ask(requests_per_min=700)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"pool": "none"}, NotFound),
        ({"tenant": "none"}, NotFound),
        ({"requests_per_min": None}, Invalid),
        ({"requests_per_min": 0}, Invalid),
        ({"justification": ""}, Invalid),
    ],
    ids=["pool", "tenant", "nothing", "zero", "no reason"],
)
def test_bad_requests_change_nothing(installed, audited, changes, fault):
    with audited(0), pytest.raises(fault):
        ask(**changes)
    assert not QuotaRequest.objects.exists()


def test_a_request_that_never_was_is_not_found(installed):
    with pytest.raises(NotFound):
        quotas.decide(ALICE, 77, approve=True)
