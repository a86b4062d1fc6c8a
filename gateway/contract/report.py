"""GatewayReport, gateway -> control, every half second: cumulative counters, so that a lost report loses nothing."""

from msgspec import Struct

from gateway.core.vocabulary import BreakerState

SCHEMA = 1

# Upper bounds of the histogram buckets in seconds; one more bucket counts what is above the last.
TTFT_BOUNDS_S = (
    0.025,
    0.05,
    0.1,
    0.2,
    0.35,
    0.5,
    0.75,
    1.0,
    1.5,
    2.0,
    3.0,
    4.0,
    6.0,
    8.0,
    10.0,
    15.0,
    20.0,
    30.0,
    60.0,
)
TPOT_BOUNDS_S = (
    0.005,
    0.01,
    0.02,
    0.03,
    0.04,
    0.05,
    0.075,
    0.1,
    0.125,
    0.15,
    0.2,
    0.25,
    0.3,
    0.4,
    0.6,
    1.0,
)
WAIT_BOUNDS_S = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class TrafficCount(Struct, frozen=True, kw_only=True, array_like=True):
    """Tickets of one (pool, tier, tenant) that ended with one outcome and reason, since the gateway started."""

    pool: str
    tier: int
    tenant: str
    outcome: str  # an Outcome
    reason: str  # a ShedReason, a Fault, or ""
    count: int


class TierSeries(Struct, frozen=True, kw_only=True):
    """One (pool, tier): cumulative sums, histograms (bucket counts), and what waits right now."""

    pool: str
    tier: int
    offered: int
    admitted: int
    fallback: int
    retries: int
    prompt_tokens: int
    output_tokens: int
    goodput_tokens: int  # output tokens of answers inside both objectives
    wasted_tokens: int  # generated for callers that had gone
    ttft: tuple[int, ...]
    tpot: tuple[int, ...]
    wait: tuple[int, ...]
    waiting: int
    oldest_wait_s: float
    pressure: float


class BackendGauges(Struct, frozen=True, kw_only=True):
    """One backend as this gateway sees it now."""

    backend: str
    pool: str
    limit: float
    reserved_seats: int = 0
    in_flight: int
    in_flight_by_tier: tuple[int, ...]
    kv_tokens: int
    prefill_tokens: int
    prefill_ratio: float  # use of each account, 0..1
    kv_use_ratio: float | None
    sequences_ratio: float
    binding: str | None  # an Account
    slow: float
    tpot_s: float | None
    breaker: BreakerState
    breaker_until: float | None  # epoch seconds
    failures: int  # cumulative, the kind that counts
    successes: int
    cost_per_s: float  # dispatched and queued demand, for the shares


class TenantGauge(Struct, frozen=True, kw_only=True, array_like=True):
    """What one tenant has here now: waiting and in flight."""

    pool: str
    tier: int
    tenant: str
    waiting: int
    in_flight: int
    cost: float  # cumulative dispatched cost


class GatewayReport(Struct, frozen=True, kw_only=True):
    """Everything that one gateway tells."""

    schema: int = SCHEMA
    gateway: str
    boot: str
    started_at: float  # epoch seconds
    sent_at: float
    seq: int
    snapshot_revision: int
    snapshot_refused: str | None  # why the newest snapshot was refused, None where it was not
    bounds_epoch: int
    bounds_seq: int
    overrides_version: int
    ledger_imbalance: int
    draining: bool
    degraded: bool
    traffic: tuple[TrafficCount, ...]
    tiers: tuple[TierSeries, ...]
    backends: tuple[BackendGauges, ...]
    tenants: tuple[TenantGauge, ...]


class UsageDelta(Struct, frozen=True, kw_only=True):
    """LLM tokens that a tenant used on one gateway since its last delta; (gateway, boot, seq) makes it idempotent."""

    gateway: str
    boot: str
    seq: int
    at: float  # epoch seconds
    tenant: str
    pool: str
    requests: int
    prompt_tokens: int
    output_tokens: int
