"""Which backend takes a ticket."""

from dataclasses import replace

import pytest

from gateway.core.events import Arrived, BackendBounds
from gateway.core.policy import BackendPolicy, BreakerPolicy, LimitPolicy, PoolPolicy, default_tiers
from gateway.core.routing import Backend, choose
from gateway.core.tickets import Ticket
from gateway.core.valve import Ask, new_valve
from gateway.core.vocabulary import Account, BreakerState, LimitAlgorithm

POOL = PoolPolicy(
    name="chat",
    limit=LimitPolicy(algorithm=LimitAlgorithm.FIXED, min_limit=1, max_limit=20, reserved_seats=0),
    breaker=BreakerPolicy(ramp_s=10.0),
)
ASK = Ask(1, 100, 10)
LATER = 100.0  # long after the cold start


def backend(name: str = "b0", pool: PoolPolicy = POOL, **fields) -> Backend:
    policy = BackendPolicy(name=name, pool="chat", **fields)
    return Backend(policy, pool, new_valve(pool, policy, default_tiers(), 0.0), 0.0)


def carry(target: Backend, count: int, tier: int = 1, now: float = LATER) -> None:
    for _ in range(count):
        ticket = Ticket(Arrived(ticket="t", pool="chat", tier=tier, tenant="ada", prompt_tokens=100), now)
        carry.attempts += 1
        ticket.attempt = carry.attempts
        target.take(ticket, Ask(tier, 100, 10), now)


carry.attempts = 0


def chosen(*backends: Backend, now: float = LATER, ask: Ask = ASK, is_lowest: bool = False, longest: int = 0):
    return choose(backends, ask, now, is_lowest=is_lowest, longest_context=longest)


def test_no_backend_no_choice():
    assert chosen() == (None, None)


def test_the_least_burdened_one_is_chosen():
    busy, idle = backend("busy"), backend("idle")
    carry(busy, 3)
    assert chosen(busy, idle) == (idle, None)
    assert "in_flight=3 limit=20.0 closed" in repr(busy)


def test_a_backend_without_weight_is_the_last_to_be_chosen():
    nothing, busy = backend("nothing", weight=0.0), backend("busy")
    carry(busy, 3)
    assert chosen(nothing, busy) == (busy, None)


def test_of_equals_the_one_used_longest_ago_is_chosen():
    first, second = backend("first"), backend("second")
    carry(second, 1)
    carry(first, 1)
    assert chosen(first, second) == (second, None)


def test_a_full_backend_says_what_holds():
    full = backend(max_seqs=1)
    carry(full, 1)
    assert chosen(full) == (None, Account.SEQUENCES)


@pytest.mark.parametrize("field", ["is_disabled", "is_drained", "is_removed"])
def test_a_backend_out_of_use_is_skipped(field):
    target = backend()
    setattr(target, field, True)
    target.settle()
    assert chosen(target) == (None, None)


@pytest.mark.parametrize("field", ["paused_until", "held_until"])
def test_a_resting_backend_is_skipped_until_its_time(field):
    target = backend()
    setattr(target, field, LATER + 1.0)
    assert chosen(target) == (None, None)
    assert chosen(target, now=LATER + 1.0) == (target, None)


def test_an_open_breaker_is_skipped_and_its_end_needs_no_tick():
    target = backend()
    target.breaker.published(BreakerState.OPEN, LATER)
    assert chosen(target) == (None, None)
    assert target.is_open(LATER)
    until = target.breaker.until
    assert until is not None
    assert not target.is_open(until)
    target.breaker.force(BreakerState.OPEN, LATER)
    assert target.is_open(LATER + 1e9)


def test_nobody_queues_behind_the_probes_of_others():
    target = backend()
    target.breaker.published(BreakerState.OPEN, LATER)
    probing = target.breaker.until
    assert chosen(target, now=probing) == (target, None)
    assert not target.is_open(probing)
    carry(target, 1, now=probing)
    assert target.is_open(probing)


@pytest.mark.parametrize(
    ("asked", "pause"), [(None, 1.0), (5.0, 5.0), (90.0, 30.0), (-1.0, 1.0), (float("nan"), 1.0), (0.0, 0.0)]
)
def test_a_pause_is_as_long_as_asked_within_bounds(asked, pause):
    target = backend()
    target.pause(asked, LATER)
    assert target.paused_until == LATER + pause
    target.pause(0.0, LATER)  # a shorter one does not end it
    assert target.paused_until == LATER + pause


