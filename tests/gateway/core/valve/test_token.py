"""The token valve's decisions: which account binds, for whom, with the numbers of the decision record."""

from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.events import BackendBounds
from gateway.core.policy import BackendPolicy, LimitPolicy, default_tiers
from gateway.core.valve import Ask, TokenValve
from gateway.core.vocabulary import Account

TIERS = default_tiers()  # T_PEND .25 s, TPOT target .135 s
CHUNK = 2048
B = BackendBounds(backend="b")


def valve_of(*, gateways=1, seqs=96, kv=60_000, **limit):
    limit.setdefault("initial_limit", 64)
    backend = BackendPolicy(name="b", pool="chat", max_seqs=seqs, kv_capacity_tokens=kv)
    return TokenValve(LimitPolicy(**limit), backend, TIERS, 0.0, gateways=gateways)


class Engine:
    """Decode steps of a fixed length: every stream of the valve gets a token per step."""

    def __init__(self, valve, step_s=0.02):
        self.valve, self.step_s, self.now, self.count, self.live = valve, step_s, 0.0, 0, []

    def send(self, tier=1, prompt=100, output=100):
        self.count += 1
        self.valve.dispatch(self.count, Ask(tier, prompt, output), self.now)
        self.live.append(self.count)
        return self.count

    def run(self, steps=1, only=None, lagged=False):
        for _ in range(steps):
            self.now += self.step_s
            self.valve.progress([(a, 1) for a in (only or self.live)], self.now, lagged=lagged)

    def end(self, attempt):
        self.live.remove(attempt)
        self.valve.release(attempt, self.now)


def warm(streams=4, **options):
    """A valve whose engine is known: decode step .02 s, prefill cost ~0."""
    valve = valve_of(**options)
    engine = Engine(valve)
    for _ in range(streams):
        engine.send()
    engine.run(120)
    return valve, engine


# -- sequences -------------------------------------------------------------------------------------------------------


def test_seats_bind_the_lower_tiers_before_the_first():
    valve = valve_of(seqs=4, initial_limit=4)
    for attempt in range(3):
        valve.dispatch(attempt, Ask(1, 1, 1), 0.0)
    assert valve.binds(Ask(1, 1, 1), 0.0) is Account.SEQUENCES
    assert valve.binds(Ask(2, 1, 1), 0.0) is Account.SEQUENCES
    assert valve.binds(Ask(0, 1, 1), 0.0) is None
    valve.dispatch(3, Ask(0, 1, 1), 0.0)
    assert valve.binds(Ask(0, 1, 1), 0.0) is Account.SEQUENCES


def test_a_cold_start_begins_at_the_least_limit():
    valve = TokenValve(LimitPolicy(), BackendPolicy(name="b", pool="chat", max_seqs=96), TIERS, 0.0)
    assert valve.limit == 4


def test_a_cold_start_does_not_fill_every_seat_in_its_first_second():
    valve = valve_of(initial_limit=None)
    engine = Engine(valve)
    for _ in range(50):
        while valve.binds(Ask(2, 100, 100), engine.now) is None:
            engine.send(2)
        engine.run()
        if engine.count % 2:
            valve.tick(engine.now)
        valve.tick(engine.now)
    assert valve.in_flight <= 40


def test_an_idle_backend_admits_even_a_huge_prompt():
    valve = valve_of()
    assert valve.binds(Ask(2, 10**6, 10**6), 0.0) is None


def test_no_seat_means_no_ticket_not_even_on_an_idle_backend():
    valve = valve_of()
    valve.bound(replace(B, seats=0), 1.0, 0.0)
    assert valve.binds(Ask(0, 1, 1), 0.0) is Account.SEQUENCES
    assert valve.pressure(1, 0.0) == 1.0


def test_an_unknown_tier_is_held_back_like_the_lowest():
    valve = valve_of()
    valve.dispatch(1, Ask(0, 1000, 1), 0.0)
    assert valve.binds(Ask(9, 500, 1), 0.0) is Account.PREFILL
    assert valve.binds(Ask(0, 500, 1), 0.0) is None


