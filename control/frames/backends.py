"""The backends' part of a frame: what all gateways carry there, what the engine tells, what binds."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from control.frames.histories import History
from control.observations import Observation
from gateway.contract.frame import BackendFrame, BreakerFrame
from gateway.contract.report import BackendGauges
from gateway.contract.snapshot import BackendSpec, Snapshot
from gateway.core.vocabulary import BreakerState

# From the state that says most about trouble to the one that says least.
GRAVITY: Final = (
    BreakerState.FORCED_OPEN,
    BreakerState.OPEN,
    BreakerState.HALF_OPEN,
    BreakerState.FORCED_CLOSED,
    BreakerState.CLOSED,
)
FORCED: Final = (BreakerState.FORCED_OPEN, BreakerState.FORCED_CLOSED)


def backend_frames(
    snapshot: Snapshot, live: Mapping[str, History], observations: Mapping[str, Observation], now: float
) -> list[BackendFrame]:
    """All backends, those in trouble and those with most traffic first."""
    gauges: dict[str, list[BackendGauges]] = {}
    for history in live.values():
        for gauge in history.newest.backends:
            gauges.setdefault(gauge.backend, []).append(gauge)
    tiers = len(snapshot.tiers)
    frames = [
        _backend(spec, gauges.get(spec.policy.name, []), observations.get(spec.policy.name), now, tiers)
        for spec in snapshot.backends
        if spec.policy.enabled
    ]
    return sorted(frames, key=lambda f: (f.breaker.state == BreakerState.CLOSED, -f.in_flight, f.backend))


def _backend(
    spec: BackendSpec, gauges: Sequence[BackendGauges], seen: Observation | None, now: float, tiers: int
) -> BackendFrame:
    fresh = seen.telemetry if seen and seen.is_fresh(now) else None
    busiest = max(
        gauges, key=lambda g: max(g.prefill_ratio, g.kv_use_ratio or 0.0, g.sequences_ratio), default=None
    )
    return BackendFrame(
        backend=spec.policy.name,
        pool=spec.policy.pool,
        engine=spec.engine,
        limit=sum(g.limit for g in gauges),
        limit_max=(fresh.max_seqs if fresh else None) or spec.policy.max_seqs,
        reserved_seats=sum(g.reserved_seats for g in gauges),
        in_flight=sum(g.in_flight for g in gauges),
        in_flight_by_tier=tuple(_sum_at(gauges, rank) for rank in range(tiers)),
        engine_running=fresh.running if fresh else None,
        engine_waiting=fresh.waiting if fresh else None,
        kv_ratio=fresh.kv_ratio if fresh else None,
        kv_source=fresh.kv_source if fresh else None,
        prefill_ratio=_worst(g.prefill_ratio for g in gauges),
        kv_use_ratio=_worst_known(g.kv_use_ratio for g in gauges),
        sequences_ratio=_worst(g.sequences_ratio for g in gauges),
        binding=busiest.binding if busiest else None,
        breaker=_breaker(gauges),
        telemetry_age_s=seen.age_s(now) if seen else None,
        preemptions_per_s=seen.rates.preemptions_per_s if seen and fresh else None,
        slow=max((g.slow for g in gauges), default=1.0),
        tpot_s=_worst_known(g.tpot_s for g in gauges),
    )


def _sum_at(gauges: Iterable[BackendGauges], rank: int) -> int:
    return sum(g.in_flight_by_tier[rank] for g in gauges if rank < len(g.in_flight_by_tier))


def _worst(values: Iterable[float]) -> float:
    return max(values, default=0.0)


def _worst_known(values: Iterable[float | None]) -> float | None:
    return max((v for v in values if v is not None), default=None)


def _breaker(gauges: Sequence[BackendGauges]) -> BreakerFrame:
    """The gravest state that any gateway reports; before any report: closed."""
    gravest = min(gauges, key=lambda g: GRAVITY.index(g.breaker), default=None)
    if gravest is None:
        return BreakerFrame(state=BreakerState.CLOSED.value, manual=False, until=None)
    return BreakerFrame(
        state=gravest.breaker.value, manual=gravest.breaker in FORCED, until=gravest.breaker_until
    )
