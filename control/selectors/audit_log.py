"""Pages of the audit log, newest first."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec
from django.db.models import Q

from control.models import AuditEvent

MAX_PAGE = 200


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One change. `changes`: field -> (before, after)."""

    seq: int
    at: datetime
    actor: str
    origin: str
    action: str
    object_type: str
    object_id: str
    object_name: str
    reason: str
    changes: Mapping[str, tuple[object, object]]
    revision: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """What to show; empty: everything."""

    actor: str = ""
    action: str = ""
    object_type: str = ""
    text: str = ""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class AuditPage:
    """One page, and where the next one begins (None: this is the last)."""

    rows: tuple[AuditRow, ...]
    next_before: int | None


def audit_page(before: int | None = None, limit: int = 50, wanted: AuditFilter | None = None) -> AuditPage:
    """Rows with numbers below `before`."""
    size = max(1, min(limit, MAX_PAGE))
    condition = _condition(wanted or AuditFilter())
    if before is not None:
        condition &= Q(seq__lt=before)
    found = [_row(event) for event in AuditEvent.objects.filter(condition).order_by("-seq")[: size + 1]]
    rows = tuple(found[:size])
    return AuditPage(rows, rows[-1].seq if len(found) > size else None)


def _condition(wanted: AuditFilter) -> Q:
    condition = Q()
    for name in ("actor", "action", "object_type"):
        value = getattr(wanted, name)
        if value:
            condition &= Q(**{name: value})
    if wanted.text:
        condition &= Q(object_name__icontains=wanted.text) | Q(reason__icontains=wanted.text)
    if wanted.since is not None:
        condition &= Q(at__gte=wanted.since)
    if wanted.until is not None:
        condition &= Q(at__lt=wanted.until)
    return condition


def _row(event: AuditEvent) -> AuditRow:
    return AuditRow(
        seq=event.seq,
        at=event.at,
        actor=event.actor,
        origin=event.origin,
        action=event.action,
        object_type=event.object_type,
        object_id=event.object_id,
        object_name=event.object_name,
        reason=event.reason,
        changes=msgspec.json.decode(event.changes, type=dict[str, tuple[object, object]]),
        revision=event.revision,
    )
