import msgspec
import pytest

from control.engines.base import Telemetry
from control.frames.histories import Histories
from control.observations import Observation, Rates
from control.tuning import Tuner, Version
from gateway.contract.bounds import BackendBound, Bounds
from tests.fakes.published import a_snapshot
from tests.fakes.reports import a_gauge, a_report

NOW = 1000.0
V = Version(3, 7)


def histories(*demand: float, now: float = NOW, **more: object) -> Histories:
    result = Histories()
    for number, cost in enumerate(demand, 1):
        result.add([a_report(f"g{number}", backends=(a_gauge(cost_per_s=cost, **more),))], now)
    return result


def seen(told: Telemetry, age_s: float = 0.5, rates: Rates | None = None) -> dict[str, Observation]:
    return {"b1": Observation(backend="b1", telemetry=told, scraped_at=NOW - age_s, rates=rates or Rates())}


def only(bounds: Bounds) -> BackendBound:
    (row,) = bounds.backends
    return row


def test_the_engines_own_seats_bound_the_limit() -> None:
    row = only(Tuner().step(a_snapshot(), histories(1.0), seen(Telemetry(running=1, max_seqs=8)), NOW, V))
    assert (row.limit_min, row.limit_max) == (4, 8)


def test_an_engine_with_fewer_seats_than_the_smallest_limit_lowers_both() -> None:
    row = only(Tuner().step(a_snapshot(), histories(1.0), seen(Telemetry(running=1, max_seqs=2)), NOW, V))
    assert (row.limit_min, row.limit_max) == (2, 2)


def test_an_engine_may_not_raise_the_limit_above_the_policy() -> None:
    row = only(
        Tuner().step(a_snapshot(), histories(1.0), seen(Telemetry(running=1, max_seqs=100_000)), NOW, V)
    )
    assert row.limit_max == 256


def test_without_telemetry_bounds_come_from_the_policy_and_nothing_is_claimed() -> None:
    bounds = Tuner().step(a_snapshot(), histories(1.0), {}, NOW, V)
    row = only(bounds)
    assert (bounds.epoch, bounds.seq, row.limit_max, row.kappa, row.kv_target) == (3, 7, 256, None, None)
    assert (row.engine_running, row.engine_waiting, row.kv_ratio, row.scraped_at) == (None,) * 4


def test_stale_telemetry_is_not_passed_on_as_if_it_were_fresh() -> None:
    row = only(
        Tuner().step(a_snapshot(), histories(1.0), seen(Telemetry(running=3, waiting=9), age_s=10.0), NOW, V)
    )
    assert (row.engine_running, row.engine_waiting) == (None, None)
    assert row.scraped_at == NOW - 10.0


def test_preemptions_lower_the_kv_target_step_by_step() -> None:
    tuner = Tuner()
    told = seen(
        Telemetry(running=1, kv_ratio=0.9, kv_capacity_tokens=1000), rates=Rates(preemptions_per_s=5.0)
    )
    targets = [only(tuner.step(a_snapshot(), histories(1.0), told, NOW + n, V)).kv_target for n in range(3)]
    assert targets == pytest.approx([0.9, 0.9 * 0.96, 0.9 * 0.96**2])


def test_gateways_share_by_demand_and_their_seats_sum_to_the_limit() -> None:
    tuner = Tuner()
    for second in range(60):
        bounds = tuner.step(
            a_snapshot(),
            histories(30.0, 10.0, now=NOW + second),
            seen(Telemetry(max_seqs=8)),
            NOW + second,
            V,
        )
    shares = {g.gateway: g.share for g in bounds.gateways}
    assert shares == pytest.approx({"g1": 0.7, "g2": 0.3}, abs=0.01)
    assert sum(g.seats["b1"] for g in bounds.gateways) == 8


def test_a_dead_gateways_share_returns_after_its_heartbeat_and_a_second_of_drain() -> None:
    tuner, known = Tuner(), histories(10.0, 10.0)
    tuner.step(a_snapshot(), known, {}, NOW, V)
    known.add([a_report("g1", seq=2, backends=(a_gauge(cost_per_s=10.0),))], NOW + 3.9)
    assert len(tuner.step(a_snapshot(), known, {}, NOW + 3.9, V).gateways) == 2
    known.add([a_report("g1", seq=3, backends=(a_gauge(cost_per_s=10.0),))], NOW + 4.1)
    (alone,) = tuner.step(a_snapshot(), known, {}, NOW + 4.1, V).gateways
    assert (alone.gateway, alone.share) == ("g1", 1.0)


def test_a_draining_gateway_gets_no_share() -> None:
    known = histories(10.0)
    known.add([a_report("g2", draining=True)], NOW)
    assert [g.gateway for g in Tuner().step(a_snapshot(), known, {}, NOW, V).gateways] == ["g1"]


def test_a_backend_that_was_removed_is_forgotten() -> None:
    tuner = Tuner()
    tuner.step(a_snapshot(), histories(1.0), {}, NOW, V)
    bounds = tuner.step(msgspec.structs.replace(a_snapshot(), backends=()), histories(1.0), {}, NOW + 1, V)
    assert bounds.backends == ()
    assert tuner.calibrations == {}