# -- prefill ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tier", "prompt", "account"),
    [(0, 1048, None), (0, 1049, Account.PREFILL), (1, 433, None), (1, 434, Account.PREFILL), (2, 433, None)],
)
def test_a_cold_window_is_one_chunk_and_seven_tenths_of_it_below_the_first_tier(tier, prompt, account):
    valve = valve_of()
    valve.dispatch(1, Ask(0, 1000, 1), 0.0)
    assert valve.binds(Ask(tier, prompt, 1), 0.0) is account


def test_nothing_pending_admits_any_prompt():
    valve, engine = warm(kv=None)
    assert valve.binds(Ask(2, 50_000, 1), engine.now) is None


def test_the_window_grows_with_a_fast_engine():
    """Prefill cost ~0 beside a .02 s step: 2048 / .02 tokens/s, a quarter of a second of them."""
    valve, engine = warm(kv=None)
    for _ in range(200):
        engine.end(engine.send(prompt=2000))
        engine.send(prompt=2000)
        engine.run()
        engine.end(engine.live[-1])
    assert valve.pace.prefill_cost < 1e-6
    engine.send(prompt=1000)
    assert valve.binds(Ask(0, 23_000, 1), engine.now) is None
    assert valve.binds(Ask(0, 26_000, 1), engine.now) is Account.PREFILL
    assert valve.binds(Ask(1, 18_000, 1), engine.now) is Account.PREFILL


def test_a_first_token_frees_its_prompt():
    valve = valve_of()
    valve.dispatch(1, Ask(0, 2000, 1), 0.0)
    valve.dispatch(2, Ask(0, 40, 1), 0.0)
    assert valve.binds(Ask(0, 100, 1), 0.1) is Account.PREFILL
    valve.progress([(1, 1)], 0.3, lagged=False)
    assert valve.gauge(0.3).prefill_tokens == 40
    assert valve.binds(Ask(0, 100, 1), 0.3) is None


def test_a_slow_engine_shrinks_its_window_to_a_tenth_at_most():
    valve, engine = warm(kv=None)
    engine.send(prompt=100)
    calm = valve._window(valve._holds[0], engine.now)
    assert valve._window(valve._holds[0], engine.now + 0.02 * 1.5) == calm
    for late, part in [(1.0, 0.5), (9.0, 0.1)]:
        expected = 0.02 + 100 * valve.pace.prefill_cost
        share = max(0.1, expected / (expected + late))
        assert valve._window(valve._holds[0], engine.now + expected + late) == pytest.approx(calm * share)
        assert share <= part


def test_a_slow_engine_is_seen_within_two_steps():
    """Three times slower: the window is below nine tenths as soon as one step is late by six tenths."""
    valve, engine = warm(kv=None)
    hold = valve._holds[0]
    calm = valve._window(hold, engine.now)
    assert valve._window(hold, engine.now + 1.7 * 0.02) < 0.9 * calm
    engine.step_s = 0.06
    engine.run(2)
    assert valve._window(hold, engine.now) < 0.5 * calm


# -- KV tokens -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tier", "tokens", "account"),
    [
        (0, 54_000 - 40_000, None),
        (0, 54_001 - 40_000, Account.KV),
        (1, 51_300 - 40_000, None),
        (1, 51_301 - 40_000, Account.KV),
    ],
)
def test_kv_tokens_bind_at_their_target_and_below_it_for_the_lower_tiers(tier, tokens, account):
    valve = valve_of()
    valve.dispatch(1, Ask(0, 39_999, 1), 0.0)
    valve.progress([(1, 1)], 0.1, lagged=False)
    assert valve.binds(Ask(tier, tokens - 100, 100), 0.1) is account


