"""Buckets: exact refill, nothing for a refusal, one settlement."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.buckets import Bucket, Denied, MonthlyQuota, TenantBuckets
from gateway.core.vocabulary import ShedReason


def test_a_new_bucket_holds_one_burst():
    bucket = Bucket(1.0, 5.0, 0.0)
    assert sum(bucket.take(1.0, 0.0) for _ in range(9)) == 5


def test_a_new_bucket_never_starts_above_one_burst():
    assert Bucket(1.0, 5.0, 0.0, level=99.0).level(0.0) == 5.0
    assert Bucket(1.0, 5.0, 0.0, level=0.0).level(0.0) == 0.0


def test_a_bucket_refills_at_its_rate_up_to_one_burst():
    bucket = Bucket(2.0, 5.0, 0.0, level=0.0)
    assert bucket.level(1.5) == 3.0
    assert bucket.level(100.0) == 5.0


def test_a_clock_that_goes_back_refills_nothing():
    bucket = Bucket(1.0, 5.0, 3600.0, level=0.0)
    assert not bucket.take(1.0, 0.0)
    assert bucket.level(3600.0) == 0.0
    assert bucket.retry_at(1.0, 0.0) == 3601.0


def test_a_refused_amount_is_granted_at_exactly_the_named_instant():
    bucket = Bucket(0.3, 7.0, 0.0, level=0.1)
    at = bucket.retry_at(2.0, 0.0)
    assert at == pytest.approx(1.9 / 0.3)
    assert not bucket.take(2.0, at - 1e-6)
    assert bucket.take(2.0, at)


def test_what_is_there_can_be_taken_now():
    assert Bucket(1.0, 5.0, 0.0).retry_at(5.0, 2.0) == 2.0


def test_what_can_never_fit_has_no_time():
    bucket = Bucket(1.0, 5.0, 0.0)
    assert not bucket.fits(5.1)
    assert bucket.retry_at(5.1, 0.0) is None


def test_without_refill_there_is_no_time():
    assert Bucket(0.0, 5.0, 0.0, level=1.0).retry_at(2.0, 0.0) is None


def test_a_lease_takes_what_is_there():
    bucket = Bucket(1.0, 5.0, 0.0)
    assert bucket.take_up_to(3.0, 0.0) == 3.0
    assert bucket.take_up_to(3.0, 0.0) == 2.0
    assert bucket.take_up_to(-3.0, 0.0) == 0.0
    assert bucket.level(0.0) == 0.0


def test_a_negative_amount_is_nothing():
    bucket = Bucket(1.0, 5.0, 0.0, level=2.0)
    assert bucket.take(-3.0, 0.0)
    bucket.give(-1.0, 0.0)
    bucket.owe(-1.0, 0.0)
    assert bucket.level(0.0) == 2.0


def test_what_is_given_back_above_one_burst_is_lost():
    bucket = Bucket(1.0, 5.0, 0.0)
    bucket.give(3.0, 0.0)
    assert bucket.level(0.0) == 5.0


def test_a_debt_is_waited_for():
    bucket = Bucket(1.0, 5.0, 0.0)
    bucket.owe(7.0, 0.0)
    assert bucket.level(0.0) == -2.0
    assert bucket.take_up_to(1.0, 0.0) == 0.0
    assert bucket.retry_at(1.0, 0.0) == 3.0


def test_a_new_rate_counts_from_now_on():
    bucket = Bucket(1.0, 10.0, 0.0, level=0.0)
    bucket.configure(2.0, 3.0, 2.0)
    assert bucket.level(2.0) == 2.0
    assert bucket.level(9.0) == 3.0
    assert repr(bucket) == "<Bucket 3.0/3 +2/s at 9.000>"


@pytest.mark.parametrize(
    ("rate", "burst", "field"),
    [
        (-1, 5, "rate_per_s"),
        (nan, 5, "rate_per_s"),
        (inf, 5, "rate_per_s"),
        (1, 0, "burst"),
        (1, nan, "burst"),
    ],
)
def test_an_impossible_bucket_is_refused_with_its_field(rate, burst, field):
    with pytest.raises(ValueError, match=field):
        Bucket(rate, burst, 0.0)
    bucket = Bucket(1.0, 5.0, 0.0)
    with pytest.raises(ValueError, match=field):
        bucket.configure(rate, burst, 1.0)
    assert (bucket.rate_per_s, bucket.burst) == (1.0, 5.0)


MOVES = st.lists(st.tuples(st.floats(0, 20), st.floats(0, 12)), max_size=50)


@given(st.floats(0.01, 5.0), st.floats(1.0, 10.0), MOVES)
def test_grants_in_any_window_stay_within_burst_and_rate(rate, burst, moves):
    bucket, now, grants = Bucket(rate, burst, 0.0), 0.0, []
    for gap, amount in moves:
        now += gap
        if bucket.take(amount, now):
            grants.append((now, amount))
    for start in range(len(grants)):
        total = 0.0
        for at, amount in grants[start:]:
            total += amount
            assert total <= burst + rate * (at - grants[start][0]) + 1e-6


@given(st.floats(0.01, 5.0), st.floats(1.0, 10.0), MOVES)
def test_the_named_instant_is_exact(rate, burst, moves):
    bucket, now = Bucket(rate, burst, 0.0), 0.0
    for gap, amount in moves:
        now += gap
        if bucket.take(amount, now):
            continue
        at = bucket.retry_at(amount, now)
        if at is None:
            assert amount > burst
        else:
            assert not bucket.has(amount, now + (at - now) * 0.999 - 1e-6)
            assert bucket.take(amount, at)
            now = at


def tenant(now=0.0):
    return TenantBuckets(
        requests=Bucket(1.0, 3.0, now),
        tokens=Bucket(10.0, 1000.0, now),
        monthly=MonthlyQuota(5000),
        concurrency=2,
    )


def levels(buckets, now=0.0):
    return (
        buckets.requests.level(now),
        buckets.tokens.level(now),
        buckets.monthly.remaining,
        buckets.in_flight,
    )


def test_a_reservation_takes_from_every_bucket():
    buckets = tenant()
    assert buckets.reserve("t1", 400, 0.0) is None
    assert levels(buckets) == (2.0, 600.0, 4600, 1)


@pytest.mark.parametrize(
    ("spoil", "tokens", "denied"),
    [
        (lambda b: b.requests.take(3.0, 0.0), 10, Denied(ShedReason.RATE_LIMITED, 1.0)),
        (lambda b: b.tokens.take(995.0, 0.0), 10, Denied(ShedReason.TOKEN_LIMITED, 0.5)),
        (lambda b: None, 2000, Denied(ShedReason.TOKEN_LIMITED, None, fits=False)),
        (lambda b: b.monthly.begin(4995), 10, Denied(ShedReason.QUOTA_EXHAUSTED, None)),
        (lambda b: None, 6000, Denied(ShedReason.QUOTA_EXHAUSTED, None, fits=False)),
    ],
    ids=["requests", "tokens", "never fits", "month", "never in a month"],
)
def test_a_refusal_names_its_reason_and_costs_nothing(spoil, tokens, denied):
    buckets = tenant()
    spoil(buckets)
    before = levels(buckets)
    assert buckets.reserve("t1", tokens, 0.0) == denied
    assert levels(buckets) == before


def test_of_two_short_buckets_the_later_one_is_named():
    buckets = tenant()
    buckets.requests.take(3.0, 0.0)
    buckets.tokens.take(1000.0, 0.0)
    assert buckets.reserve("t", 5, 0.0) == Denied(ShedReason.RATE_LIMITED, 1.0)
    assert buckets.reserve("t", 50, 0.0) == Denied(ShedReason.TOKEN_LIMITED, 5.0)
    assert buckets.reserve("t", 5000, 0.0) == Denied(ShedReason.TOKEN_LIMITED, None, fits=False)
    buckets.requests.configure(0.0, 3.0, 0.0)
    assert buckets.reserve("t", 50, 0.0) == Denied(ShedReason.RATE_LIMITED, None)


def test_concurrency_helps_only_by_an_end():
    buckets = tenant()
    buckets.reserve("t1", 1, 0.0)
    buckets.reserve("t2", 1, 0.0)
    assert buckets.reserve("t3", 1, 0.0) == Denied(ShedReason.CONCURRENCY_LIMITED, None)
    buckets.settle("t1", 1, 0.0)
    assert buckets.reserve("t3", 1, 0.0) is None


def test_a_tenant_without_any_place_can_never_fit():
    buckets = TenantBuckets(concurrency=0)
    assert buckets.reserve("t", 1, 0.0) == Denied(ShedReason.CONCURRENCY_LIMITED, None, fits=False)


def test_without_bounds_everything_is_granted():
    buckets = TenantBuckets()
    assert all(buckets.reserve(f"t{i}", 10**9, 0.0) is None for i in range(100))
    assert all(buckets.settle(f"t{i}", 1, 0.0) for i in range(50))
    assert all(buckets.refund(f"t{i}", 0.0) for i in range(50, 100))
    assert buckets.in_flight == 0


def test_what_was_not_used_comes_back_once():
    buckets = tenant()
    buckets.reserve("t1", 400, 0.0)
    assert buckets.settle("t1", 150, 0.0)
    assert not buckets.settle("t1", 0, 0.0)
    assert not buckets.refund("t1", 0.0)
    assert levels(buckets) == (2.0, 850.0, 4850, 0)


def test_what_was_used_beyond_the_reservation_is_owed():
    buckets = tenant()
    buckets.reserve("t1", 400, 0.0)
    buckets.settle("t1", 1500, 0.0)
    assert levels(buckets) == (2.0, -500.0, 3500, 0)


def test_a_refunded_ticket_cost_nothing():
    buckets = tenant()
    before = levels(buckets)
    buckets.reserve("t1", 400, 0.0)
    assert buckets.refund("t1", 0.0)
    assert levels(buckets) == before


def test_a_second_reservation_of_a_ticket_is_refused():
    buckets = tenant()
    buckets.reserve("t1", 1, 0.0)
    with pytest.raises(ValueError, match="ticket: t1"):
        buckets.reserve("t1", 1, 0.0)


def test_negative_figures_are_refused_with_their_field():
    with pytest.raises(ValueError, match="tokens"):
        tenant().reserve("t", -1, 0.0)
    with pytest.raises(ValueError, match="limit, used"):
        MonthlyQuota(-1)
    with pytest.raises(ValueError, match="limit, used"):
        MonthlyQuota(1, -1)


def test_a_new_month_keeps_what_is_in_flight():
    quota = MonthlyQuota(100, 90)
    quota.reserved = 10
    assert quota.remaining == 0
    quota.begin()
    assert quota.remaining == 90
    quota.begin(-5)
    assert quota.used == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["reserve", "settle", "refund"]), st.integers(0, 9), st.integers(0, 900))
    )
)
def test_at_rest_the_month_counts_exactly_what_was_used(moves):
    buckets, used, held = tenant(), 0, set()
    buckets.concurrency = None
    for second, (move, ticket, tokens) in enumerate(moves):
        name = str(ticket)
        if move == "reserve":
            if name not in held and buckets.reserve(name, tokens, float(second)) is None:
                held.add(name)
        elif move == "settle":
            assert buckets.settle(name, tokens, float(second)) == (name in held)
            used += tokens if name in held else 0
            held.discard(name)
        else:
            assert buckets.refund(name, float(second)) == (name in held)
            held.discard(name)
        assert buckets.requests.level(float(second)) <= 3.0
        assert buckets.tokens.level(float(second)) <= 1000.0
    for name in held:
        buckets.refund(name, 1e4)
    assert (buckets.monthly.reserved, buckets.monthly.used) == (0, used)
