"""What a gate shows of itself: frozen values for reports, metrics and pages. Reading them changes nothing."""

from dataclasses import dataclass

from gateway.core.vocabulary import Account, BreakerState


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGauge:
    """One (pool, tier): what waits, how long the oldest has, and how near to shedding it is (0..1)."""

    pool: str
    tier: int
    waiting: int
    oldest_wait_s: float
    pressure: float
    waiting_by_tenant: tuple[tuple[str, int], ...]
    waiting_cost: int = 0  # sum of the predicted costs of what waits, for the shares


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendGauge:
    """One backend: what it carries, what it may carry, and what binds."""

    backend: str
    pool: str
    limit: float
    reserved_seats: int
    in_flight: int
    in_flight_by_tier: tuple[int, ...]
    in_flight_by_tenant: tuple[tuple[str, int], ...]
    kv_tokens: int
    prefill_tokens: int
    prefill_ratio: float
    kv_use_ratio: float | None
    sequences_ratio: float
    binding: Account | None
    slow: float
    tpot_s: float | None
    breaker: BreakerState
    breaker_until: float | None  # on the gate's clock
    failures: int
    successes: int
    demand_cost: float  # cumulative cost of what was dispatched here, for the shares
    prefill_window_tokens: float = 0.0  # the prefill backlog that would bind now, before hold-backs


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """The whole gate at one instant."""

    queues: tuple[QueueGauge, ...]
    backends: tuple[BackendGauge, ...]
    tickets: int
    ledger_imbalance: int  # seats, tokens and charges held by nobody: always 0
    draining: bool
