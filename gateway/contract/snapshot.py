"""Policy snapshot, control -> gateway: everything a gateway needs to serve, also with all else down.

Version = number of the PolicyRevision. A snapshot is validated whole (`problems`), then applied whole; a gateway
keeps its last good one in memory and on disk. It holds no secret: key digests, and *references* to credentials.
"""

from msgspec import Struct

from gateway.core.policy import BackendPolicy, PoolPolicy, TierPolicy

SCHEMA = 1


class FallbackSpec(Struct, frozen=True, kw_only=True):
    """What is answered while a pool's breaker is open, and which tiers may have it."""

    text: str | None = None
    pool: str | None = None
    tiers: tuple[int, ...] = ()


class PoolSpec(Struct, frozen=True, kw_only=True):
    """A pool: its policy and what only the shell needs."""

    policy: PoolPolicy
    models: tuple[str, ...]  # served names; the first is what the backends call it, others are aliases
    fallback: FallbackSpec = FallbackSpec()
    sse_keepalive_s: float = 0.0
    connect_timeout_s: float = 2.0
    first_byte_timeout_s: float = 120.0
    idle_timeout_s: float = 60.0
    total_timeout_s: float = 600.0


class BackendSpec(Struct, frozen=True, kw_only=True):
    """A backend: its policy, where it is, and where its credential is to be found (`env:NAME` or `file:/path`)."""

    policy: BackendPolicy
    url: str
    engine: str
    metrics_url: str | None = None
    credential: str | None = None


class TenantSpec(Struct, frozen=True, kw_only=True):
    """A tenant, by its slug."""

    name: str
    enabled: bool = True
    refusal_messages: dict[str, str] = {}


class GrantSpec(Struct, frozen=True, kw_only=True):
    """Which tenant may use which pool, in which tier, with how much. None: no bound."""

    tenant: str
    pool: str
    tier: int
    weight: float = 1.0
    requests_per_min: int | None = None
    requests_burst: int | None = None
    tokens_per_min: int | None = None
    tokens_burst: int | None = None
    concurrency: int | None = None
    monthly_tokens: int | None = None
    month_to_date_tokens: int = 0
    month: str = ""  # "2026-11": which month `month_to_date_tokens` counts


class KeySpec(Struct, frozen=True, kw_only=True):
    """A tenant's API key: public id and HMAC-SHA256 digests (hex; two while it rotates)."""

    public_id: str
    tenant: str
    digests: tuple[str, ...]
    tier: int | None = None  # may only lower the grant's tier
    expires_at: float | None = None  # epoch seconds
    enabled: bool = True


class TierSpec(Struct, frozen=True, kw_only=True):
    """A tier: its policy and the refusal messages that replace ours, by language."""

    policy: TierPolicy
    refusal_messages: dict[str, str] = {}


class Snapshot(Struct, frozen=True, kw_only=True):
    """One policy revision, complete."""

    schema: int = SCHEMA
    revision: int
    created_at: float  # epoch seconds
    tiers: tuple[TierSpec, ...]
    pools: tuple[PoolSpec, ...]
    backends: tuple[BackendSpec, ...]
    tenants: tuple[TenantSpec, ...]
    grants: tuple[GrantSpec, ...]
    keys: tuple[KeySpec, ...]
