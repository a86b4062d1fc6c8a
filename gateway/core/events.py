"""What happened. The shell turns the world into these; nothing else changes the state of a gate.

Times are seconds on the clock that the caller of `Gate.handle` uses for `now`. A ticket is named by its request id.
"""

from dataclasses import dataclass

from gateway.core.policy import GatePolicy
from gateway.core.vocabulary import BreakerState, Fault, OverrideKind, ShedReason


@dataclass(frozen=True, slots=True)
class Configured:
    """A new policy, already checked (`core.policy.check`): applied whole at once."""

    policy: GatePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A request came in. `max_output_tokens` is the caller's own bound, None where it named none."""

    ticket: str
    pool: str
    tier: int
    tenant: str
    prompt_tokens: int
    max_output_tokens: int | None = None
    weight: float = 1.0
    deadline_at: float | None = None  # when the caller gives up
    is_retry: bool = False
    has_quota: bool = (
        False  # True: some request bucket, token bucket or concurrency bound applies (see ReserveQuota)
    )
    avoid: str | None = None  # the backend that just failed it, which another is to be tried for


@dataclass(frozen=True, slots=True)
class QuotaGranted:
    """The reservation that `ReserveQuota` asked for was taken."""

    ticket: str


@dataclass(frozen=True, slots=True)
class QuotaDenied:
    """The reservation failed. `retry_at`: exact instant at which it could succeed, None where only a later day helps."""

    ticket: str
    reason: ShedReason
    retry_at: float | None


@dataclass(frozen=True, slots=True)
class Progress:
    """LLM tokens that arrived from one backend since the last pass: ((ticket, tokens), ...).

    A ticket's first entry is its first token. `lagged` marks a sample that measures this process or a slow reader
    rather than the engine: counted, not learnt from.
    """

    backend: str
    tokens: tuple[tuple[str, int], ...]
    lagged: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """A dispatched ticket was answered in full. Real usage where the engine told it, else None."""

    ticket: str
    prompt_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A dispatched ticket failed at its backend."""

    ticket: str
    fault: Fault
    prompt_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class PushedBack:
    """The engine itself said no (429 or 503) before the first byte: back-pressure, not a fault."""

    ticket: str
    retry_after_s: float | None
    status: int


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The caller left, wherever its ticket was. `output_tokens` is what had been generated as far as is known."""

    ticket: str
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed: the inner tick (50 ms), or the instant that `WakeAt` asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendBounds:
    """What the slow loop says about one backend, and the telemetry it saw. None: not known."""

    backend: str
    limit_min: int | None = None
    limit_max: int | None = None
    seats: int | None = None  # this gateway's whole seats
    kv_target: float | None = None
    kappa: float | None = None
    kv_capacity_tokens: int | None = None
    engine_running: int | None = None
    engine_waiting: int | None = None
    kv_ratio: float | None = None
    telemetry_age_s: float | None = None
    breaker: BreakerState | None = None  # the state that the votes of all gateways give


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsReceived:
    """Fresh bounds for this gateway. `share` is its part of every backend, 0..1."""

    share: float
    backends: tuple[BackendBounds, ...]
    epoch: int = 0
    retry_factors: tuple[tuple[str, float, float], ...] = ()  # ((tenant, factor of new credits, until), ...)


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A manual setting on the gate's clock. `target` names a backend, tenant, pool or tier rank, by kind.

    `value`: `open` or `closed` for a breaker; a number for a pin, a weight factor or a throttle; `on` otherwise.
    """

    kind: OverrideKind
    target: str
    value: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class OverridesReceived:
    """All overrides in force; those not named are released."""

    overrides: tuple[Override, ...]


@dataclass(frozen=True, slots=True)
class DrainStarted:
    """From now on refuse new tickets (`draining`); answer what waits and what is in flight."""


Event = (
    Configured
    | Arrived
    | QuotaGranted
    | QuotaDenied
    | Progress
    | Finished
    | Failed
    | PushedBack
    | Abandoned
    | Ticked
    | BoundsReceived
    | OverridesReceived
    | DrainStarted
)
