"""One frame from everything: reports, observations, snapshot, overrides. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from control.frames.backends import backend_frames
from control.frames.histories import (
    HISTOGRAM_WINDOW_S,
    RATE_WINDOW_S,
    Histories,
    History,
    add_buckets,
    per_s,
    percentile,
    subtract_buckets,
)
from control.observations import Observation
from gateway.contract.bounds import Bounds
from gateway.contract.frame import (
    MAX_BACKENDS,
    MAX_TENANTS,
    ControlFrame,
    EventFrame,
    Frame,
    GatewayFrame,
    OverrideFrame,
    TenantFrame,
    TierFrame,
)
from gateway.contract.overrides import OverrideSpec
from gateway.contract.report import TPOT_BOUNDS_S, TTFT_BOUNDS_S, GatewayReport, TierSeries, TrafficCount
from gateway.contract.snapshot import Snapshot
from gateway.core.policy import TierPolicy
from gateway.core.vocabulary import Outcome, ShedReason

MAX_FRAME_BYTES: Final = 16 * 1024
REPORT_TTL_S: Final = 3.0
REASON: Final = "shed:"  # prefix of a tenant's rates by reason
SHED: Final = frozenset({Outcome.REFUSED.value, Outcome.EVICTED.value})
UNAVAILABLE: Final = frozenset(
    {
        ShedReason.BREAKER_OPEN.value,
        ShedReason.NO_BACKEND.value,
        ShedReason.GATEWAY_OVERLOAD.value,
        ShedReason.DRAINING.value,
    }
)  # answered with 503; every other reason with 429


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What a frame is made of."""

    now: float  # epoch seconds
    snapshot: Snapshot
    histories: Histories
    observations: Mapping[str, Observation]
    bounds: Bounds
    overrides: Sequence[OverrideSpec]
    events: Sequence[EventFrame]
    control: ControlFrame
    incidents_open: int


def merge(sources: Sources) -> Frame:
    """The frame of this second, at most MAX_FRAME_BYTES."""
    live = sources.histories.live(sources.now, REPORT_TTL_S)
    backends = backend_frames(sources.snapshot, live, sources.observations, sources.now)
    frame = Frame(
        at=sources.now,
        tiers=tuple(_tiers(sources.snapshot, live.values())),
        backends=tuple(backends[:MAX_BACKENDS]),
        backends_left_out=max(0, len(backends) - MAX_BACKENDS),
        tenants=tuple(_tenants(live.values())[:MAX_TENANTS]),
        gateways=tuple(_gateways(sources)),
        control=sources.control,
        overrides=tuple(_override(each) for each in sources.overrides),
        events=tuple(sources.events),
        incidents_open=sources.incidents_open,
    )
    return _fit(frame)


