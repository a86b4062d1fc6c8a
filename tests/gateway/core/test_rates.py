"""Shares by cost, rates by seconds."""

import pytest

from gateway.core.rates import HORIZON, CostShares, ServiceRates


def test_shares_follow_the_cost_of_each_tier():
    shares = CostShares(2)
    for _ in range(1000):
        shares.add(0, 300)
        shares.add(1, 100)
    assert shares[0] == pytest.approx(0.75, abs=0.01)
    assert shares[0] + shares[1] == pytest.approx(1.0, abs=0.01)


def test_shares_forget_over_their_horizon():
    shares = CostShares(2)
    shares.add(0, 10_000_000)
    shares.add(1, int(HORIZON))
    assert shares[0] == pytest.approx(0.368, abs=0.001)


def test_what_was_pushed_back_is_taken_off_again():
    shares = CostShares(2)
    shares.add(0, 1000)
    shares.add(0, -1000)
    assert shares[0] == pytest.approx(0.0)
    shares.add(0, -1000)
    assert shares[0] == 0.0


def test_a_known_share_can_be_put_back():
    shares = CostShares(1)
    shares.put(0, 0.4)
    assert shares[0] == 0.4


@pytest.mark.parametrize(
    ("counts", "waiting", "rate"),
    [
        ([1000], 0, 1000.0),  # the first second is taken as it is
        ([1000, 2000], 0, 1300.0),  # better: always raised
        ([1000, 0], 0, 1000.0),  # a quiet second is no outage
        ([1000, 0], 1, 700.0),  # lowered while something waits
    ],
)
def test_a_rate_rises_always_and_falls_only_while_something_waits(counts, waiting, rate):
    rates = ServiceRates(2, now=0.0)
    for second, count in enumerate(counts, 1):
        rates.add(1, count)
        assert rates.roll([0, waiting], float(second))
    assert rates.total == pytest.approx(rate)
    assert rates.tiers == [0.0, pytest.approx(rate)]


def test_a_tier_without_waiting_keeps_its_rate_while_the_total_falls():
    rates = ServiceRates(2, now=0.0)
    rates.add(0, 100)
    rates.add(1, 100)
    rates.roll([0, 0], 1.0)
    rates.roll([1, 0], 2.0)
    assert rates.tiers == [pytest.approx(70.0), 100.0]
    assert rates.total == pytest.approx(140.0)


def test_nothing_rolls_before_the_second_is_over():
    rates = ServiceRates(1, now=5.0)
    rates.add(0, 10)
    assert not rates.roll([0], 5.99)
    assert rates.total == 0.0


def test_seconds_without_an_event_count_as_empty():
    rates = ServiceRates(1, now=0.0)
    rates.add(0, 1000)
    rates.roll([1], 1.0)
    rates.roll([1], 4.0)
    assert rates.total == pytest.approx(1000 * 0.7**3)
    rates.roll([1], 1e9)
    assert rates.total < 1e-3
