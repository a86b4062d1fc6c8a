"""Both valves keep the promises of the protocol."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.policy import BackendPolicy, LimitPolicy, PoolPolicy, default_tiers
from gateway.core.valve import Ask, SeatValve, TokenValve, new_valve
from gateway.core.vocabulary import LimitAlgorithm

BACKEND = BackendPolicy(name="b", pool="chat", max_seqs=32, kv_capacity_tokens=20_000)


def valve_of(algorithm, gateways=1):
    pool = PoolPolicy(name="chat", limit=LimitPolicy(algorithm=algorithm))
    return new_valve(pool, BACKEND, default_tiers(), 0.0, gateways=gateways)


@pytest.mark.parametrize("algorithm", LimitAlgorithm)
def test_each_algorithm_has_its_valve(algorithm):
    kind = TokenValve if algorithm is LimitAlgorithm.TOKEN_VALVE else SeatValve
    assert type(valve_of(algorithm)) is kind


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["dispatch", "tokens", "release", "again", "tick"]),
        st.integers(0, 9),
        st.integers(0, 4000),
    ),
    max_size=80,
)


def apply(valve, move, flight, now):
    """One move; `flight` holds the attempts that were not released."""
    (name, pick, tokens), attempt = move, round(now * 1000)
    ask = Ask(pick % 3, tokens, 100)
    if name == "dispatch" and valve.binds(ask, now) is None:
        valve.dispatch(attempt, ask, now)
        flight.append(attempt)
    elif name == "tokens":
        valve.progress([(a, 1 + pick) for a in flight[: pick + 1]], now, lagged=pick == 3)
    elif name == "tick":
        valve.tick(now)
    elif name in ("release", "again") and flight:
        gone = flight.pop(pick % len(flight))
        for _ in range(2 if name == "again" else 1):
            valve.release(gone, now)


@given(MOVES, st.sampled_from(list(LimitAlgorithm)))
def test_whatever_was_taken_is_given_back_exactly_once(moves, algorithm):
    valve, now, flight = valve_of(algorithm), 0.0, []
    for move in moves:
        now += 0.02
        before = valve.in_flight
        apply(valve, move, flight, now)
        assert valve.in_flight == len(flight)
        assert len(flight) <= max(before, valve.limit)
        assert all(0.0 <= valve.pressure(tier, now) <= 1.0 for tier in range(3))
        assert valve.burden(now) >= 0.0
    for gone in flight:
        valve.release(gone, now)
    gauge = valve.gauge(now)
    assert (gauge.in_flight, gauge.kv_tokens, gauge.prefill_tokens) == (0, 0, 0)


@pytest.mark.parametrize("algorithm", LimitAlgorithm)
def test_tokens_of_a_released_attempt_count_nothing(algorithm):
    valve = valve_of(algorithm)
    valve.dispatch(1, Ask(0, 100, 10), 0.0)
    valve.release(1, 0.1)
    valve.progress([(1, 5), (99, 5)], 0.2, lagged=False)
    gauge = valve.gauge(0.2)
    assert (gauge.in_flight, gauge.kv_tokens, gauge.prefill_tokens) == (0, 0, 0)


@pytest.mark.parametrize("algorithm", LimitAlgorithm)
def test_a_pinned_limit_holds_until_it_is_released(algorithm):
    valve = valve_of(algorithm)
    free = valve.limit
    valve.pin(2)
    valve.dispatch(1, Ask(0, 10, 10), 0.0)
    valve.dispatch(2, Ask(0, 10, 10), 0.0)
    assert valve.limit == 2
    assert valve.binds(Ask(0, 10, 10), 0.0) == "sequences"
    valve.pin(1000)
    assert valve.limit == 32
    valve.pin(-1)
    assert valve.limit == 0
    assert valve.pressure(0, 0.0) == 1.0
    valve.pin(None)
    assert valve.limit == free


@pytest.mark.parametrize("algorithm", LimitAlgorithm)
def test_gateways_without_bounds_share_the_seats(algorithm):
    assert valve_of(algorithm, gateways=4).limit <= 8


def test_a_valve_prints_the_numbers_that_matter():
    assert repr(valve_of(LimitAlgorithm.VEGAS)) == "<SeatValve vegas 0/4.0>"
    token = repr(valve_of(LimitAlgorithm.TOKEN_VALVE))
    assert token == "<TokenValve 0/4.0 prefill=0 kv=0 target=0.900 slow=1.00>"