def test_without_a_capacity_the_kv_account_is_off():
    valve = valve_of(kv=None)
    valve.dispatch(1, Ask(0, 10**7, 1), 0.0)
    valve.progress([(1, 1)], 0.1, lagged=False)
    assert valve.binds(Ask(1, 10**7, 10**7), 0.1) is None
    assert valve.gauge(0.1).kv_use_ratio is None


def test_kappa_corrects_the_estimate():
    valve = valve_of()
    valve.dispatch(1, Ask(0, 30_000, 1), 0.0)
    valve.progress([(1, 1)], 0.1, lagged=False)
    assert valve.binds(Ask(0, 1000, 100), 0.1) is None
    valve.bound(replace(B, kappa=2.0), 1.0, 0.1)
    assert valve.binds(Ask(0, 1000, 100), 0.1) is Account.KV
    assert valve.gauge(0.1).kv_use_ratio == pytest.approx(2 * 30_001 / (0.9 * 60_000 * 0.95))


def test_generated_tokens_count_and_come_back():
    valve = valve_of()
    valve.dispatch(1, Ask(0, 100, 50), 0.0)
    valve.progress([(1, 3)], 0.1, lagged=False)
    valve.progress([(1, 4), (1, 0)], 0.2, lagged=False)
    assert valve.gauge(0.2).kv_tokens == 107
    valve.release(1, 0.3)
    assert valve.gauge(0.3).kv_tokens == 0


def test_a_negative_prompt_is_no_prompt():
    valve = valve_of()
    valve.dispatch(1, Ask(0, -100, 50), 0.0)
    assert valve.gauge(0.0).kv_tokens == 0


def test_the_kv_target_rises_slowly_up_to_its_ceiling():
    valve = valve_of(kv_target=0.9)
    for second in range(1, 11):
        valve.tick(float(second))
    assert valve.kv_target == pytest.approx(0.93)
    for second in range(11, 100):
        valve.tick(float(second))
    assert valve.kv_target == pytest.approx(0.95)
    valve.bound(replace(B, kv_target=0.8), 1.0, 100.0)
    assert valve.kv_target == pytest.approx(0.8)
    valve.tick(101.0)
    assert valve.kv_target == pytest.approx(0.8)
    valve.bound(replace(B, kv_target=0.85), 1.0, 101.0)
    valve.tick(102.0)
    assert valve.kv_target == pytest.approx(0.803)


def late_valve():
    """A prompt has waited for its first token while the others decode at their usual speed."""
    valve, engine = warm()
    engine.send(prompt=200)
    streams = engine.live[:4]
    while True:
        engine.run(only=streams)
        if valve._is_late(engine.now):
            return valve, engine, streams


def test_a_late_prefill_on_an_engine_that_is_not_slow_lowers_the_kv_target():
    valve, engine, streams = late_valve()
    waited = engine.now - next(iter(valve._pending_since.values()))
    assert waited == pytest.approx(1.2 * 0.25 + 2 * 200 * valve.pace.prefill_cost, abs=0.03)
    valve.tick(engine.now)  # lets the target rise for the time that passed
    before = valve.kv_target
    for _ in range(5):
        engine.run(only=streams)
        valve.tick(engine.now)
    assert valve.kv_target == pytest.approx(before + 0.1 * 0.003, abs=1e-6)  # at most every 250 ms
    engine.run(10, only=streams)
    valve.tick(engine.now)
    assert valve.kv_target < 0.98 * before
    engine.run(400, only=streams)
    for second in range(40):
        engine.run(20, only=streams)
        valve.tick(engine.now + second / 1e6)
    assert valve.kv_target == pytest.approx(0.30, abs=0.02)


def test_a_late_prefill_on_a_slow_engine_says_nothing_about_kv():
    valve, engine, streams = late_valve()
    engine.step_s = 0.1
    engine.run(3, only=streams)
    assert not valve._is_late(engine.now)
    assert not valve._is_late(engine.now + 60.0)  # silence is slowness too


