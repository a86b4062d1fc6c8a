"""What a body must satisfy beyond its types: everything that the gateway would otherwise stumble over later.

Each function names every problem it finds, field by field in the words of the body; an empty tuple means good. A
body is refused whole: no part of one with a problem is ever used. Control asks the same questions before it publishes.
"""

import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from gateway.contract.bounds import BackendBound, Bounds
from gateway.contract.overrides import Overrides, OverrideSpec
from gateway.contract.snapshot import GrantSpec, KeySpec, PoolSpec, Snapshot
from gateway.contract.urls import url_problem
from gateway.core.policy import GatePolicy, Problem, check
from gateway.core.vocabulary import OverrideKind

_T = TypeVar("_T")
MAX_NAME_CHARS = 100
# \Z, for $ lets a line end pass: names become labels, log fields and parts of keys.
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.@/+-]*\Z")
_MODEL = re.compile(r"^[\x21-\x7e]+\Z")
_CREDENTIAL = re.compile(r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/[^\x00-\x1f]+)\Z")
_DIGEST = re.compile(r"^[0-9a-f]{64}\Z")
_PUBLIC_ID = re.compile(r"^[0-9A-Za-z]{1,32}\Z")
_MONTH = re.compile(r"^([0-9]{4}-(0[1-9]|1[0-2]))?\Z")
_NUMBER_KINDS = (OverrideKind.LIMIT_PIN, OverrideKind.TENANT_WEIGHT, OverrideKind.TIER_THROTTLE)


def gate_policy(snapshot: Snapshot, gateways: int = 1) -> GatePolicy:
    """The part of a snapshot that the gate obeys."""
    return GatePolicy(
        tiers=tuple(t.policy for t in snapshot.tiers),
        pools=tuple(p.policy for p in snapshot.pools),
        backends=tuple(b.policy for b in snapshot.backends),
        gateways=gateways,
    )


def snapshot_problems(snapshot: Snapshot) -> tuple[Problem, ...]:
    """Everything that is wrong with a snapshot, core's own check of the gate's part included; warnings are not."""
    sections = (
        _header_problems(snapshot),
        _tier_problems(snapshot),
        _pool_problems(snapshot),
        _backend_problems(snapshot),
        _tenant_problems(snapshot),
        _grant_problems(snapshot),
        _key_problems(snapshot),
    )
    found = tuple(problem for section in sections for problem in section)
    if found:
        return found  # core's check may rely on names that are unique and known
    return tuple(p for p in check(gate_policy(snapshot)) if not p.is_warning)


def bounds_problems(bounds: Bounds) -> tuple[Problem, ...]:
    """What is wrong with bounds as a whole. A single nonsensical number is the gate's to ignore, field by field."""
    return (
        *_duplicates("backends", (b.backend for b in bounds.backends)),
        *_duplicates("gateways", (g.gateway for g in bounds.gateways)),
        *_wrong("gateways", "share", (g.share for g in bounds.gateways), _is_ratio, "must be 0..1"),
        *_wrong(
            "retry_budgets", "factor", (r.factor for r in bounds.retry_budgets), _is_ratio, "must be 0..1"
        ),
        *(p for i, b in enumerate(bounds.backends) for p in _backend_bound_problems(i, b)),
    )


def overrides_problems(overrides: Overrides) -> tuple[Problem, ...]:
    """What is wrong with a set of overrides."""
    return (
        *_duplicates("overrides", (o.id for o in overrides.overrides)),
        *(p for i, o in enumerate(overrides.overrides) for p in _override_problems(f"overrides[{i}]", o)),
    )


def _backend_bound_problems(place: int, bound: BackendBound) -> Iterator[Problem]:
    low, high = bound.limit_min, bound.limit_max
    if low is not None and high is not None and low > high:
        yield Problem(f"backends[{place}].limit_min", "is above limit_max")
    if low is not None and low < 0:
        yield Problem(f"backends[{place}].limit_min", "is negative")


