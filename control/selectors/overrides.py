"""Overrides: in force now, and the latest."""

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from control.models import Override
from gateway.core.vocabulary import OverrideKind


@dataclass(frozen=True, slots=True)
class OverrideRow:
    """One override. In force while `released_at` is None and `expires_at` is ahead."""

    key: str
    kind: OverrideKind
    target: str
    value: str
    actor: str
    reason: str
    created_at: datetime
    expires_at: datetime
    released_at: datetime | None
    released_by: str
    is_in_force: bool


def overrides_in_force(now: datetime | None = None) -> tuple[OverrideRow, ...]:
    """What gateways have to obey now, the one that ends first at the top."""
    at = now or timezone.now()
    rows = Override.objects.filter(released_at__isnull=True, expires_at__gt=at).order_by("expires_at", "id")
    return tuple(_row(row, at) for row in rows)


def latest_overrides(limit: int = 50) -> tuple[OverrideRow, ...]:
    """The latest, whether in force or not, newest first."""
    at = timezone.now()
    return tuple(_row(row, at) for row in Override.objects.order_by("-created_at", "-id")[:limit])


def override(key: str) -> OverrideRow | None:
    """One override by its key."""
    row = Override.objects.filter(key=key).first()
    return _row(row, timezone.now()) if row else None


def _row(row: Override, now: datetime) -> OverrideRow:
    return OverrideRow(
        key=row.key,
        kind=OverrideKind(row.kind),
        target=row.target,
        value=row.value,
        actor=row.actor,
        reason=row.reason,
        created_at=row.created_at,
        expires_at=row.expires_at,
        released_at=row.released_at,
        released_by=row.released_by,
        is_in_force=row.released_at is None and row.expires_at > now,
    )