def test_without_a_capacity_lateness_changes_nothing():
    valve, engine, _ = late_valve()
    valve._kv.capacity = None
    before = valve.kv_target
    valve.tick(engine.now)
    assert valve.kv_target >= before


# -- limit -----------------------------------------------------------------------------------------------------------


def test_the_limit_rises_ten_seats_a_second_while_it_is_used():
    valve, engine = warm(streams=8, initial_limit=8)
    valve.tick(engine.now)
    assert valve.limit == 8.5
    for _ in range(20):
        valve.tick(engine.now)
    assert valve.limit == 11  # 8 are fewer than .85 * 11 - 1


def test_the_limit_falls_when_tokens_come_later_than_their_target():
    valve, engine = warm(streams=20)
    engine.step_s = 0.27
    engine.run(200)
    assert valve.pace.tpot.value == pytest.approx(0.27, rel=0.01)
    valve.tick(engine.now)
    assert valve.limit == pytest.approx(14.0, abs=0.2)


def test_between_nine_tenths_and_the_target_the_limit_rests():
    valve, engine = warm(streams=8, initial_limit=8)
    engine.step_s = 0.13
    engine.run(300)
    valve.tick(engine.now)
    assert valve.limit == 8


def test_a_lasting_slow_down_never_becomes_the_new_normal():
    """Ten times slower for fifteen minutes of steps: the limit stays down, also after the step reference gave in."""
    valve, engine = warm(streams=40)
    engine.step_s = 0.2
    highest = 0.0
    for step in range(4500):
        engine.run()
        valve.tick(engine.now)
        while len(engine.live) > valve.limit:
            engine.end(engine.live[0])
        while valve.binds(Ask(0, 100, 100), engine.now) is None and len(engine.live) < 40:
            engine.send(0)
        highest = max(highest, valve.limit) if step > 50 else 0.0
    assert highest <= 8
    engine.step_s = 0.02
    for _ in range(500):
        engine.run()
        valve.tick(engine.now)
        while valve.binds(Ask(0, 100, 100), engine.now) is None and len(engine.live) < 40:
            engine.send(0)
    assert valve.limit >= 36


def test_light_traffic_never_raises_the_limit():
    valve, engine = warm(streams=4, initial_limit=20)
    for _ in range(500):
        engine.run()
        valve.tick(engine.now)
    assert valve.limit == 20


# -- engine steps out of passes --------------------------------------------------------------------------------------


def test_a_step_read_in_two_passes_counts_once():
    valve, engine = warm()
    steps = valve.pace.steps
    for _ in range(50):
        engine.now += 0.02
        valve.progress([(1, 1), (2, 1)], engine.now, lagged=False)
        valve.progress([(3, 1), (4, 1)], engine.now + 0.001, lagged=False)
    assert valve.pace.steps == steps + 50
    assert valve.pace.slow == pytest.approx(1.0)
    assert valve.pace.tpot.value == pytest.approx(0.02)


def test_an_engine_that_became_much_faster_is_believed():
    valve, engine = warm()
    engine.step_s = 0.004
    engine.run(20)
    assert valve.pace.slow < 0.3


def test_lagged_passes_count_tokens_and_teach_nothing():
    valve, engine = warm()
    engine.step_s = 5.0
    before = valve.gauge(engine.now).kv_tokens
    engine.run(5, lagged=True)
    assert valve.gauge(engine.now).kv_tokens == before + 20
    assert valve.pace.slow == pytest.approx(1.0)


def test_an_aborted_prompt_is_no_longer_computed():
    valve = valve_of()
    valve.dispatch(1, Ask(0, 1500, 1), 0.0)
    valve.release(1, 0.1)
    assert (valve.pace.todo, valve.gauge(0.1).prefill_tokens) == (0, 0)


# -- several gateways ------------------------------------------------------------------------------------------------