def _fit(frame: Frame) -> Frame:
    """Leave out what matters least until the frame is small enough."""
    while len(msgspec.json.encode(frame)) > MAX_FRAME_BYTES:
        if frame.events:
            frame = msgspec.structs.replace(frame, events=frame.events[: len(frame.events) // 2])
        elif len(frame.tenants) > 1:
            frame = msgspec.structs.replace(frame, tenants=frame.tenants[: len(frame.tenants) // 2])
        elif len(frame.backends) > 1:
            kept = len(frame.backends) // 2
            left_out = frame.backends_left_out + len(frame.backends) - kept
            frame = msgspec.structs.replace(frame, backends=frame.backends[:kept], backends_left_out=left_out)
        else:
            break
    return frame


def _tiers(snapshot: Snapshot, live: Iterable[History]) -> Iterable[TierFrame]:
    histories = list(live)
    for pool in snapshot.pools:
        for tier in snapshot.tiers:
            yield _tier(pool.policy.name, tier.policy, histories)


def _tier(pool: str, tier: TierPolicy, histories: Sequence[History]) -> TierFrame:
    totals: dict[str, float] = defaultdict(float)
    shed: dict[str, float] = defaultdict(float)
    ttft: list[list[int]] = []
    tpot: list[list[int]] = []
    for history in histories:
        series = _series(history.newest, pool, tier.rank)
        if series is None:
            continue
        _add_rates(totals, history, pool, tier.rank, series)
        _add_shed(shed, history, pool, tier.rank)
        old = _series(history.before(HISTOGRAM_WINDOW_S), pool, tier.rank)
        ttft.append(subtract_buckets(series.ttft, old.ttft if old else ()))
        tpot.append(subtract_buckets(series.tpot, old.tpot if old else ()))
    ttft_sum = add_buckets(ttft, len(TTFT_BOUNDS_S) + 1)
    tpot_sum = add_buckets(tpot, len(TPOT_BOUNDS_S) + 1)
    budget = tier.queue.delay_budget_s
    return TierFrame(
        pool=pool,
        tier=tier.rank,
        name=tier.name,
        offered_per_s=totals["offered"],
        admitted_per_s=totals["admitted"],
        shed_per_s=dict(shed),
        refused_429_per_s=sum(rate for reason, rate in shed.items() if reason not in UNAVAILABLE),
        waiting=int(totals["waiting"]),
        max_size=tier.queue.max_size,
        delay_budget_s=tier.delay_budget_factor * tier.ttft_objective_s if budget is None else budget,
        oldest_wait_s=max((_oldest(h, pool, tier.rank) for h in histories), default=0.0),
        in_flight=int(sum(_in_flight(h.newest, pool, tier.rank) for h in histories)),
        ttft_p50_s=percentile(ttft_sum, TTFT_BOUNDS_S, 0.5),
        ttft_p95_s=percentile(ttft_sum, TTFT_BOUNDS_S, 0.95),
        tpot_p50_s=percentile(tpot_sum, TPOT_BOUNDS_S, 0.5),
        tpot_p95_s=percentile(tpot_sum, TPOT_BOUNDS_S, 0.95),
        ttft_objective_s=tier.ttft_objective_s,
        tpot_objective_s=tier.tpot_objective_s,
        goodput_tokens_per_s=totals["goodput"],
        retries_per_s=totals["retries"],
        pressure=totals["pressure"],
    )


def _add_rates(totals: dict[str, float], history: History, pool: str, rank: int, new: TierSeries) -> None:
    before = history.before(RATE_WINDOW_S)
    elapsed = history.newest.sent_at - before.sent_at
    old = _series(before, pool, rank)
    totals["offered"] += per_s(new.offered, old.offered if old else 0, elapsed)
    totals["admitted"] += per_s(new.admitted, old.admitted if old else 0, elapsed)
    totals["goodput"] += per_s(new.goodput_tokens, old.goodput_tokens if old else 0, elapsed)
    totals["retries"] += per_s(new.retries, old.retries if old else 0, elapsed)
    totals["waiting"] += new.waiting
    totals["pressure"] = max(totals["pressure"], new.pressure)


def _add_shed(shed: dict[str, float], history: History, pool: str, rank: int) -> None:
    before = history.before(RATE_WINDOW_S)
    elapsed = history.newest.sent_at - before.sent_at
    old = _shed_counts(before.traffic, pool, rank)
    for reason, count in _shed_counts(history.newest.traffic, pool, rank).items():
        rate = per_s(count, old.get(reason, 0), elapsed)
        if rate > 0:
            shed[reason] += rate


def _shed_counts(traffic: Iterable[TrafficCount], pool: str, rank: int) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for row in traffic:
        if row.pool == pool and row.tier == rank and row.outcome in SHED:
            counts[row.reason] += row.count
    return counts


def _series(report: GatewayReport, pool: str, rank: int) -> TierSeries | None:
    return next((s for s in report.tiers if s.pool == pool and s.tier == rank), None)


def _oldest(history: History, pool: str, rank: int) -> float:
    series = _series(history.newest, pool, rank)
    return series.oldest_wait_s if series else 0.0


def _in_flight(report: GatewayReport, pool: str, rank: int) -> int:
    return sum(
        each.in_flight_by_tier[rank]
        for each in report.backends
        if each.pool == pool and rank < len(each.in_flight_by_tier)
    )


def _tenants(live: Iterable[History]) -> list[TenantFrame]:
    """Tenants by what they offer, largest first; over all gateways."""
    rates: dict[tuple[str, str, int], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for history in live:
        _add_tenant_rates(rates, history)
    costs: dict[str, float] = defaultdict(float)
    for (_, pool, _), row in rates.items():
        costs[pool] += row["cost"]
    frames = [_tenant(key, row, costs[key[1]]) for key, row in rates.items()]
    return sorted(frames, key=lambda f: (-f.offered_per_s, -f.in_flight, f.tenant, f.pool))


def _add_tenant_rates(rates: dict[tuple[str, str, int], dict[str, float]], history: History) -> None:
    before = history.before(RATE_WINDOW_S)
    elapsed = history.newest.sent_at - before.sent_at
    old = {(r.tenant, r.pool, r.tier, r.outcome, r.reason): r.count for r in before.traffic}
    for row in history.newest.traffic:
        rate = per_s(
            row.count, old.get((row.tenant, row.pool, row.tier, row.outcome, row.reason), 0), elapsed
        )
        totals = rates[row.tenant, row.pool, row.tier]
        if row.outcome in SHED:
            totals["shed"] += rate
            totals[REASON + row.reason] += rate
        else:
            totals["admitted"] += rate
    old_cost = {(g.tenant, g.pool, g.tier): g.cost for g in before.tenants}
    for gauge in history.newest.tenants:
        key = (gauge.tenant, gauge.pool, gauge.tier)
        rates[key]["waiting"] += gauge.waiting
        rates[key]["in_flight"] += gauge.in_flight
        rates[key]["cost"] += per_s(gauge.cost, old_cost.get(key, 0.0), elapsed)


def _tenant(key: tuple[str, str, int], row: Mapping[str, float], pool_cost: float) -> TenantFrame:
    tenant, pool, tier = key
    admitted, shed = row.get("admitted", 0.0), row.get("shed", 0.0)
    return TenantFrame(
        tenant=tenant,
        pool=pool,
        tier=tier,
        offered_per_s=admitted + shed,
        admitted_per_s=admitted,
        shed_per_s=shed,
        waiting=int(row.get("waiting", 0)),
        in_flight=int(row.get("in_flight", 0)),
        cost_share=row.get("cost", 0.0) / pool_cost if pool_cost > 0 else 0.0,
        main_reason=_main_reason(row),
    )


def _main_reason(row: Mapping[str, float]) -> str | None:
    reasons = [
        (rate, name.removeprefix(REASON)) for name, rate in row.items() if name.startswith(REASON) and rate
    ]
    return max(reasons)[1] if reasons else None


def _gateways(sources: Sources) -> Iterable[GatewayFrame]:
    shares = {each.gateway: each.share for each in sources.bounds.gateways}
    for name, history in sorted(sources.histories.all().items()):
        report = history.newest
        yield GatewayFrame(
            gateway=name,
            report_age_s=max(0.0, sources.now - history.seen_at),
            snapshot_revision=report.snapshot_revision,
            snapshot_refused=report.snapshot_refused,
            bounds_epoch=report.bounds_epoch,
            bounds_seq=report.bounds_seq,
            share=shares.get(name, 0.0),
            ledger_imbalance=report.ledger_imbalance,
            draining=report.draining,
            degraded=report.degraded,
        )


def _override(spec: OverrideSpec) -> OverrideFrame:
    return OverrideFrame(
        id=spec.id,
        kind=spec.kind.value,
        target=spec.target,
        value=spec.value,
        actor=spec.actor,
        reason=spec.reason[:200],
        expires_at=spec.expires_at,
    )
