"""The slow loop in the simulation: what it tells gateways, from fresh, late and missing gauges."""

import pytest

from gateway.core.gate import Gate
from gateway.simulation.model import Engine
from gateway.simulation.outer import Gauges, Outer, OuterSpec
from gateway.simulation.profiles import GPU, LLAMA4
from gateway.simulation.scenarios import policies

NAMES = ("b0", "b1")


class FakeDice:
    def __call__(self):
        return 0.5


def gates(count, profile=GPU):
    policy = policies.valve(profile, gateways=count)
    return [Gate(policy, now=0.0, dice=FakeDice()) for _ in range(count)]


def views(count, profile=GPU):
    return [gate.view(0.0) for gate in gates(count, profile)]


def busy_engines(profile=GPU):
    engines = [Engine(profile.engine, seed) for seed in range(2)]
    for number in range(20):
        engines[0].submit(str(number), 1000, 100)
    for _ in range(12):
        engines[0].start_step()
        engines[0].finish_step()
    return engines


def test_gateways_without_demand_share_evenly():
    outer = Outer(OuterSpec(), busy_engines(), NAMES, 3)
    bounds = outer.tick(views(3), 1.0)
    assert [bound.share for bound in bounds] == pytest.approx([1 / 3] * 3)
    for index in range(2):
        assert sum(bound.backends[index].seats or 0 for bound in bounds) == GPU.engine.seats


def test_shares_never_sum_to_more_than_one_while_they_move():
    outer = Outer(OuterSpec(), busy_engines(), NAMES, 2)
    calm = views(2)
    for second in range(1, 20):
        greedy = outer._dispatched["g0"] + 10_000.0 if second > 5 else 0.0
        outer._demand["g0"] += greedy / 100
        bounds = outer.tick(calm, float(second))
        assert sum(bound.share for bound in bounds) <= 1.0 + 1e-9


def test_fresh_gauges_are_those_of_the_engines():
    engines = busy_engines()
    bounds = Outer(OuterSpec(), engines, NAMES, 1).tick(views(1), 1.0)
    told = bounds[0].backends[0]
    assert told.engine_running == len(engines[0].running) == 20
    assert told.kv_ratio == engines[0].kv_ratio > 0
    assert told.kv_capacity_tokens == GPU.engine.kv_tokens
    assert told.limit_max == GPU.engine.seats


def test_late_gauges_are_four_seconds_old_and_look_fresh():
    engines = busy_engines()
    outer = Outer(OuterSpec(gauges=Gauges.LATE), engines, NAMES, 1)
    seen = [outer.tick(views(1), 1.0)[0].backends[0]]
    running = len(engines[0].running)
    engines[0].crash()
    seen += [outer.tick(views(1), float(second))[0].backends[0] for second in range(2, 7)]
    assert [bound.engine_running for bound in seen] == [None] * 4 + [running, 0]
    assert seen[4].telemetry_age_s == 0.0


def test_without_gauges_nothing_is_told_of_the_engines():
    bounds = Outer(OuterSpec(gauges=Gauges.NONE), busy_engines(), NAMES, 1).tick(views(1), 1.0)
    told = bounds[0].backends[0]
    assert (told.engine_running, told.kv_ratio, told.telemetry_age_s) == (None, None, None)
    assert (told.kappa, told.kv_target) == (None, None), "the gateways go on with their own"


def test_preemptions_lower_the_target():
    engines = busy_engines()
    outer = Outer(OuterSpec(), engines, NAMES, 1)
    calm = outer.tick(views(1), 1.0)[0].backends[0].kv_target
    engines[0].counters.preemptions += 5
    assert (outer.tick(views(1), 2.0)[0].backends[0].kv_target or 1.0) < (calm or 0.0)


def test_an_engine_with_a_context_per_seat_has_no_capacity():
    engines = [Engine(LLAMA4.engine), Engine(LLAMA4.engine)]
    told = Outer(OuterSpec(), engines, NAMES, 1).tick(views(1, LLAMA4), 1.0)[0].backends[0]
    assert told.kv_capacity_tokens is None
    assert told.seats == 4


def test_it_lives_until_it_dies():
    outer = Outer(OuterSpec(dies_at_s=45.0), busy_engines(), NAMES, 1)
    assert outer.is_alive(44.0)
    assert not outer.is_alive(45.0)
    assert Outer(OuterSpec(), busy_engines(), NAMES, 1).is_alive(1e9)