def test_a_third_of_a_backend_is_a_third_of_every_window_but_the_first_tiers_prefill():
    valve = valve_of(gateways=3)
    valve.dispatch(1, Ask(0, 600, 1), 0.0)
    assert valve.binds(Ask(1, 200, 1), 0.0) is Account.PREFILL
    assert valve.binds(Ask(0, 1400, 1), 0.0) is None
    assert valve.limit == 32


def test_the_kv_reserve_of_the_first_tier_is_not_divided():
    valve = valve_of(gateways=2)
    valve.dispatch(1, Ask(0, 1, 1), 0.0)
    valve.progress([(1, 1)], 0.1, lagged=False)
    first, lower = 0.9 * 60_000 * (0.95 / 2 + 0.05), 0.9 * 60_000 * 0.95 / 2
    assert valve.binds(Ask(0, 2, int(first) - 4), 0.1) is None
    assert valve.binds(Ask(0, 2, int(first) - 3), 0.1) is Account.KV
    assert valve.binds(Ask(1, 2, int(lower) - 4), 0.1) is None
    assert valve.binds(Ask(1, 2, int(lower) - 3), 0.1) is Account.KV


def test_several_gateways_pace_the_prompts_of_the_lower_tiers():
    valve = valve_of(gateways=2, kv=None)
    rate = CHUNK / 0.25
    valve.dispatch(1, Ask(1, 4096, 1), 0.0)  # from now - .25 s: 1 s of half the rate
    valve.progress([(1, 1)], 0.1, lagged=False)
    until = 4096 / (rate / 2) - 0.25
    assert valve.binds(Ask(1, 1, 1), until - 0.01) is Account.PREFILL
    assert valve.binds(Ask(1, 1, 1), until + 0.01) is None
    assert valve.binds(Ask(0, 1, 1), 0.1) is None


def test_the_first_tier_does_not_use_up_the_pace():
    valve = valve_of(gateways=2, kv=None)
    valve.dispatch(1, Ask(0, 4096, 1), 0.0)
    valve.progress([(1, 1)], 0.1, lagged=False)
    assert valve.binds(Ask(1, 1, 1), 0.1) is None


def test_alone_nothing_is_paced():
    valve = valve_of(kv=None)
    valve.dispatch(1, Ask(1, 9000, 1), 0.0)
    valve.progress([(1, 1)], 0.1, lagged=False)
    assert valve.binds(Ask(1, 9000, 1), 0.1) is None


def test_a_gateway_without_a_share_still_has_finite_figures():
    valve = valve_of()
    valve.bound(B, 0.0, 0.0)
    valve.dispatch(1, Ask(1, 100, 1), 0.0)
    assert valve.pressure(1, 0.1) == 1.0
    assert 0.0 <= valve.burden(0.1) < inf


# -- choice and shown figures ----------------------------------------------------------------------------------------


def test_the_burden_is_prefill_ahead_and_the_use_of_the_cache():
    valve = valve_of()
    valve.dispatch(1, Ask(0, 2048, 1), 0.0)
    assert valve.burden(0.0) == pytest.approx(0.25 * 2048 / (CHUNK / 0.25 * 0.25) + 0.3 * 2048 / 60_000)
    seats = valve_of(kv=None)
    seats.dispatch(1, Ask(0, 2048, 1), 0.0)
    assert seats.burden(0.0) == pytest.approx(0.25 + 0.3 / 96)


def test_a_slow_backend_is_the_heavier_burden():
    valve, engine = warm()
    engine.send(prompt=1000)
    assert valve.burden(engine.now + 5.0) > 2 * valve.burden(engine.now)


def test_pressure_is_the_largest_use():
    valve = valve_of(seqs=8, initial_limit=8)
    valve.dispatch(1, Ask(0, 717, 1), 0.0)
    assert valve.pressure(1, 0.0) == pytest.approx(717 / (2048 * 0.7))
    assert valve.pressure(0, 0.0) == pytest.approx(717 / 2048)
    valve.progress([(1, 1)], 0.1, lagged=False)
    assert valve.pressure(1, 0.1) == pytest.approx(1 / 7)
    valve.dispatch(2, Ask(0, 10**6, 1), 0.2)
    assert valve.pressure(1, 0.2) == 1.0


