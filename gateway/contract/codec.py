"""Bodies to bytes and back, validated whole: types, schema version, then meaning (`checks`).

A reader accepts its own schema and the one before it, and ignores fields that it does not know: a newer control
plane may add. Anything else is refused with the field and the reason, and nothing of it is used.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from gateway.contract import bounds as bounds_
from gateway.contract import explanation as explanation_
from gateway.contract import frame as frame_
from gateway.contract import overrides as overrides_
from gateway.contract import report as report_
from gateway.contract import snapshot as snapshot_
from gateway.contract.bounds import Bounds
from gateway.contract.checks import bounds_problems, overrides_problems, snapshot_problems
from gateway.contract.explanation import Explanation
from gateway.contract.frame import Frame
from gateway.contract.overrides import Overrides
from gateway.contract.report import GatewayReport, UsageDelta
from gateway.contract.snapshot import Snapshot
from gateway.core.policy import Problem

Body = TypeVar("Body", bound=Struct)

MAX_SNAPSHOT_BYTES = 64 << 20
MAX_BOUNDS_BYTES = 1 << 20
MAX_OVERRIDES_BYTES = 1 << 20
MAX_REPORT_BYTES = 8 << 20
MAX_FRAME_BYTES = 16 << 10
MAX_USAGE_BYTES = 4 << 10
MAX_EXPLANATION_BYTES = 8 << 10


class ContractRefused(Exception):  # noqa: N818  # named for what happened, as everywhere here
    """A body is not what it must be. `field` says where (empty: the whole), `message` why."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message


class _SchemaOnly(Struct):
    schema: int


_schema_decoder = msgspec.json.Decoder(_SchemaOnly)
_encode = msgspec.json.encode


class _Kind(Generic[Body]):
    """How one kind of body is read: its type, its bound on size, its schema and what it must satisfy."""

    def __init__(
        self,
        body: type[Body],
        max_bytes: int,
        schema: int | None,
        problems: Callable[[Body], Iterable[Problem]] = lambda _: (),
    ) -> None:
        self._decoder = msgspec.json.Decoder(body)
        self._max_bytes = max_bytes
        self._schema = schema
        self._problems = problems

    def decode(self, data: bytes) -> Body:
        if len(data) > self._max_bytes:
            raise ContractRefused("", f"is larger than {self._max_bytes} bytes")
        try:
            if self._schema is not None:
                _accept_schema(_schema_decoder.decode(data).schema, self._schema)
            body = self._decoder.decode(data)
        except (msgspec.DecodeError, RecursionError) as fault:
            raise _refusal(fault) from None
        for problem in self._problems(body):
            raise ContractRefused(problem.field, problem.message)
        return body


def _accept_schema(given: int, own: int) -> None:
    if given not in {own, max(1, own - 1)}:
        raise ContractRefused("schema", f"is {given}; this side reads {max(1, own - 1)} to {own}")


def _refusal(fault: Exception) -> ContractRefused:
    """Split the decoder's words into the field and the reason."""
    message, _, path = str(fault).partition(" - at `$")
    return ContractRefused(path.rstrip("`").lstrip("."), message or type(fault).__name__)


_SNAPSHOT = _Kind(Snapshot, MAX_SNAPSHOT_BYTES, snapshot_.SCHEMA, snapshot_problems)
_BOUNDS = _Kind(Bounds, MAX_BOUNDS_BYTES, bounds_.SCHEMA, bounds_problems)
_OVERRIDES = _Kind(Overrides, MAX_OVERRIDES_BYTES, overrides_.SCHEMA, overrides_problems)
_REPORT = _Kind(GatewayReport, MAX_REPORT_BYTES, report_.SCHEMA)
_FRAME = _Kind(Frame, MAX_FRAME_BYTES, frame_.SCHEMA)
_EXPLANATION = _Kind(Explanation, MAX_EXPLANATION_BYTES, explanation_.SCHEMA)
_USAGE = _Kind(UsageDelta, MAX_USAGE_BYTES, None)


def encode(body: Snapshot | Bounds | Overrides | GatewayReport | Frame | UsageDelta | Explanation) -> bytes:
    """A body as JSON bytes."""
    return _encode(body)


def decode_snapshot(data: bytes) -> Snapshot:
    """Read a snapshot.

    Raises:
        ContractRefused: it is too large, malformed, of an unknown schema, or contradicts itself.
    """
    return _SNAPSHOT.decode(data)


def decode_bounds(data: bytes) -> Bounds:
    """Read bounds.

    Raises:
        ContractRefused: as for `decode_snapshot`.
    """
    return _BOUNDS.decode(data)


def decode_overrides(data: bytes) -> Overrides:
    """Read the overrides in force.

    Raises:
        ContractRefused: as for `decode_snapshot`.
    """
    return _OVERRIDES.decode(data)


def decode_report(data: bytes) -> GatewayReport:
    """Read a gateway's report.

    Raises:
        ContractRefused: as for `decode_snapshot`.
    """
    return _REPORT.decode(data)


def decode_frame(data: bytes) -> Frame:
    """Read a frame.

    Raises:
        ContractRefused: as for `decode_snapshot`.
    """
    return _FRAME.decode(data)


def decode_usage(data: bytes) -> UsageDelta:
    """Read one usage delta.

    Raises:
        ContractRefused: as for `decode_snapshot`.
    """
    return _USAGE.decode(data)


def decode_explanation(data: bytes) -> Explanation:
    """Read one explanation.

    Raises:
        ContractRefused: as for `decode_snapshot`.
    """
    return _EXPLANATION.decode(data)
