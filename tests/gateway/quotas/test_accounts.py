"""All bounds of one grant, taken together or not at all."""

import pytest

from gateway.contract.snapshot import GrantSpec
from gateway.core.vocabulary import ShedReason
from gateway.quotas.accounts import Account, No
from gateway.quotas.leases import BUSY_S, Verdict

MONTH = "2026-11"


def an_account(**bounds) -> Account:
    """Alone with all of its bounds: everything is decided here."""
    grant = GrantSpec(tenant="acme", pool="chat", tier=1, **bounds)
    account = Account(grant)
    account.configure(grant, MONTH, 0.0)
    account.go_alone(0.0, 1)
    return account


def used_up(account: Account, tokens: int) -> No:
    """Take until something is short; what is."""
    while (decision := account.decide(tokens, 0.0, 1)) is Verdict.HAS:
        account.take(tokens)
    assert isinstance(decision, No)
    return decision


@pytest.mark.parametrize(
    ("bounds", "reason", "retry_at"),
    [
        ({"requests_per_min": 60}, ShedReason.RATE_LIMITED, 1.0),
        ({"tokens_per_min": 600}, ShedReason.TOKEN_LIMITED, 10.0),
        ({"concurrency": 3}, ShedReason.CONCURRENCY_LIMITED, BUSY_S),
        ({"monthly_tokens": 1000}, ShedReason.QUOTA_EXHAUSTED, None),
        (
            {"requests_per_min": 60, "requests_burst": 3, "tokens_per_min": 300},
            ShedReason.TOKEN_LIMITED,
            20.0,
        ),
        ({"requests_per_min": 2, "tokens_per_min": 200}, ShedReason.RATE_LIMITED, 30.0),
    ],
)
def test_the_bound_that_helps_latest_is_named_with_its_time(bounds, reason, retry_at):
    decision = used_up(an_account(**bounds), 100)
    assert decision.reason is reason
    assert decision.retry_at == (None if retry_at is None else pytest.approx(retry_at))


def test_a_refusal_takes_nothing_from_any_bound():
    account = an_account(requests_per_min=60, tokens_per_min=600, concurrency=1, monthly_tokens=10**6)
    account.take(100)
    before = (account.requests.held, account.tokens.held, account.month.quota.reserved)
    assert isinstance(account.decide(100, 0.0, 1), No)
    assert (account.requests.held, account.tokens.held, account.month.quota.reserved) == before


def test_settling_keeps_the_request_and_the_tokens_that_were_used():
    account = an_account(requests_per_min=60, tokens_per_min=600, concurrency=2, monthly_tokens=1000)
    account.take(100)
    account.settle(100, 30, 0.0)
    assert (account.requests.held, account.tokens.held, account.seats.in_use) == (59.0, 570.0, 0)
    assert (account.month.quota.reserved, account.month.quota.used) == (0, 30)


def test_using_more_than_was_reserved_becomes_a_debt():
    account = an_account(tokens_per_min=600)
    account.take(600)
    account.settle(600, 700, 0.0)
    assert account.tokens.held == -100.0
    assert account.standing(0.0).tokens.remaining == 0


def test_a_refund_gives_back_everything():
    account = an_account(requests_per_min=60, tokens_per_min=600, concurrency=2, monthly_tokens=1000)
    account.take(100)
    account.refund(100, 0.0)
    assert (account.requests.held, account.tokens.held, account.seats.in_use) == (60.0, 600.0, 0)
    assert (account.month.quota.reserved, account.month.quota.used) == (0, 0)


def test_an_unbounded_account_has_everything_and_nothing_to_show():
    account = an_account()
    assert account.decide(10**9, 0.0, 1) is Verdict.HAS
    account.take(5)
    account.settle(5, 5, 0.0)
    account.refund(5, 0.0)
    standing = account.standing(0.0)
    assert (standing.requests, standing.tokens, account.leases) == (None, None, ())


def test_callers_are_told_limit_remaining_and_time_until_full():
    account = an_account(requests_per_min=60, requests_burst=120)
    account.take(0)
    allowance = account.standing(0.0).requests
    assert (allowance.limit, allowance.remaining, allowance.reset_s) == (60, 119, pytest.approx(1.0))


def test_new_bounds_change_what_is_there_and_removed_ones_go():
    account = an_account(requests_per_min=60, tokens_per_min=600, concurrency=3, monthly_tokens=1000)
    account.take(10)
    account.configure(
        GrantSpec(tenant="acme", pool="chat", tier=1, requests_per_min=30, concurrency=2, monthly_tokens=500),
        MONTH,
        0.0,
    )
    assert (account.requests.held, account.tokens, account.seats.limit, account.seats.in_use) == (
        30.0,
        None,
        2,
        1,
    )
    assert (account.month.quota.limit, account.month.quota.reserved) == (500, 10)
    account.configure(GrantSpec(tenant="acme", pool="chat", tier=1), MONTH, 0.0)
    assert (account.requests, account.seats, account.month) == (None, None, None)


def test_only_this_months_count_of_a_snapshot_counts():
    account = an_account(monthly_tokens=1000, month_to_date_tokens=900, month="2026-10")
    assert account.month.quota.remaining == 1000
    account = an_account(monthly_tokens=1000, month_to_date_tokens=900, month=MONTH)
    assert account.month.quota.remaining == 100