def test_the_gauge_names_what_binds():
    valve = valve_of()
    assert valve.gauge(0.0).binding is None
    valve.dispatch(1, Ask(1, 1000, 100), 0.0)
    gauge = valve.gauge(0.0)
    assert gauge.binding is Account.PREFILL
    assert (gauge.limit, gauge.reserved_seats, gauge.in_flight, gauge.prefill_tokens) == (64, 4, 1, 1000)
    assert gauge.prefill_ratio == pytest.approx(1000 / (2048 * 0.7))
    assert gauge.kv_use_ratio == pytest.approx(1000 / 51_300)
    assert gauge.sequences_ratio == pytest.approx(1 / 60)
    assert (gauge.slow, gauge.tpot_s, gauge.prefill_window_tokens) == (1.0, None, 2048)


# -- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nonsense", [nan, inf, -inf, -1, 0])
def test_nonsense_in_bounds_changes_nothing(nonsense):
    valve = valve_of()
    before = (valve.limit, valve.kv_target, valve._kv.capacity, valve._kv.kappa)
    valve.bound(replace(B, kv_target=nonsense, kappa=nonsense, kv_capacity_tokens=nonsense), 1.0, 0.0)
    assert (valve.limit, valve.kv_target, valve._kv.capacity, valve._kv.kappa) == before


def test_extreme_bounds_are_clamped():
    valve = valve_of()
    valve.bound(replace(B, kv_target=0.001, kappa=99.0, kv_capacity_tokens=10**12), 1.0, 0.0)
    assert (valve.kv_target, valve._kv.kappa, valve._kv.capacity) == (0.30, 3.0, 10**12)
    valve.bound(replace(B, kv_target=44.0, kappa=1e-9), 1.0, 0.0)
    for second in range(1000):
        valve.tick(float(second))
    assert (valve.kv_target, valve._kv.kappa) == (0.95, 0.3)


def test_a_capacity_below_one_token_is_no_capacity():
    valve = valve_of()
    valve.bound(replace(B, kv_capacity_tokens=0.5), 1.0, 0.0)
    assert valve.gauge(0.0).kv_use_ratio is None


NUMBER = st.one_of(st.none(), st.floats(), st.integers())
BOUNDS = st.builds(
    BackendBounds,
    backend=st.just("b"),
    limit_min=NUMBER,
    limit_max=NUMBER,
    seats=NUMBER,
    kv_target=NUMBER,
    kappa=NUMBER,
    kv_capacity_tokens=NUMBER,
    engine_running=NUMBER,
    engine_waiting=NUMBER,
    kv_ratio=NUMBER,
    telemetry_age_s=NUMBER,
)
STEPS = st.lists(
    st.tuples(
        st.floats(0, 3), st.one_of(BOUNDS, st.integers(0, 3000)), st.one_of(st.floats(), st.floats(0, 1))
    ),
    max_size=60,
)


@given(STEPS)
def test_nothing_moves_the_valve_out_of_its_bounds(steps):
    valve, now, live = valve_of(), 0.0, []
    for attempt, (gap, what, share) in enumerate(steps):
        now += gap
        if isinstance(what, BackendBounds):
            valve.bound(what, share, now)
        elif valve.binds(Ask(attempt % 3, what, 100), now) is None:
            valve.dispatch(attempt, Ask(attempt % 3, what, 100), now)
            live.append(attempt)
        valve.progress([(a, 1) for a in live[-5:]], now, lagged=False)
        if len(live) > 8:
            valve.release(live.pop(0), now)
        valve.tick(now)
        assert 0 <= valve.limit <= 256
        assert 0.30 <= valve.kv_target <= 0.95
        assert all(0.0 <= valve.pressure(tier, now) <= 1.0 for tier in range(3))
        assert 0.0 <= valve.burden(now) < inf
