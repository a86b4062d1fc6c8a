"""Incidents as the pages show them."""

from dataclasses import dataclass
from datetime import datetime

from control.models import Incident


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """One incident."""

    key: str
    kind: str
    target: str
    severity: str
    title: str
    opened_at: datetime
    closed_at: datetime | None


def open_incidents() -> tuple[IncidentRow, ...]:
    """Those that are still open, newest first."""
    rows = Incident.objects.filter(closed_at__isnull=True).order_by("-opened_at", "-id")
    return tuple(
        IncidentRow(r.key, r.kind, r.target, r.severity, r.title, r.opened_at, r.closed_at) for r in rows
    )
