"""The chain: every row's digest covers the row and the digest before it, so an edit, a removal or a swap shows.

    digest(n) = SHA-256(canonical JSON of [row n's fields in order, digest(n-1)])

Whoever can write the database can also recompute the whole chain: that is what the *anchor* is for, the number and
digest of the last row, kept somewhere else (`manage.py audit_verify --print-anchor`, the log line of every append).
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import structlog

from control.models import AuditEvent, AuditHead

ORIGIN_DIGEST = "0" * 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CHUNK_ROWS = 2000
log = structlog.get_logger("control.audit")
_canonical = msgspec.json.Encoder(order="deterministic")


@dataclass(frozen=True, slots=True)
class Anchor:
    """The end of the chain at some instant."""

    seq: int
    digest: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.digest}"

    @classmethod
    def parse(cls, text: str) -> "Anchor":
        """Read `number:digest`.

        Raises:
            ValueError: it is not of that form.
        """
        number, colon, digest = text.strip().partition(":")
        if not colon or not number.isdigit() or len(digest) != len(ORIGIN_DIGEST):
            raise ValueError("an anchor is number:digest, as audit_verify --print-anchor prints it")
        return cls(int(number), digest)


@dataclass(frozen=True, slots=True)
class ChainFault:
    """The first place at which the log is not what was written."""

    seq: int
    message: str


def microseconds(at: datetime) -> int:
    """Whole microseconds since 1970: what both databases keep exactly."""
    delta = at - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def digest_of(event: AuditEvent) -> str:
    """The digest that this row must have."""
    fields = (
        event.seq,
        microseconds(event.at),
        event.actor,
        event.origin,
        event.action,
        event.object_type,
        event.object_id,
        event.object_name,
        event.reason,
        event.changes,
        event.revision,
        event.previous_digest,
    )
    return hashlib.sha256(_canonical.encode(fields)).hexdigest()


def append(event: AuditEvent) -> None:
    """Give the row its number and digests, and write it. Within a transaction and `models.writing`."""
    head, _ = AuditHead.objects.select_for_update().get_or_create(id=1)
    event.seq = head.seq + 1
    event.previous_digest = head.digest
    event.digest = digest_of(event)
    event.save()
    head.seq, head.digest = event.seq, event.digest
    head.save()


def anchor() -> Anchor:
    """The end of the chain now."""
    head = AuditHead.objects.filter(id=1).first()
    return Anchor(head.seq, head.digest) if head else Anchor(0, ORIGIN_DIGEST)


def verify(kept: Anchor | None = None) -> ChainFault | None:
    """Walk the whole chain; None where it is whole and, where one is given, still contains the kept anchor."""
    previous = Anchor(0, ORIGIN_DIGEST)
    for event in _rows():
        fault = _link_fault(event, previous)
        if fault is None and kept is not None and event.seq == kept.seq and event.digest != kept.digest:
            fault = ChainFault(event.seq, "differs from the anchor that was kept")
        if fault is not None:
            return fault
        previous = Anchor(event.seq, event.digest)
    return _end_fault(previous, kept)


def _rows() -> Iterator[AuditEvent]:
    return AuditEvent.objects.order_by("seq").iterator(chunk_size=_CHUNK_ROWS)


def _link_fault(event: AuditEvent, previous: Anchor) -> ChainFault | None:
    if event.seq != previous.seq + 1:
        return ChainFault(previous.seq + 1, "is missing")
    if event.previous_digest != previous.digest:
        return ChainFault(event.seq, "does not follow from the row before it")
    if event.digest != digest_of(event):
        return ChainFault(event.seq, "was changed after it was written")
    return None


def _end_fault(last: Anchor, kept: Anchor | None) -> ChainFault | None:
    if last != anchor():
        return ChainFault(last.seq + 1, "is missing at the end, or the head was changed")
    if kept is not None and kept.seq > last.seq:
        return ChainFault(last.seq + 1, f"is missing: the anchor that was kept has number {kept.seq}")
    return None
