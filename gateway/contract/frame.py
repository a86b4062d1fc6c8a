"""Frame, slow loop -> dashboard, one a second: the merged view. At most 16 KB: 50 backends, the 20 largest tenants.

Browsers get these bytes unchanged; field names are what the pages read. None means unknown, never 0.
"""

from msgspec import Struct

SCHEMA = 1
MAX_BACKENDS = 50
MAX_TENANTS = 20


class TierFrame(Struct, frozen=True, kw_only=True):
    """One (pool, tier) over the last second or, for percentiles, the last few."""

    pool: str
    tier: int
    name: str
    offered_per_s: float
    admitted_per_s: float
    shed_per_s: dict[str, float]  # by ShedReason
    refused_429_per_s: float
    waiting: int
    max_size: int
    delay_budget_s: float
    oldest_wait_s: float
    in_flight: int
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    tpot_p50_s: float | None
    tpot_p95_s: float | None
    ttft_objective_s: float
    tpot_objective_s: float
    goodput_tokens_per_s: float
    retries_per_s: float
    pressure: float


class BreakerFrame(Struct, frozen=True, kw_only=True):
    """A breaker: its state, whether a person set it, and until when (epoch seconds)."""

    state: str
    manual: bool
    until: float | None


class BackendFrame(Struct, frozen=True, kw_only=True):
    """One backend, over all gateways."""

    backend: str
    pool: str
    engine: str
    limit: float
    limit_max: int | None
    reserved_seats: int
    in_flight: int
    in_flight_by_tier: tuple[int, ...]
    engine_running: int | None
    engine_waiting: int | None
    kv_ratio: float | None
    kv_source: str | None  # "gauge", "slots", or None where the engine tells nothing
    prefill_ratio: float
    kv_use_ratio: float | None
    sequences_ratio: float
    binding: str | None
    breaker: BreakerFrame
    telemetry_age_s: float | None
    preemptions_per_s: float | None
    slow: float
    tpot_s: float | None


class TenantFrame(Struct, frozen=True, kw_only=True):
    """One tenant in one pool and tier."""

    tenant: str
    pool: str
    tier: int
    offered_per_s: float
    admitted_per_s: float
    shed_per_s: float
    waiting: int
    in_flight: int
    cost_share: float
    main_reason: str | None = None  # the ShedReason that hit it most in this second


class GatewayFrame(Struct, frozen=True, kw_only=True):
    """One gateway's health."""

    gateway: str
    report_age_s: float
    snapshot_revision: int
    snapshot_refused: str | None
    bounds_epoch: int
    bounds_seq: int
    share: float
    ledger_imbalance: int
    draining: bool
    degraded: bool


class ControlFrame(Struct, frozen=True, kw_only=True):
    """The slow loop's own health."""

    leader: str
    epoch: int
    seq: int
    tick_age_s: float
    tick_duration_s: float
    revision: int
    lowest_applied_revision: int | None


class EventFrame(Struct, frozen=True, kw_only=True):
    """Something that happened: for the feed and the annotations."""

    at: float
    kind: str
    text: str
    target: str | None = None


class OverrideFrame(Struct, frozen=True, kw_only=True):
    """An override in force, for the countdown chips."""

    id: str
    kind: str
    target: str
    value: str
    actor: str
    reason: str
    expires_at: float


class Frame(Struct, frozen=True, kw_only=True):
    """One second of everything."""

    schema: int = SCHEMA
    at: float  # epoch seconds
    tiers: tuple[TierFrame, ...]
    backends: tuple[BackendFrame, ...]
    backends_left_out: int
    tenants: tuple[TenantFrame, ...]
    gateways: tuple[GatewayFrame, ...]
    control: ControlFrame
    overrides: tuple[OverrideFrame, ...]
    events: tuple[EventFrame, ...]
    incidents_open: int
