"""Scene: what a page looks at. One frame, what was kept of the ones before, and one pool (or all of them)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dashboard.charts.samples import Sample
from dashboard.charts.series import ALL_POOLS, tier_name, tier_style
from gateway.contract.frame import BackendFrame, EventFrame, Frame, TenantFrame, TierFrame
from gateway.core.vocabulary import BreakerState, ShedReason

STALE_AFTER_S = 3.0
TELEMETRY_LOST_S = 5.0
GATEWAY_LOST_S = 3.0
SLOW_FACTOR = 1.5  # the valve's own threshold for calling a backend slow
SATURATED_RATIO = 0.9

# A tenant over its own allowance; everything else says that there is more work than the pool can take.
ALLOWANCE_REASONS = frozenset(
    {
        ShedReason.RATE_LIMITED,
        ShedReason.TOKEN_LIMITED,
        ShedReason.CONCURRENCY_LIMITED,
        ShedReason.QUOTA_EXHAUSTED,
    }
)
NO_NEW_WORK = frozenset({BreakerState.OPEN, BreakerState.FORCED_OPEN})


@dataclass(frozen=True, slots=True)
class Tier:
    """One tier, over the chosen pools. Percentiles and objectives are those of the pool that is worst off."""

    tier: int
    name: str
    offered_per_s: float
    admitted_per_s: float
    shed_per_s: dict[str, float]
    refused_429_per_s: float
    waiting: int
    max_size: int
    delay_budget_s: float
    oldest_wait_s: float
    in_flight: int
    ttft_p95_s: float | None
    ttft_objective_s: float
    tpot_p95_s: float | None
    tpot_objective_s: float
    goodput_tokens_per_s: float
    retries_per_s: float

    @property
    def label(self) -> str:
        """P0."""
        return tier_name(self.tier)

    @property
    def style(self) -> str:
        """The tier's css class."""
        return tier_style(self.tier)

    @property
    def shed_total_per_s(self) -> float:
        """Refused and evicted, for whatever reason."""
        return sum(self.shed_per_s.values())

    @property
    def shed_ratio(self) -> float:
        """Part of the offered requests that was shed, 0..1. An eviction may belong to an earlier second."""
        most = max(self.offered_per_s, self.shed_total_per_s)
        return self.shed_total_per_s / most if most > 0 else 0.0

    @property
    def ttft_ratio(self) -> float | None:
        """TTFT p95 as part of its objective."""
        return None if self.ttft_p95_s is None else self.ttft_p95_s / max(self.ttft_objective_s, 1e-9)

    @property
    def tpot_ratio(self) -> float | None:
        """TPOT p95 as part of its objective."""
        return None if self.tpot_p95_s is None else self.tpot_p95_s / max(self.tpot_objective_s, 1e-9)

    @property
    def is_inside(self) -> bool:
        """Both percentiles are inside their objectives, as far as they are known."""
        return all(ratio is None or ratio <= 1.0 for ratio in (self.ttft_ratio, self.tpot_ratio))


@dataclass(frozen=True, slots=True)
class Scene:
    """A frame and its past. `samples` are in order of time and end with this frame's; `now` is in epoch seconds."""

    frame: Frame
    samples: Sequence[Sample]
    events: Sequence[EventFrame]
    now: float
    pool: str = ALL_POOLS
    by: str = "shed"

    @property
    def age_s(self) -> float:
        """How old the frame is. Clocks may disagree by a little: never negative."""
        return max(0.0, self.now - self.frame.at)

    @property
    def is_stale(self) -> bool:
        """The frame is too old to be called live."""
        return self.age_s > STALE_AFTER_S

    def has(self, pool: str) -> bool:
        """A row of this pool belongs to the scene."""
        return self.pool in (ALL_POOLS, pool)

    @property
    def backends(self) -> tuple[BackendFrame, ...]:
        """The chosen pools' backends, by name."""
        return tuple(
            sorted((b for b in self.frame.backends if self.has(b.pool)), key=lambda b: (b.pool, b.backend))
        )

    @property
    def tenants(self) -> tuple[TenantFrame, ...]:
        """The chosen pools' tenants, as the frame orders them."""
        return tuple(t for t in self.frame.tenants if self.has(t.pool))

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """The chosen pools' tiers, highest priority first."""
        rows = [t for t in self.frame.tiers if self.has(t.pool)]
        return tuple(_merged([r for r in rows if r.tier == tier]) for tier in sorted({r.tier for r in rows}))

    @property
    def pools(self) -> tuple[str, ...]:
        """Every pool that the frame knows."""
        rows: Iterable[TierFrame | BackendFrame] = (*self.frame.tiers, *self.frame.backends)
        return tuple(sorted({r.pool for r in rows}))


def is_out(backend: BackendFrame) -> bool:
    """Gets no new work: its breaker is open, by itself or by a person."""
    return backend.breaker.state in NO_NEW_WORK


def is_silent(backend: BackendFrame) -> bool:
    """Its telemetry stopped."""
    return backend.telemetry_age_s is not None and backend.telemetry_age_s > TELEMETRY_LOST_S


def gate_ratio(backend: BackendFrame, account: str) -> float | None:
    """How full one of the valve's accounts is on a backend."""
    return {
        "prefill": backend.prefill_ratio,
        "kv": backend.kv_use_ratio if backend.kv_use_ratio is not None else backend.kv_ratio,
        "sequences": backend.sequences_ratio,
    }.get(account)


def _merged(rows: list[TierFrame]) -> Tier:
    slowest = max(rows, key=lambda r: (r.ttft_p95_s or 0.0) / max(r.ttft_objective_s, 1e-9))
    jerkiest = max(rows, key=lambda r: (r.tpot_p95_s or 0.0) / max(r.tpot_objective_s, 1e-9))
    shed: dict[str, float] = {}
    for row in rows:
        for reason, rate in row.shed_per_s.items():
            shed[reason] = shed.get(reason, 0.0) + rate
    return Tier(
        tier=rows[0].tier,
        name=rows[0].name,
        offered_per_s=sum(r.offered_per_s for r in rows),
        admitted_per_s=sum(r.admitted_per_s for r in rows),
        shed_per_s=shed,
        refused_429_per_s=sum(r.refused_429_per_s for r in rows),
        waiting=sum(r.waiting for r in rows),
        max_size=sum(r.max_size for r in rows),
        delay_budget_s=max(r.delay_budget_s for r in rows),
        oldest_wait_s=max(r.oldest_wait_s for r in rows),
        in_flight=sum(r.in_flight for r in rows),
        ttft_p95_s=slowest.ttft_p95_s,
        ttft_objective_s=slowest.ttft_objective_s,
        tpot_p95_s=jerkiest.tpot_p95_s,
        tpot_objective_s=jerkiest.tpot_objective_s,
        goodput_tokens_per_s=sum(r.goodput_tokens_per_s for r in rows),
        retries_per_s=sum(r.retries_per_s for r in rows),
    )
