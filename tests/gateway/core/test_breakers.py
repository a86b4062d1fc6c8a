"""Breakers: what counts, legal transitions, bounded probes, and what a person says."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.breakers import Breaker
from gateway.core.policy import BreakerPolicy
from gateway.core.vocabulary import BreakerState, Fault

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
FORCED_OPEN, FORCED_CLOSED = BreakerState.FORCED_OPEN, BreakerState.FORCED_CLOSED
POLICY = BreakerPolicy(min_requests=5, open_s=1.0, half_open_probes=1, probe_timeout_s=4.0, ramp_s=10.0)
BACKEND_FAULTS = [fault for fault in Fault if fault is not Fault.CALLER_ERROR]


def serve(breaker, now, *faults, first=0):
    """One attempt after the other: None succeeds, a fault fails."""
    for attempt, fault in enumerate(faults, start=first):
        if not breaker.allows(now):
            continue
        breaker.dispatched(attempt, now)
        if fault is None:
            breaker.succeeded(attempt, now)
        else:
            breaker.failed(attempt, fault, now)


def opened(now=0.0, policy=POLICY):
    breaker = Breaker(policy, now)
    serve(breaker, now, *[Fault.CONNECTION] * max(5, policy.min_requests))
    assert breaker.state is OPEN
    return breaker


@pytest.mark.parametrize("fault", BACKEND_FAULTS)
def test_each_fault_of_the_backend_opens_it(fault):
    breaker = Breaker(POLICY, 0.0)
    serve(breaker, 0.0, *[fault] * 4)
    assert breaker.state is CLOSED
    serve(breaker, 0.0, fault)
    assert (breaker.state, breaker.until) == (OPEN, 1.0)
    assert not breaker.allows(0.9)


def test_errors_of_the_caller_and_a_busy_engine_leave_it_closed():
    breaker = Breaker(POLICY, 0.0)
    serve(breaker, 0.0, *[Fault.CALLER_ERROR] * 150)
    for attempt in range(100):
        breaker.dispatched(attempt, 1.0)
        breaker.neutral(attempt, 1.0, status=429 if attempt < 50 else 503)
    for attempt in range(50):
        breaker.dispatched(attempt, 1.0)
        breaker.neutral(attempt, 1.0)
    assert breaker.state is CLOSED
    assert breaker.allows(1.0)
    assert (breaker.failures, breaker.successes) == (0, 0)


def test_it_opens_at_the_ratio_not_below():
    breaker = Breaker(BreakerPolicy(min_requests=10, failure_ratio=0.5), 0.0)
    serve(breaker, 0.0, *[None] * 6, *[Fault.SERVER_ERROR] * 5)
    assert breaker.state is CLOSED
    serve(breaker, 0.0, Fault.SERVER_ERROR)
    assert breaker.state is OPEN
    assert (breaker.failures, breaker.successes) == (6, 6)


def test_old_failures_are_forgotten():
    breaker = Breaker(POLICY, 0.0)
    serve(breaker, 0.0, *[Fault.SERVER_ERROR] * 4)
    serve(breaker, 11.0, *[Fault.SERVER_ERROR] * 4)
    assert breaker.state is CLOSED


def test_a_disabled_breaker_never_opens():
    breaker = Breaker(BreakerPolicy(enabled=False, min_requests=1), 0.0)
    serve(breaker, 0.0, *[Fault.CONNECTION] * 50)
    for second in range(20):
        breaker.neutral(second, float(second), status=503)
    breaker.published(OPEN, 20.0)
    assert breaker.state is CLOSED
    assert breaker.allows(20.0)


def test_half_open_lets_one_probe_through_of_fifty():
    breaker = opened()
    sent = 0
    for attempt in range(100, 150):
        if breaker.allows(1.1):
            breaker.dispatched(attempt, 1.1)
            sent += 1
    assert (sent, breaker.state, breaker.until) == (1, HALF_OPEN, None)


def test_a_good_probe_closes_it_and_load_ramps_up():
    breaker = opened()
    breaker.dispatched(100, 1.0)
    breaker.succeeded(100, 1.5)
    assert breaker.state is CLOSED
    assert [breaker.ramp(at) for at in (1.5, 2.0, 6.5, 11.5, 11.6)] == [0.1, 0.1, 0.5, 1.0, 1.0]


def test_without_a_ramp_load_is_back_at_once():
    breaker = opened(policy=BreakerPolicy(min_requests=5, open_s=1.0, ramp_s=0.0))
    serve(breaker, 1.0, None, first=100)
    assert (breaker.state, breaker.ramp(1.0)) == (CLOSED, 1.0)


def test_what_was_counted_before_it_opened_does_not_open_it_again():
    breaker = opened()
    serve(breaker, 1.0, None, first=100)
    serve(breaker, 1.1, *[Fault.SERVER_ERROR] * 3, first=101)
    assert breaker.state is CLOSED


def test_a_probe_proves_the_backend_with_its_first_token():
    breaker = opened()
    breaker.dispatched(100, 1.0)
    breaker.answered(100, 2.0)
    assert breaker.state is CLOSED
    breaker.succeeded(100, 60.0)
    assert breaker.state is CLOSED


def test_a_failed_probe_opens_it_again():
    breaker = opened()
    breaker.dispatched(100, 1.0)
    breaker.failed(100, Fault.SERVER_ERROR, 1.2)
    assert (breaker.state, breaker.until) == (OPEN, 2.2)


def test_a_probe_that_hangs_opens_it_again():
    breaker = opened()
    breaker.dispatched(100, 1.0)
    breaker.tick(4.9)
    assert breaker.state is HALF_OPEN
    breaker.tick(5.0)
    assert (breaker.state, breaker.until) == (OPEN, 6.0)
    breaker.succeeded(100, 5.5)
    assert breaker.state is OPEN


@pytest.mark.parametrize("status", [None, 429, 503])
def test_a_probe_without_a_verdict_gives_its_place_back(status):
    breaker = opened()
    breaker.dispatched(100, 1.0)
    assert not breaker.allows(1.9)
    breaker.neutral(100, 1.9, status=status)
    assert not breaker.allows(1.95)
    assert breaker.allows(2.0)


def test_a_caller_error_of_a_probe_gives_its_place_back():
    breaker = opened()
    breaker.dispatched(100, 1.0)
    breaker.failed(100, Fault.CALLER_ERROR, 1.1)
    assert breaker.state is HALF_OPEN
    assert breaker.allows(2.0)


def test_as_many_probes_must_succeed_as_may_run():
    breaker = opened(policy=BreakerPolicy(min_requests=5, open_s=1.0, half_open_probes=3))
    for attempt in (100, 101, 102):
        assert breaker.allows(1.0)
        breaker.dispatched(attempt, 1.0)
    assert not breaker.allows(1.0)
    breaker.succeeded(100, 1.1)
    breaker.succeeded(101, 1.1)
    assert breaker.state is HALF_OPEN
    breaker.succeeded(102, 1.1)
    assert breaker.state is CLOSED


def test_late_news_of_old_attempts_changes_nothing():
    breaker = opened()
    breaker.succeeded(1, 0.5)
    breaker.failed(2, Fault.MIDSTREAM, 0.5)
    assert (breaker.state, breaker.until) == (OPEN, 1.0)
    breaker.tick(1.0)
    breaker.succeeded(3, 1.1)
    breaker.failed(4, Fault.MIDSTREAM, 1.1)
    assert breaker.state is HALF_OPEN


def only_503(breaker, start, end):
    """503 and nothing else, each second, as far as it lets one through; how many were let through."""
    sent = 0
    for tenth in range(round(start * 10), round(end * 10)):
        now = tenth / 10
        if breaker.allows(now):
            sent += 1
            breaker.dispatched(tenth, now)
            breaker.neutral(tenth, now, status=503)
    return sent


def test_nothing_but_503_for_ten_seconds_is_not_ready_and_tried_once_a_second():
    breaker = Breaker(POLICY, 0.0)
    assert only_503(breaker, 0, 10) == 100
    assert not breaker.not_ready
    assert only_503(breaker, 10, 20) in (9, 10, 11)
    assert breaker.not_ready
    assert breaker.state is CLOSED
    assert breaker.until == pytest.approx(20.0, abs=1.01)


@pytest.mark.parametrize(
    "sign",
    [
        lambda b: b.neutral(7, 20.0, status=429),
        lambda b: b.succeeded(7, 20.0),
        lambda b: b.answered(7, 20.0),
        lambda b: b.failed(7, Fault.CALLER_ERROR, 20.0),
        lambda b: b.failed(7, Fault.SERVER_ERROR, 20.0),
    ],
    ids=["429", "answer", "first token", "4xx", "5xx"],
)
def test_any_other_answer_makes_it_ready_again(sign):
    breaker = Breaker(POLICY, 0.0)
    only_503(breaker, 0, 20)
    sign(breaker)
    assert not breaker.not_ready
    assert breaker.allows(20.0)
    assert breaker.until is None


def test_forced_open_lets_nothing_through_until_released():
    breaker = Breaker(POLICY, 0.0)
    breaker.force(FORCED_OPEN, 0.0)
    assert not any(breaker.allows(float(at)) for at in range(100))
    breaker.force(None, 100.0)
    assert breaker.state is CLOSED
    assert breaker.ramp(100.0) == 0.1
    assert breaker.allows(100.0)


def test_forced_closed_lets_everything_through_while_it_fails():
    breaker = opened()
    breaker.force(FORCED_CLOSED, 0.5)
    serve(breaker, 0.5, *[Fault.CONNECTION] * 50)
    assert breaker.state is FORCED_CLOSED
    assert breaker.allows(0.5)
    breaker.force(None, 1.0)
    assert (breaker.state, breaker.ramp(1.0)) == (CLOSED, 1.0)
    serve(breaker, 1.0, *[Fault.CONNECTION] * 4)
    assert breaker.state is CLOSED


def test_the_words_of_an_override_force_it():
    breaker = Breaker(POLICY, 0.0)
    breaker.force(OPEN, 0.0)
    assert breaker.state is FORCED_OPEN
    breaker.force(CLOSED, 0.0)
    assert breaker.state is FORCED_CLOSED


def test_nobody_can_force_half_open():
    with pytest.raises(ValueError, match="state"):
        Breaker(POLICY, 0.0).force(HALF_OPEN, 0.0)


def test_releasing_what_is_not_forced_changes_nothing():
    breaker = opened()
    breaker.force(None, 0.5)
    assert breaker.state is OPEN


def test_a_probe_in_flight_when_forced_and_released_holds_no_place():
    breaker = opened()
    breaker.dispatched(100, 1.0)
    breaker.force(FORCED_CLOSED, 1.1)
    breaker.force(None, 1.2)
    serve(breaker, 1.3, *[Fault.CONNECTION] * 5, first=200)
    assert breaker.state is OPEN
    assert breaker.allows(2.5)


def test_the_votes_of_all_gateways_open_it_here():
    breaker = Breaker(POLICY, 0.0)
    breaker.published(OPEN, 5.0)
    assert (breaker.state, breaker.until) == (OPEN, 6.0)


def test_a_stale_verdict_does_not_open_it_again():
    breaker = Breaker(POLICY, 0.0)
    breaker.published(OPEN, 5.0)
    serve(breaker, 6.0, None, first=100)
    breaker.published(OPEN, 6.1)
    assert breaker.state is CLOSED


def test_a_recovery_seen_elsewhere_starts_a_probe_here():
    breaker = opened(policy=BreakerPolicy(min_requests=5, open_s=60.0))
    breaker.published(OPEN, 1.0)
    assert breaker.until == 60.0
    breaker.published(CLOSED, 2.0)
    assert breaker.state is HALF_OPEN
    breaker.published(HALF_OPEN, 3.0)
    assert breaker.state is HALF_OPEN


def test_a_forced_breaker_ignores_the_votes():
    breaker = Breaker(POLICY, 0.0)
    breaker.force(FORCED_CLOSED, 0.0)
    breaker.published(OPEN, 1.0)
    assert breaker.state is FORCED_CLOSED


def test_it_prints_the_numbers_that_matter():
    assert repr(opened()) == "<Breaker open failures=0 successes=0 probes=0 until=1.0>"


LEGAL = {
    CLOSED: {OPEN, FORCED_OPEN, FORCED_CLOSED},
    OPEN: {HALF_OPEN, FORCED_OPEN, FORCED_CLOSED},
    HALF_OPEN: {OPEN, CLOSED, FORCED_OPEN, FORCED_CLOSED},
    FORCED_OPEN: {CLOSED, FORCED_CLOSED},
    FORCED_CLOSED: {CLOSED, FORCED_OPEN},
}
MOVES = st.lists(
    st.tuples(
        st.sampled_from(
            ["dispatch", "answer", "succeed", "fail", "neutral", "503", "force", "release", "vote"]
        ),
        st.integers(0, 5),
        st.floats(0, 2.5),
    ),
    max_size=120,
)


def move(breaker, name, pick, flight, now):
    if name in ("force", "vote"):
        verdict = [OPEN, CLOSED, None][pick % 3]
        (breaker.force if name == "force" else breaker.published)(verdict, now)
    elif name == "release":
        breaker.force(None, now)
    elif flight:
        attempt = flight[pick % len(flight)] if name == "answer" else flight.pop(pick % len(flight))
        match name:
            case "answer":
                breaker.answered(attempt, now)
            case "succeed":
                breaker.succeeded(attempt, now)
            case "fail":
                breaker.failed(attempt, list(Fault)[pick], now)
            case _:
                breaker.neutral(attempt, now, status=503 if name == "503" else None)


@given(MOVES, st.integers(1, 3))
def test_transitions_are_legal_and_probes_are_bounded(moves, probes):
    policy = BreakerPolicy(min_requests=2, open_s=1.0, half_open_probes=probes, probe_timeout_s=3.0)
    breaker, now, flight, starts = Breaker(policy, 0.0), 0.0, [], []
    for attempt, (name, pick, gap) in enumerate(moves):
        now += gap
        before = breaker.state
        breaker.tick(now)
        steps = [before, breaker.state]
        if name == "dispatch":
            allowed = breaker.allows(now)
            if allowed:
                breaker.dispatched(attempt, now)
                flight.append(attempt)
            if allowed and breaker.state is HALF_OPEN:
                starts.append(now)
            assert allowed is False or breaker.state not in (OPEN, FORCED_OPEN)
        else:
            move(breaker, name, pick, flight, now)
        steps.append(breaker.state)
        for one, other in pairwise(steps):
            assert one is other or other in LEGAL[one] or (one is HALF_OPEN and other is HALF_OPEN)
        assert len(breaker._probes) <= probes
        assert sum(1 for at in starts if at > now - 0.999) <= 2 * probes
        assert 0.1 <= breaker.ramp(now) <= 1.0


@given(MOVES)
def test_it_is_never_wedged(moves):
    """Whatever happened: left alone for a while and given good answers, it lets them through again."""
    breaker, now, flight = Breaker(POLICY, 0.0), 0.0, []
    for attempt, (name, pick, gap) in enumerate(moves):
        now += gap
        if name == "dispatch" and breaker.allows(now):
            breaker.dispatched(attempt, now)
            flight.append(attempt)
        elif name != "dispatch":
            move(breaker, name, pick, flight, now)
    breaker.force(None, now)
    now += POLICY.probe_timeout_s
    breaker.tick(now)
    now += POLICY.open_s
    assert breaker.allows(now)
    serve(breaker, now, None, first=1000)
    assert breaker.state is CLOSED
    assert breaker.allows(now)