def _override_problems(place: str, override: OverrideSpec) -> Iterator[Problem]:
    if not override.actor or not override.reason:
        yield Problem(place, "needs an actor and a reason")
    if override.expires_at <= override.created_at:
        yield Problem(f"{place}.expires_at", "is not after created_at")
    if not override.target:
        yield Problem(f"{place}.target", "is empty")
    if override.kind is OverrideKind.BREAKER and override.value not in {"open", "closed"}:
        yield Problem(f"{place}.value", "must be open or closed")
    if override.kind in _NUMBER_KINDS and not _is_amount_text(override.value):
        yield Problem(f"{place}.value", "must be a number that is not negative")


def _is_amount_text(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and float(text) >= 0
    except ValueError:
        return False


def _header_problems(snapshot: Snapshot) -> Iterator[Problem]:
    if snapshot.revision < 0:
        yield Problem("revision", "is negative")
    if not snapshot.tiers:
        yield Problem("tiers", "there must be at least one")


def _tier_problems(snapshot: Snapshot) -> Iterator[Problem]:
    yield from _duplicates("tiers", (t.policy.rank for t in snapshot.tiers))
    yield from _wrong(
        "tiers", "policy.name", (t.policy.name for t in snapshot.tiers), _is_name, "is not a name"
    )


def _pool_problems(snapshot: Snapshot) -> Iterator[Problem]:
    pools = {p.policy.name: p for p in snapshot.pools}
    ranks = {t.policy.rank for t in snapshot.tiers}
    yield from _duplicates("pools", (p.policy.name for p in snapshot.pools))
    yield from _duplicates("models", (m for p in snapshot.pools for m in p.models))
    for i, pool in enumerate(snapshot.pools):
        yield from _one_pool_problems(f"pools[{i}]", pool)
        yield from _fallback_problems(f"pools[{i}].fallback", pool, pools, ranks)


def _one_pool_problems(place: str, pool: PoolSpec) -> Iterator[Problem]:
    if not _is_name(pool.policy.name):
        yield Problem(f"{place}.policy.name", "is not a name")
    if not pool.models or not all(_MODEL.match(m) and len(m) <= 2 * MAX_NAME_CHARS for m in pool.models):
        yield Problem(f"{place}.models", "needs at least one model name, without spaces")
    for name in ("connect_timeout_s", "first_byte_timeout_s", "idle_timeout_s", "total_timeout_s"):
        if not getattr(pool, name) > 0:
            yield Problem(f"{place}.{name}", "must be above 0")
    if pool.sse_keepalive_s < 0:
        yield Problem(f"{place}.sse_keepalive_s", "is negative")


def _fallback_problems(
    place: str, pool: PoolSpec, pools: dict[str, PoolSpec], ranks: set[int]
) -> Iterator[Problem]:
    fallback = pool.fallback
    if not set(fallback.tiers) <= ranks:
        yield Problem(f"{place}.tiers", "names an unknown tier")
    if fallback.pool is None:
        return
    if fallback.text is not None:
        yield Problem(place, "is either a text or a pool, not both")
    if fallback.pool == pool.policy.name or fallback.pool not in pools:
        yield Problem(f"{place}.pool", "names an unknown pool or itself")


def _backend_problems(snapshot: Snapshot) -> Iterator[Problem]:
    pools = {p.policy.name for p in snapshot.pools}
    yield from _duplicates("backends", (b.policy.name for b in snapshot.backends))
    yield from _wrong(
        "backends", "policy.name", (b.policy.name for b in snapshot.backends), _is_name, "is not a name"
    )
    yield from _unknown("backends", "policy.pool", (b.policy.pool for b in snapshot.backends), pools)
    for i, backend in enumerate(snapshot.backends):
        for name, url in (("url", backend.url), ("metrics_url", backend.metrics_url)):
            problem = None if url is None else url_problem(url)
            if problem is not None:
                yield Problem(f"backends[{i}].{name}", problem)
        if backend.credential is not None and not _CREDENTIAL.match(backend.credential):
            yield Problem(f"backends[{i}].credential", "is not env:NAME or file:/path")


def _tenant_problems(snapshot: Snapshot) -> Iterator[Problem]:
    yield from _duplicates("tenants", (t.name for t in snapshot.tenants))
    yield from _wrong("tenants", "name", (t.name for t in snapshot.tenants), _is_name, "is not a name")


def _grant_problems(snapshot: Snapshot) -> Iterator[Problem]:
    grants = snapshot.grants
    yield from _duplicates("grants", ((g.tenant, g.pool) for g in grants))
    yield from _unknown("grants", "tenant", (g.tenant for g in grants), {t.name for t in snapshot.tenants})
    yield from _unknown("grants", "pool", (g.pool for g in grants), {p.policy.name for p in snapshot.pools})
    yield from _unknown("grants", "tier", (g.tier for g in grants), {t.policy.rank for t in snapshot.tiers})
    for i, grant in enumerate(grants):
        yield from _one_grant_problems(f"grants[{i}]", grant)


def _one_grant_problems(place: str, grant: GrantSpec) -> Iterator[Problem]:
    if not grant.weight > 0:
        yield Problem(f"{place}.weight", "must be above 0")
    for name in ("requests_per_min", "requests_burst", "tokens_per_min", "tokens_burst", "concurrency"):
        bound: int | None = getattr(grant, name)
        if bound is not None and bound < 1:
            yield Problem(f"{place}.{name}", "must be at least 1")
    if grant.monthly_tokens is not None and grant.monthly_tokens < 0:
        yield Problem(f"{place}.monthly_tokens", "is negative")
    if grant.month_to_date_tokens < 0:
        yield Problem(f"{place}.month_to_date_tokens", "is negative")
    if not _MONTH.match(grant.month):
        yield Problem(f"{place}.month", "is not YYYY-MM")


def _key_problems(snapshot: Snapshot) -> Iterator[Problem]:
    keys = snapshot.keys
    yield from _duplicates("keys", (k.public_id for k in keys))
    yield from _unknown("keys", "tenant", (k.tenant for k in keys), {t.name for t in snapshot.tenants})
    ranks = {t.policy.rank for t in snapshot.tiers}
    yield from _unknown("keys", "tier", (k.tier for k in keys), ranks | {None})
    for i, key in enumerate(keys):
        yield from _one_key_problems(f"keys[{i}]", key)


def _one_key_problems(place: str, key: KeySpec) -> Iterator[Problem]:
    if not _PUBLIC_ID.match(key.public_id):
        yield Problem(f"{place}.public_id", "is not a public id")
    if len(key.digests) not in {1, 2} or not all(_DIGEST.match(d) for d in key.digests):
        yield Problem(f"{place}.digests", "must be one or two HMAC-SHA256 digests in hex")


def _is_name(text: str) -> bool:
    return len(text) <= MAX_NAME_CHARS and _NAME.match(text) is not None


def _is_ratio(value: float) -> bool:
    return 0.0 <= value <= 1.0


def _duplicates(place: str, values: Iterable[Hashable]) -> Iterator[Problem]:
    seen: set[Hashable] = set()
    for value in values:
        if value in seen:
            yield Problem(place, f"{_shown(value)} is there twice")
        seen.add(value)


def _unknown(
    place: str, field: str, values: Iterable[Hashable], known: Iterable[Hashable]
) -> Iterator[Problem]:
    members = set(known)
    for i, value in enumerate(values):
        if value not in members:
            yield Problem(f"{place}[{i}].{field}", f"{_shown(value)} is unknown")


def _wrong(
    place: str, field: str, values: Iterable[_T], is_good: Callable[[_T], bool], message: str
) -> Iterator[Problem]:
    for i, value in enumerate(values):
        if not is_good(value):
            yield Problem(f"{place}[{i}].{field}", message)


def _shown(value: object) -> str:
    return repr(value)[:MAX_NAME_CHARS]
