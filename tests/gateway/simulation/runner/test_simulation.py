"""Callers, gates and engines on one clock: nothing is lost, nothing is counted twice, nothing depends on chance."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from gateway.simulation.outer import OuterSpec
from gateway.simulation.profiles import GPU, LLAMA4
from gateway.simulation.runner import EngineFault, Setup, Simulation, run
from gateway.simulation.scenarios import policies
from gateway.simulation.traffic import Manners, Phase, rates

SHORT_S = 12.0


def setup(factor=2.0, **changes):
    given = {
        "profile": GPU,
        "policy": policies.valve(GPU, gateways=changes.get("gateways", 1)),
        "phases": (Phase(0.0, rates(GPU, factor)),),
        "until_s": SHORT_S,
        "seed": 5,
    }
    return Setup(**{**given, **changes})


def told(record):
    return [
        (request.number, request.attempts, request.decided_at, request.ttft_s, request.tpot_s)
        for request in record.requests
    ]


def test_the_same_setup_gives_the_same_record():
    first, second = run(setup(10.0)), run(setup(10.0))
    assert told(first) == told(second)
    assert first.totals == second.totals


def test_another_seed_gives_another_record():
    assert told(run(setup())) != told(run(setup(seed=6)))


def test_a_record_does_not_depend_on_the_hash_seed():
    program = (
        "from tests.gateway.simulation.runner.test_simulation import run, setup, told;"
        "import hashlib; print(hashlib.sha256(repr(told(run(setup(5.0, gateways=3)))).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(  # noqa: S603  # our own program
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "42")
    }
    assert len(digests) == 1


def test_every_gate_is_empty_once_all_callers_are_gone():
    phases = (Phase(0.0, rates(GPU, 4.0)), Phase(3.0, (0.0, 0.0, 0.0)))
    simulation = Simulation(setup(phases=phases, until_s=200.0, gateways=2))
    record = simulation.run()
    assert all(request.decided_at is not None for request in record.requests)
    for gate in simulation.gates:
        view = gate.view(200.0)
        assert view.tickets == 0
        assert view.ledger_imbalance == 0
        assert all(backend.in_flight == 0 and backend.kv_tokens == 0 for backend in view.backends)
    assert all(engine.is_idle for engine in simulation.engines)


def test_ttft_counts_from_the_attempt_that_succeeded():
    record = run(setup(10.0, until_s=30.0))
    late = [request for request in record.requests if request.is_answered and request.attempts > 1]
    assert late, "at ten times the load some are answered at a later attempt"
    for request in late:
        assert request.decided_at is not None
        assert request.ttft_s is not None
        assert request.ttft_s < request.decided_at - request.arrived_at - request.tpot_s * (
            request.output_tokens - 1
        )


def test_callers_without_patience_abandon_and_the_engine_stops():
    hasty = replace(GPU, tiers=tuple(replace(tier, total_patience_s=0.5) for tier in GPU.tiers))
    record = run(setup(profile=hasty, until_s=30.0))
    assert record.wasted
    assert record.totals[-1].finished < len(record.requests)
    given_up = [request for request in record.requests if request.failures > 2]
    assert given_up
    assert all(request.decided_at is not None and not request.is_answered for request in given_up)


def test_a_lost_engine_fails_what_it_had_and_refuses_until_it_is_back():
    faults = (EngineFault(4.0, 0, is_lost=True), EngineFault(8.0, 0))
    simulation = Simulation(setup(1.0, faults=faults, until_s=40.0))
    record = simulation.run()
    assert any(request.failures for request in record.requests)
    totals = [sample.generated_tokens for sample in record.totals]
    assert totals == sorted(totals), "what was counted before the loss is kept"
    assert simulation.engines[0].counters.generated_tokens > 0, "it works again"


def test_a_slow_engine_is_slow_only_while_the_fault_lasts():
    faults = (EngineFault(2.0, 0, 3.0), EngineFault(4.0, 0))
    simulation = Simulation(setup(faults=faults))
    simulation.run()
    assert simulation.engines[0].slow_factor == 1.0


def test_in_a_storm_callers_come_back_more_often():
    usual, storm = run(setup(10.0)), run(setup(10.0, manners=Manners(is_storm=True)))
    assert sum(request.attempts for request in storm.requests) > 2 * sum(
        request.attempts for request in usual.requests
    )


def test_without_protection_engines_queue():
    guarded, bare = run(setup(10.0)), run(setup(10.0, policy=policies.unprotected(GPU), outer=None))
    assert guarded.engine_waiting_max == 0
    assert bare.engine_waiting_max > 50


def test_a_closed_loop_has_no_more_in_flight_than_callers():
    alone = replace(LLAMA4, engines=1)
    quiet = (Phase(0.0, (0.0, 0.0, 0.0)),)
    simulation = Simulation(
        setup(profile=alone, policy=policies.valve(alone), phases=quiet, callers=(1, 1, 1), until_s=60.0)
    )
    record = simulation.run()
    assert len(record.requests) > 10
    open_at_the_end = [request for request in record.requests if request.decided_at is None]
    assert len(open_at_the_end) <= 3
    numbers = [request.number for request in record.requests]
    assert numbers == list(range(len(numbers)))


def test_the_window_is_sampled_as_often_as_asked():
    record = run(setup(window_sample_s=0.5))
    assert len(record.windows) == pytest.approx(SHORT_S / 0.5, abs=1)
    assert all(len(windows) == 2 and min(windows) > 0 for _, windows in record.windows)


def test_three_gateways_share_the_load():
    simulation = Simulation(setup(10.0, gateways=3, outer=OuterSpec()))
    simulation.run()
    for gate in simulation.gates:
        assert sum(backend.demand_cost for backend in gate.view(SHORT_S).backends) > 0


def test_one_sample_of_the_totals_per_second():
    record = run(setup())
    assert [sample.at_s for sample in record.totals[:4]] == [0.0, 1.0, 2.0, 3.0]
    assert record.totals[-1].at_s == SHORT_S
