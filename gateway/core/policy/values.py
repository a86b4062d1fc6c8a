"""What an operator sets: frozen values that a gate takes whole or refuses whole.

`check(policy)` names every field that is wrong; a gate never applies a policy with problems. Times are seconds,
sizes are LLM tokens unless the name says otherwise. Defaults and trade-offs: docs/policies.md.
"""

from dataclasses import dataclass, field

from gateway.core.vocabulary import DropPolicy, LimitAlgorithm


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """How one tier's queue behaves: how many may wait, how long, what is shed."""

    max_size: int = 200
    timeout_s: float = 8.0
    drop: DropPolicy = DropPolicy.EARLY_DROP
    max_size_per_tenant: int | None = None
    delay_budget_s: float | None = None  # None: the tier's factor times its TTFT objective
    retry_after_max_s: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPolicy:
    """A priority level. Rank 0 is served first; a higher rank is sheddable earlier."""

    rank: int
    name: str
    ttft_objective_s: float
    tpot_objective_s: float
    queue: QueuePolicy = field(default_factory=QueuePolicy)
    weight: float = 1.0  # among the tiers below rank 0
    share_cap: float = 0.7  # rank 0 goes first only while its share of the dispatched cost is below
    floor: float = 0.0  # share of the dispatched cost that this tier gets whatever happens above it
    hold_back_prefill: float = 1.0
    hold_back_kv: float = 1.0
    delay_budget_factor: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitPolicy:
    """Which algorithm bounds a pool's backends, and its constants (docs/policies.md, `core.valve`, `core.limits`)."""

    algorithm: LimitAlgorithm = LimitAlgorithm.TOKEN_VALVE
    min_limit: int = 4
    max_limit: int = 256
    initial_limit: int | None = None  # None: the algorithm's own start; `fixed` uses max_limit
    reserved_seats: int | None = (
        None  # for rank 0; None: 0 if the limit < 2, else max(1, ceil(.05 limit)); 0 for `fixed`
    )
    chunk_tokens: int = 2048
    kv_target: float = 0.90


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """When a backend counts as broken, and how it is tried again."""

    enabled: bool = True
    window_s: float = 10.0
    min_requests: int = 10
    failure_ratio: float = 0.5
    open_s: float = 2.0
    half_open_probes: int = 1
    probe_timeout_s: float = 10.0
    ramp_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkPolicy:
    """The engine-queue rule: dispatch up to `safe` engine waiting, wait here above it, refuse over `maximum` in total."""

    safe: int = 5
    maximum: int = 50
    jitter_s: float = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPolicy:
    """A served model and how its backends are protected."""

    name: str
    limit: LimitPolicy = field(default_factory=LimitPolicy)
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    watermark: WatermarkPolicy | None = None  # None: off, which is right wherever the token valve runs
    output_cost: float = 20.0  # cost of an output token in prompt tokens: 20 on a GPU, 4 on a CPU engine
    default_output_tokens: int = 256  # predicted before anything was seen of a tenant
    max_output_tokens: int = 4096  # bounds a reservation where the caller names no max_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendPolicy:
    """One replica of a pool. Facts about its engine come from configuration here or from bounds later."""

    name: str
    pool: str
    weight: float = 1.0
    enabled: bool = True
    drained: bool = False
    max_seqs: int | None = None
    kv_capacity_tokens: int | None = None  # None: unknown, the KV account is off
    context_tokens: int | None = None  # longest prompt + output that one sequence may have


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """Everything that the gate obeys."""

    tiers: tuple[TierPolicy, ...]
    pools: tuple[PoolPolicy, ...]
    backends: tuple[BackendPolicy, ...]
    gateways: int = 1  # known gateways when no bounds were received yet


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a policy: where, in the words of the policy, and why."""

    field: str
    message: str
    is_warning: bool = False


def default_tiers() -> tuple[TierPolicy, ...]:
    """The three tiers of a new installation: P0 realtime, P1 agent, P2 batch."""
    return (
        TierPolicy(
            rank=0,
            name="realtime-interactive",
            ttft_objective_s=1.0,
            tpot_objective_s=0.15,
            queue=QueuePolicy(max_size=200, timeout_s=8.0, retry_after_max_s=8),
        ),
        TierPolicy(
            rank=1,
            name="agent-workflow",
            ttft_objective_s=4.0,
            tpot_objective_s=0.2,
            queue=QueuePolicy(max_size=500, timeout_s=15.0, retry_after_max_s=30),
            weight=3.0,
            hold_back_prefill=0.7,
            hold_back_kv=0.95,
            delay_budget_factor=0.6,
        ),
        TierPolicy(
            rank=2,
            name="batch-extraction",
            ttft_objective_s=15.0,
            tpot_objective_s=0.3,
            queue=QueuePolicy(
                max_size=1000, timeout_s=60.0, drop=DropPolicy.FAST_REJECT, retry_after_max_s=60
            ),
            weight=1.0,
            floor=0.1,
            hold_back_prefill=0.7,
            hold_back_kv=0.95,
            delay_budget_factor=0.67,
        ),
    )
