"""Bounds, slow loop -> gateways: what each backend may carry at most, and the telemetry that was seen.

Version = (epoch, seq) of the leader. Never the limit itself: that belongs to the gateway's fast loop.
"""

from msgspec import Struct

from gateway.core.vocabulary import BreakerState

SCHEMA = 1


class BackendBound(Struct, frozen=True, kw_only=True):
    """One backend. None: not known, nothing is to be changed."""

    backend: str
    limit_min: int | None = None
    limit_max: int | None = None
    kv_target: float | None = None
    kappa: float | None = None
    kv_capacity_tokens: int | None = None
    engine_running: int | None = None
    engine_waiting: int | None = None
    kv_ratio: float | None = None
    scraped_at: float | None = None  # epoch seconds of the scrape that these came from
    breaker: BreakerState | None = None


class GatewayShare(Struct, frozen=True, kw_only=True):
    """What one gateway may use: a share (0..1) of every backend, and whole seats per backend."""

    gateway: str
    share: float
    seats: dict[str, int] = {}


class RetryBudget(Struct, frozen=True, kw_only=True):
    """A tenant whose retries are held back: credits are multiplied by `factor` (0..1) until `until` (epoch seconds)."""

    tenant: str
    factor: float
    until: float


class Bounds(Struct, frozen=True, kw_only=True):
    """One second's bounds."""

    schema: int = SCHEMA
    epoch: int
    seq: int
    sent_at: float
    backends: tuple[BackendBound, ...]
    gateways: tuple[GatewayShare, ...]
    retry_budgets: tuple[RetryBudget, ...] = ()
