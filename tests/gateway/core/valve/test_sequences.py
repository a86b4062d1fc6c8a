"""Whole seats, reserves and the AIMD on the time per output token."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.events import BackendBounds
from gateway.core.policy import BackendPolicy, LimitPolicy
from gateway.core.valve.sequences import SeatRange, SequenceLimit, nothing, reserve, twentieth


def seats(gateways=1, max_seqs=96, **limit):
    return SeatRange(LimitPolicy(**limit), BackendPolicy(name="b", pool="chat", max_seqs=max_seqs), gateways)


def told(**bounds):
    return BackendBounds(backend="b", **bounds)


@pytest.mark.parametrize(
    ("gateways", "max_seqs", "limit", "low_high"),
    [
        (1, 96, {}, (4, 96)),
        (1, None, {}, (4, 256)),
        (1, 512, {}, (4, 256)),
        (3, 96, {}, (4, 32)),
        (3, 8, {}, (2, 2)),
        (3, 2, {}, (1, 1)),
        (1, 2, {}, (2, 2)),
        (1, 96, {"min_limit": 8, "max_limit": 40}, (8, 40)),
    ],
)
def test_without_bounds_a_gateway_has_its_part_of_the_seats(gateways, max_seqs, limit, low_high):
    own = seats(gateways, max_seqs, **limit)
    assert (own.low, own.high) == low_high


def test_seats_given_by_the_slow_loop_come_first():
    own = seats()
    own.bound(told(seats=3), 0.5, 1.0)
    assert (own.low, own.high) == (3, 3)
    own.bound(told(seats=0), 0.5, 2.0)
    assert (own.low, own.high) == (0, 0)


def test_seats_rise_a_second_later():
    own = seats(3)
    own.bound(told(seats=50), 1.0, 1.0)
    assert (own.high, own.share.value) == (32, pytest.approx(1 / 3))
    own.advance(1.9)
    assert own.high == 32
    own.advance(2.0)
    assert (own.high, own.share.value) == (50, 1.0)


def test_a_share_without_seats_divides_what_the_engine_has():
    own = seats()
    own.bound(told(limit_max=64, limit_min=2), 0.25, 1.0)
    assert (own.low, own.high, own.engine_max) == (2, 16, 64)


def test_the_pool_bounds_the_engine():
    own = seats(max_limit=40)
    own.bound(told(limit_max=300, seats=200), 1.0, 1.0)
    own.advance(9.0)
    assert own.high == 40


@pytest.mark.parametrize("nonsense", [nan, inf, -inf, -1])
def test_nonsense_is_as_if_it_had_not_been_told(nonsense):
    own = seats()
    own.bound(told(limit_max=nonsense, limit_min=nonsense, seats=nonsense), nonsense, 1.0)
    own.advance(9.0)
    assert (own.low, own.high, own.share.value) == (4, 96, 1.0)


@pytest.mark.parametrize(
    ("limit", "reserved"), [(0, 0), (1, 0), (2, 1), (4, 1), (20, 1), (21, 2), (40, 2), (41, 3), (96, 5)]
)
def test_a_twentieth_of_the_seats_is_kept_for_the_first_tier(limit, reserved):
    assert reserve(LimitPolicy(), twentieth, limit) == reserved


def test_a_set_reserve_wins_but_leaves_one_seat():
    policy = LimitPolicy(reserved_seats=6)
    assert [reserve(policy, twentieth, n) for n in (96, 7, 6, 1, 0)] == [6, 6, 5, 0, 0]
    assert reserve(LimitPolicy(), nothing, 50) == 0


@pytest.mark.parametrize(
    ("limit", "in_flight", "ratio", "after"),
    [
        (40, 40, 1.0001, 38.0),  # x .95
        (40, 40, 1.2, 36.0),  # .95 - .05
        (40, 40, 2.0, 28.0),  # .7
        (40, 40, 9.0, 28.0),
        (40, 20, 2.0, 14.0),  # from what is in flight
        (40, 60, 2.0, 28.0),
    ],
)
def test_it_falls_by_how_far_tokens_are_late(limit, in_flight, ratio, after):
    sequences = SequenceLimit(limit)
    sequences.falls(ratio, in_flight, 1, 10.0)
    assert sequences.value == pytest.approx(after, abs=0.01)


def test_it_falls_every_fifth_of_a_second_and_only_on_fresh_times():
    sequences = SequenceLimit(100)
    sequences.falls(1.2, 100, 1, 10.0)
    sequences.falls(1.2, 100, 2, 10.15)
    assert sequences.value == pytest.approx(90)
    sequences.falls(1.2, 100, 2, 10.2)
    assert sequences.value == pytest.approx(81)
    sequences.falls(1.2, 100, 2, 10.5)  # nothing was measured since
    assert sequences.value == pytest.approx(81)


@pytest.mark.parametrize(
    ("limit", "in_flight", "reserved", "after"),
    [
        (10, 8, 1, 10.5),
        (10, 7, 1, 10),  # below .85 * 10 - 1
        (100, 80, 5, 102),
        (100, 79, 5, 100),
        (20, 9, 15, 20),  # never below half use, however much is reserved
        (2, 1, 1, 2.5),
    ],
)
def test_it_rises_while_it_is_used(limit, in_flight, reserved, after):
    sequences = SequenceLimit(limit)
    sequences.rises(in_flight, reserved)
    assert sequences.value == after


@given(
    st.lists(st.tuples(st.floats(0, 20), st.integers(0, 300)), max_size=80),
    st.integers(1, 8),
    st.integers(8, 200),
)
def test_it_stays_within_its_bounds_and_never_rises_below_half_use(moves, low, high):
    sequences = SequenceLimit(low)
    for k, (ratio, in_flight) in enumerate(moves, start=1):
        before = sequences.value
        if ratio > 1:
            sequences.falls(ratio, in_flight, k, k * 0.05)
        else:
            sequences.rises(in_flight, 0)
        sequences.bound(low, high)
        assert low <= sequences.value <= high
        assert sequences.value <= before or in_flight >= before / 2