def test_a_new_backend_is_given_a_part_that_grows():
    target = backend()
    target.start_slowly(LATER)
    given = []
    for seconds in (0.0, 2.5, 5.0, 9.9, 10.0):
        now = LATER + seconds
        while chosen(target, now=now)[0] is target:
            carry(target, 1, now=now)
        given.append(target.seats.taken)
    assert given == [2, 5, 10, 20, 20]
    assert target.ramp(LATER + 10.0) == 1.0
    assert target.ramp(LATER) == 1.0


def test_a_new_backend_weighs_less_in_the_choice():
    old, new = backend("old"), backend("new")
    new.start_slowly(LATER)
    carry(old, 2)
    assert chosen(old, new) == (old, None)


def test_a_warm_backend_that_ramps_up_again_holds_back_by_its_ramp_alone():
    target = backend()
    carry(target, 3)
    target.start_slowly(LATER + 50.0)
    assert chosen(target, now=LATER + 55.0, ask=Ask(2, 100, 10), is_lowest=True) == (target, None)


def test_without_a_ramp_a_new_backend_is_as_good_as_any():
    target = backend(pool=replace(POOL, breaker=BreakerPolicy(ramp_s=0.0)))
    target.start_slowly(0.0)
    assert target.ramp(0.0) == 1.0


def test_a_recovered_backend_ramps_too():
    target = backend()
    target.breaker.force(BreakerState.OPEN, LATER)
    target.breaker.force(None, LATER)
    assert target.ramp(LATER) == pytest.approx(0.1)


def test_after_standing_idle_the_lowest_tier_gets_its_seats_by_and_by():
    target = backend()
    low = Ask(2, 100, 10)
    given = []
    for seconds in (0.0, 0.9, 2.5, 4.0):
        now = LATER + seconds
        while chosen(target, now=now, ask=low, is_lowest=True)[0] is target:
            carry(target, 1, tier=2, now=now)
        given.append(target.seats.taken)
        assert chosen(target, now=now, ask=Ask(0, 100, 10))[0] is target or given[-1] == 20
    assert given == [5, 5, 13, 20]


def test_a_small_cold_backend_still_gives_two_seats():
    target = backend(max_seqs=4)
    while chosen(target, ask=Ask(2, 100, 10), is_lowest=True)[0] is target:
        carry(target, 1, tier=2)
    assert target.seats.taken == 2


def test_a_prompt_longer_than_every_context_goes_anywhere():
    short, long = backend("short", context_tokens=1000), backend("long", context_tokens=4000)
    assert chosen(short, long, ask=Ask(1, 2000, 10), longest=4000) == (long, None)
    assert chosen(short, long, ask=Ask(1, 5000, 10), longest=4000)[0] is short
    assert chosen(short, backend("any"), ask=Ask(1, 2000, 10))[0].policy.name == "any"


def bounds(**fields) -> BackendBounds:
    return BackendBounds(backend="b0", **fields)


def test_an_engines_queue_is_what_was_seen_and_what_was_sent_since():
    target = backend()
    assert target.engine_waiting(LATER) == 0
    target.bound(bounds(engine_waiting=3, engine_running=2, telemetry_age_s=0.5), 1.0, LATER)
    carry(target, 4)
    assert target.engine_waiting(LATER + 1.0) == 7
    assert target.engine_waiting(LATER + 2.6) == 2  # stale: 4 in flight, 2 were running


@pytest.mark.parametrize("waiting", [None, -3])
def test_a_queue_that_is_not_known_counts_what_is_beyond_the_running(waiting):
    target = backend()
    target.bound(bounds(engine_waiting=waiting), 1.0, LATER)
    carry(target, 4)
    assert target.engine_waiting(LATER) == 0
    target.bound(bounds(engine_waiting=waiting, engine_running=1), 1.0, LATER)
    assert target.engine_waiting(LATER) == 3


def test_a_gauge_without_an_age_is_as_old_as_its_arrival_and_nan_is_stale():
    target = backend()
    target.bound(bounds(engine_waiting=3), 1.0, LATER)
    assert target.engine_waiting(LATER + 2.9) == 3
    target.bound(bounds(engine_waiting=3, engine_running=0, telemetry_age_s=float("nan")), 1.0, LATER)
    assert target.engine_waiting(LATER) == 0


def test_a_new_breaker_policy_takes_over_a_closed_breaker_only():
    target = backend()
    before = target.breaker
    target.new_breaker(LATER)
    assert target.breaker is not before
    target.breaker.force(BreakerState.OPEN, LATER)
    opened = target.breaker
    target.new_breaker(LATER)
    assert target.breaker is opened
