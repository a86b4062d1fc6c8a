"""The closed sets of words that every plane shares. One word per thing; each value is also a metric label.

What each word means is in the glossary of docs/architecture.md. Nothing here decides anything.
"""

from enum import StrEnum


class ShedReason(StrEnum):
    """Why a ticket was refused or evicted: complete, low-cardinality, on every page and in every metric."""

    RATE_LIMITED = "rate_limited"
    TOKEN_LIMITED = "token_limited"  # noqa: S105  # a reason, not a password
    CONCURRENCY_LIMITED = "concurrency_limited"
    QUOTA_EXHAUSTED = "quota_exhausted"
    RETRY_BUDGET = "retry_budget"
    QUEUE_FULL = "queue_full"
    EARLY_DROP = "early_drop"
    FAST_REJECT = "fast_reject"
    WATERMARK = "watermark"
    DISPLACED = "displaced"
    QUEUE_TIMEOUT = "queue_timeout"
    DEADLINE = "deadline"
    ENGINE_BUSY = "engine_busy"
    BREAKER_OPEN = "breaker_open"
    NO_BACKEND = "no_backend"
    GATEWAY_OVERLOAD = "gateway_overload"
    DRAINING = "draining"


class Outcome(StrEnum):
    """How a ticket ended. Every ticket has exactly one."""

    COMPLETED = "completed"
    FAILED = "failed"
    ABANDONED = "abandoned"
    REFUSED = "refused"
    EVICTED = "evicted"


class DropPolicy(StrEnum):
    """What a queue sheds, and when (docs/policies.md)."""

    TAIL = "tail"
    EARLY_DROP = "early-drop-on-pressure"
    FAST_REJECT = "fast-reject"


class LimitAlgorithm(StrEnum):
    """What decides how much a backend can take. `TOKEN_VALVE` is the default."""

    TOKEN_VALVE = "token-valve"  # noqa: S105  # an algorithm, not a password
    FIXED = "fixed"
    AIMD = "aimd"
    GRADIENT2 = "gradient2"
    VEGAS = "vegas"


class Account(StrEnum):
    """Which of the valve's three accounts holds a ticket back (the *binding gate* of the pages)."""

    PREFILL = "prefill"
    KV = "kv"
    SEQUENCES = "sequences"


class BreakerState(StrEnum):
    """States of a breaker. The two forced states are set by a person and never left by themselves."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"
    FORCED_OPEN = "forced-open"
    FORCED_CLOSED = "forced-closed"


class Fault(StrEnum):
    """How a dispatch failed at the backend. Only some of them count against its breaker (`core.breakers`)."""

    CONNECTION = "connection"
    SERVER_ERROR = "server_error"
    FIRST_BYTE_TIMEOUT = "first_byte_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    MIDSTREAM = "midstream"
    CALLER_ERROR = "caller_error"


class OverrideKind(StrEnum):
    """What a person may override for a while."""

    BREAKER = "breaker"
    LIMIT_PIN = "limit-pin"
    BACKEND_DRAIN = "backend-drain"
    BACKEND_DISABLE = "backend-disable"
    TENANT_WEIGHT = "tenant-weight"
    TIER_THROTTLE = "tier-throttle"
    POOL_FALLBACK = "pool-fallback"
