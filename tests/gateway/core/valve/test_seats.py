"""A limit, enforced: who gets a seat, and which attempts are samples."""

from gateway.core.events import BackendBounds
from gateway.core.policy import BackendPolicy, LimitPolicy
from gateway.core.valve import Ask, SeatValve
from gateway.core.vocabulary import Account, LimitAlgorithm

P0, P2 = Ask(0, 100, 50), Ask(2, 100, 50)


def valve_of(algorithm=LimitAlgorithm.FIXED, **limit):
    policy = LimitPolicy(algorithm=algorithm, **limit)
    return SeatValve(policy, BackendPolicy(name="b", pool="chat", max_seqs=64))


def fill(valve, count, now=0.0, first=0):
    for attempt in range(first, first + count):
        valve.dispatch(attempt, P2, now)


def test_a_fixed_limit_has_no_reserve_unless_one_is_set():
    valve = valve_of(max_limit=4)
    fill(valve, 3)
    assert valve.binds(P2, 0.0) is None
    fill(valve, 1, first=3)
    assert valve.binds(P0, 0.0) is Account.SEQUENCES
    assert valve.gauge(0.0).binding is Account.SEQUENCES


def test_reserved_seats_are_for_the_first_tier():
    valve = valve_of(max_limit=4, reserved_seats=2)
    fill(valve, 2)
    assert valve.binds(P2, 0.0) is Account.SEQUENCES
    assert valve.binds(P0, 0.0) is None
    assert (valve.pressure(0, 0.0), valve.pressure(2, 0.0)) == (0.5, 1.0)
    assert valve.gauge(0.0).reserved_seats == 2


def test_a_first_token_is_the_sample():
    valve = valve_of(LimitAlgorithm.VEGAS)
    fill(valve, 2)
    valve.progress([(0, 1), (1, 1)], 0.1, lagged=False)
    assert valve.limit == 5  # attempt 0 went out to an idle backend, attempt 1 at half use
    valve.progress([(0, 1), (1, 1)], 0.2, lagged=False)
    assert valve.limit == 5


def test_light_traffic_alone_never_raises_the_limit():
    valve = valve_of(LimitAlgorithm.VEGAS, initial_limit=20)
    for attempt in range(100):
        fill(valve, 1, float(attempt), first=attempt)
        valve.progress([(attempt, 1)], attempt + 0.1, lagged=False)
        valve.release(attempt, attempt + 0.2)
    assert valve.limit == 20


def test_a_lagged_sample_is_not_learnt_from():
    valve = valve_of(LimitAlgorithm.VEGAS, initial_limit=4)
    fill(valve, 4)
    valve.progress([(0, 1)], 0.1, lagged=False)
    valve.progress([(1, 1), (2, 1)], 9.0, lagged=True)
    assert valve.limit == 4
    valve.progress([(3, 1)], 0.1, lagged=False)
    assert valve.limit == 5


def test_an_abandoned_attempt_is_no_sample():
    valve = valve_of(LimitAlgorithm.VEGAS)
    fill(valve, 3)
    valve.release(2, 60.0)
    assert valve.limit == 4


def test_aimd_sees_the_gauges_that_come_with_the_bounds():
    valve = valve_of(LimitAlgorithm.AIMD, initial_limit=20)
    fill(valve, 20)
    valve.bound(BackendBounds(backend="b", engine_waiting=4, telemetry_age_s=0.5), 1.0, 1.0)
    assert valve.limit == 17


def test_bounds_move_the_limit_at_once_downwards_and_later_upwards():
    valve = valve_of()
    assert valve.limit == 64
    valve.bound(BackendBounds(backend="b", seats=10), 1.0, 1.0)
    assert valve.limit == 10
    valve.bound(BackendBounds(backend="b", seats=30), 1.0, 2.0)
    valve.tick(2.5)
    assert valve.limit == 10
    valve.tick(3.0)
    assert valve.limit == 30


def test_the_emptier_backend_is_the_lighter_burden():
    busy, idle = valve_of(max_limit=8), valve_of(max_limit=8)
    fill(busy, 4)
    assert busy.burden(0.0) == 0.15
    assert idle.burden(0.0) == 0.0


def test_what_is_pending_is_shown():
    valve = valve_of()
    fill(valve, 2)
    assert valve.gauge(0.0).prefill_tokens == 200
    valve.progress([(0, 1)], 0.1, lagged=False)
    assert valve.gauge(0.1).prefill_tokens == 100
    assert valve.gauge(0.1).kv_use_ratio is None
