"""One audited change: a transaction, the licence to write guarded tables, and the row that tells of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
from django.db import models, transaction
from django.utils import timezone

from control.audit import chain
from control.models import AuditEvent, writing

_canonical = msgspec.json.Encoder(order="deterministic")
_MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, and through what: `admin`, `dashboard`, `api`, `command` or `loop`."""

    name: str
    origin: str


@dataclass(slots=True)
class Entry:
    """What the row will say. `skip` where nothing changed after all: then there is no row."""

    action: str
    reason: str = ""
    object_type: str = ""
    object_id: str = ""
    object_name: str = ""
    revision: int | None = None
    at: datetime = field(default_factory=timezone.now)
    changes: dict[str, tuple[object, object]] = field(default_factory=dict)
    is_skipped: bool = False

    def about(self, record: models.Model, *, name: str | None = None) -> None:
        """Name the thing that changes."""
        self.object_type = record._meta.model_name or ""  # noqa: SLF001  # Django's documented introspection
        self.object_id = str(record.pk)
        self.object_name = (name or str(record))[:_MAX_NAME]

    def note(self, name: str, *, before: object, after: object) -> None:
        """One field's old and new value. Never a secret."""
        self.changes[name] = (before, after)

    def skip(self) -> None:
        """Nothing changed."""
        self.is_skipped = True


@contextmanager
def change(actor: Actor, action: str, *, reason: str = "") -> Iterator[Entry]:
    """One transaction that leaves the change and its audit row, or neither."""
    with transaction.atomic(), writing():
        entry = Entry(action, reason)
        yield entry
        if not entry.is_skipped:
            chain.append(_row(actor, entry))


def _row(actor: Actor, entry: Entry) -> AuditEvent:
    return AuditEvent(
        at=entry.at,
        actor=actor.name,
        origin=actor.origin,
        action=entry.action,
        object_type=entry.object_type,
        object_id=entry.object_id,
        object_name=entry.object_name,
        reason=entry.reason,
        changes=_canonical.encode(entry.changes).decode(),
        revision=entry.revision,
    )
