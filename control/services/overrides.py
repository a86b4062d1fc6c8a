"""Manual settings: at most one per kind and target, always with actor, reason and an end within 24 hours.

*Auto* is no value of its own: it is the release of what was set. The optimistic lock is the key of the override that
the person saw in force when deciding (`expected`); where another one is in force by now, nothing changes.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import IntegrityError
from django.utils import timezone

from control import publishing
from control.audit import Actor, change
from control.models import MAX_OVERRIDE_S, Backend, Override, Pool, Tenant, Tier
from control.services.errors import Conflict, Invalid, NotFound
from gateway.core.vocabulary import OverrideKind

WHATEVER: Final = "*"  # for `expected`: replace whatever is in force
MIN_REASON = 3
MAX_REASON = 500
MAX_FACTOR = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOverride:
    """What is asked for. `value`: `open` or `closed`; a number for a pin, weight or throttle; `on` otherwise."""

    kind: OverrideKind
    target: str
    value: str
    reason: str
    lifetime_s: int
    expected: str | None = WHATEVER


@dataclass(frozen=True, slots=True)
class OverrideSet:
    """What was set: its key, and when it ends by itself."""

    key: str
    expires_at: datetime


def set_override(actor: Actor, wanted: SetOverride) -> OverrideSet:
    """Put a manual setting in force, in place of one for the same target.

    Raises:
        Invalid: reason, lifetime, value or target is wrong.
        Conflict: another one is in force than the person saw; `current` is its key.
    """
    _check(wanted)
    now = timezone.now()
    row = Override(
        key=f"ov_{secrets.token_hex(8)}",
        kind=wanted.kind.value,
        target=wanted.target,
        value=wanted.value,
        actor=actor.name,
        reason=wanted.reason.strip(),
        created_at=now,
        lifetime_s=wanted.lifetime_s,
        expires_at=now + timedelta(seconds=wanted.lifetime_s),
    )
    try:
        _set(actor, row, wanted)
    except IntegrityError:
        raise Conflict("Somebody else set one for the same target at the same time.") from None
    return OverrideSet(row.key, row.expires_at)


def release_override(actor: Actor, key: str, *, reason: str = "") -> bool:
    """End an override before its time. False where it had ended already; then nothing changes.

    Raises:
        NotFound: there never was one with this key.
    """
    now = timezone.now()
    with change(actor, "override released", reason=reason) as entry:
        row = Override.objects.select_for_update().filter(key=key).first()
        if row is None:
            raise NotFound(f"There is no override {key!r}.")
        entry.about(row)
        if row.released_at is not None or row.expires_at <= now:
            entry.skip()
            return False
        row.released_at, row.released_by = now, actor.name
        row.save()
        entry.note("value", before=row.value, after=None)
        entry.note("expires_at", before=row.expires_at.isoformat(), after=None)
        publishing.bump_overrides()
    return True


def _set(actor: Actor, row: Override, wanted: SetOverride) -> None:
    with change(actor, "override set", reason=row.reason) as entry:
        present = (
            Override.objects.select_for_update()
            .filter(kind=row.kind, target=row.target, released_at__isnull=True)
            .first()
        )
        current = present if present is not None and present.expires_at > row.created_at else None
        if wanted.expected not in (WHATEVER, current.key if current else None):
            raise Conflict("It was changed meanwhile.", current.key if current else None)
        if present is not None:
            present.released_at = min(row.created_at, present.expires_at)
            present.released_by = actor.name if current else ""
            present.save()
        row.save()
        entry.about(row)
        entry.note("value", before=current.value if current else None, after=row.value)
        entry.note(
            "expires_at",
            before=current.expires_at.isoformat() if current else None,
            after=row.expires_at.isoformat(),
        )
        publishing.bump_overrides()


def _check(wanted: SetOverride) -> None:
    reason = wanted.reason.strip()
    if not MIN_REASON <= len(reason) <= MAX_REASON:
        raise Invalid.of("reason", f"needs {MIN_REASON} to {MAX_REASON} characters")
    if not 1 <= wanted.lifetime_s <= MAX_OVERRIDE_S:
        raise Invalid.of("lifetime_s", "must be 1 second to 24 hours")
    if not _TARGETS[wanted.kind](wanted.target):
        raise Invalid.of("target", f"there is no {_NOUNS[wanted.kind]} {wanted.target!r}")
    problem = _VALUES[wanted.kind](wanted.value)
    if problem is not None:
        raise Invalid.of("value", problem)


def _backend(name: str) -> bool:
    return Backend.objects.filter(name=name).exists()


def _pool(name: str) -> bool:
    return Pool.objects.filter(name=name).exists()


def _tenant(name: str) -> bool:
    return Tenant.objects.filter(name=name).exists()


def _tier(rank: str) -> bool:
    return (
        rank.isascii() and rank.isdigit() and len(rank) == 1 and Tier.objects.filter(rank=int(rank)).exists()
    )


def _breaker_value(value: str) -> str | None:
    return None if value in ("open", "closed") else "must be open or closed (release it for automatic)"


def _switch_value(value: str) -> str | None:
    return None if value == "on" else "must be on (release it to switch off)"


def _seats_value(value: str) -> str | None:
    is_good = value.isascii() and value.isdigit() and len(value) <= 5  # up to 99,999 seats
    return None if is_good else "must be a whole number of seats, 0 to 99999"


def _number_between(low: float, high: float) -> Callable[[str], str | None]:
    def problem(value: str) -> str | None:
        try:
            number = float(value)
        except ValueError:
            return "must be a number"
        return None if low <= number <= high else f"must be {low:g} to {high:g}"

    return problem


_TARGETS: Final[dict[OverrideKind, Callable[[str], bool]]] = {
    OverrideKind.BREAKER: _backend,
    OverrideKind.LIMIT_PIN: _backend,
    OverrideKind.BACKEND_DRAIN: _backend,
    OverrideKind.BACKEND_DISABLE: _backend,
    OverrideKind.TENANT_WEIGHT: _tenant,
    OverrideKind.TIER_THROTTLE: _tier,
    OverrideKind.POOL_FALLBACK: _pool,
}
_NOUNS: Final = {
    OverrideKind.BREAKER: "backend",
    OverrideKind.LIMIT_PIN: "backend",
    OverrideKind.BACKEND_DRAIN: "backend",
    OverrideKind.BACKEND_DISABLE: "backend",
    OverrideKind.TENANT_WEIGHT: "tenant",
    OverrideKind.TIER_THROTTLE: "tier",
    OverrideKind.POOL_FALLBACK: "pool",
}
_VALUES: Final[dict[OverrideKind, Callable[[str], str | None]]] = {
    OverrideKind.BREAKER: _breaker_value,
    OverrideKind.LIMIT_PIN: _seats_value,
    OverrideKind.BACKEND_DRAIN: _switch_value,
    OverrideKind.BACKEND_DISABLE: _switch_value,
    OverrideKind.TENANT_WEIGHT: _number_between(0.01, MAX_FACTOR),
    OverrideKind.TIER_THROTTLE: _number_between(0.0, 1.0),
    OverrideKind.POOL_FALLBACK: _switch_value,
}
