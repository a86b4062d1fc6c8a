"""Which request heads are taken. llhttp refuses most malformed ones; this refuses what it reads and others might not.

Two readers of one byte stream must never see different requests (request smuggling), so everything that any known
server or proxy reads differently is refused, not repaired. RFC 9110 section 7.2 (Host), RFC 9112 sections 3.2, 6 and
11.2. After a refusal nothing more of that connection is read as a request.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import msgspec

from gateway.edge.limits import Limits

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer of the edge itself: the caller's mistake, before any application saw the request."""

    status: int
    code: str
    message: str

    def body(self, request_id: str) -> bytes:
        """In the shape of the OpenAI API."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        error: dict[str, object] = {"message": self.message, "type": kind, "code": self.code, "param": None}
        if request_id:
            error["request_id"] = request_id
        return msgspec.json.encode({"error": error})


MALFORMED = Refusal(400, "malformed_request", "The request is not well-formed HTTP/1.1.")
BAD_HOST = Refusal(400, "invalid_host", "The request needs exactly one valid Host header.")
BAD_NAME = Refusal(
    400, "invalid_header_name", "A header name has characters that are not accepted here, such as `_`."
)
BAD_LENGTH = Refusal(400, "invalid_content_length", "Content-Length must be one plain decimal number.")
BAD_CODING = Refusal(
    400, "invalid_transfer_encoding", "Transfer-Encoding must be `chunked` alone, on HTTP/1.1."
)
TWO_FRAMINGS = Refusal(400, "ambiguous_framing", "Content-Length and Transfer-Encoding exclude one another.")
TRAILERS = Refusal(400, "trailers_not_accepted", "Trailer fields are not accepted.")
BAD_TARGET = Refusal(400, "invalid_request_target", "The request target must be a path on this host.")
UPGRADE = Refusal(400, "upgrade_not_accepted", "Upgrade is not accepted.")
METHOD = Refusal(405, "method_not_supported", "CONNECT and TRACE are not accepted.")
SLOW_HEAD = Refusal(408, "request_timeout", "The request headers took too long.")
SLOW_BODY = Refusal(408, "request_timeout", "The request body arrives too slowly.")
LARGE_BODY = Refusal(413, "request_too_large", "The request body is larger than allowed.")
LONG_TARGET = Refusal(414, "uri_too_long", "The request target is longer than allowed.")
EXPECTATION = Refusal(417, "expectation_failed", "Only `Expect: 100-continue` is understood.")
LARGE_HEAD = Refusal(431, "headers_too_large", "The request headers are larger or more than allowed.")
VERSION = Refusal(505, "http_version_not_supported", "HTTP/1.1 and HTTP/1.0 are understood.")
CRASH = Refusal(500, "internal_error", "The gateway failed to answer this request.")

# All names, and all values, are looked at in one pass each: what is left without the allowed bytes is wrong.
_NAME_BYTES = b"!#$%&'*+-.^`|~0123456789abcdefghijklmnopqrstuvwxyz"
_VALUE_BYTES = bytes([0x09, *range(0x20, 0x7F), *range(0x80, 0x100)])
_PER_FIELD = len(b": \r\n")
_LENGTH = re.compile(rb"(?:0|[1-9][0-9]{0,17})[ \t]*")
_HOST = re.compile(rb"(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_PATH = re.compile(rb"/[!-\"$-~]*")
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)(/?[^#]*)", re.IGNORECASE)
# One look tells that a request has nothing but fields that cannot matter here: the usual case.
_NONE: tuple[bytes, ...] = ()
_FRAMING = frozenset(
    {b"content-length", b"transfer-encoding", b"host", b"expect", b"upgrade", b"te", b"trailer"}
)


class Head(NamedTuple):
    """What the edge found in a head that it takes."""

    target: bytes
    length: int  # of the body; -1 when it is chunked
    expects_continue: bool


def read_head(  # noqa: PLR0911  # one line per rule
    method: bytes, version: str, target: bytes, headers: Headers, limits: Limits
) -> Head | Refusal:
    """Check one whole head, names in lower case.

    Returns:
        The head when it is unambiguous, otherwise why it is refused.
    """
    if version not in {"1.1", "1.0"}:
        return VERSION
    if method in {b"CONNECT", b"TRACE"}:
        return METHOD
    fields = _framing_fields(headers, limits)
    if isinstance(fields, Refusal):
        return fields
    host = _host(fields.get(b"host", _NONE), version)
    if host is None:
        return BAD_HOST
    path = _target(method, target, host)
    if path is None:
        return BAD_TARGET
    return _framing(fields, version, path)


def _framing_fields(headers: Headers, limits: Limits) -> Mapping[bytes, Sequence[bytes]] | Refusal:
    each = [name for name, _ in headers]
    names = b"".join(each)
    values = b"".join([value for _, value in headers])
    if b"" in each or names.translate(None, _NAME_BYTES):
        return BAD_NAME
    if values.translate(None, _VALUE_BYTES):
        return MALFORMED
    size = len(names) + len(values) + _PER_FIELD * len(headers)
    if size > limits.head_bytes or len(headers) > limits.headers:
        return LARGE_HEAD
    fields: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        if name in _FRAMING:
            fields.setdefault(name, []).append(value)
    return fields


def _host(values: Sequence[bytes], version: str) -> bytes | None:
    """The one Host; b"" where HTTP/1.0 has none; None where it is missing, repeated or invalid."""
    if not values:
        return b"" if version == "1.0" else None
    return _valid_host(values[0]) if len(values) == 1 else None


@lru_cache(maxsize=256)
def _valid_host(value: bytes) -> bytes | None:
    host = value.rstrip(b" \t")
    return host if _HOST.fullmatch(host) else None


def _target(method: bytes, target: bytes, host: bytes) -> bytes | None:
    """The path and query to route by; None where the target leads elsewhere."""
    if _PATH.fullmatch(target):
        return target
    if target == b"*":
        return target if method == b"OPTIONS" else None
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None or not host or absolute[1].lower() != host.lower():
        return None
    path = absolute[2] if absolute[2].startswith(b"/") else b"/" + absolute[2]
    return path if _PATH.fullmatch(path) else None


def _framing(  # noqa: PLR0911  # one line per rule
    fields: Mapping[bytes, Sequence[bytes]], version: str, path: bytes
) -> Head | Refusal:
    lengths = fields.get(b"content-length", _NONE)
    codings = fields.get(b"transfer-encoding", _NONE)
    if lengths and codings:
        return TWO_FRAMINGS
    if b"upgrade" in fields:
        return UPGRADE
    if b"trailer" in fields:
        return TRAILERS
    if codings and (version == "1.0" or len(codings) > 1 or codings[0].rstrip(b" \t").lower() != b"chunked"):
        return BAD_CODING
    if lengths and (len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0])):
        return BAD_LENGTH
    expects = _expectation(fields.get(b"expect", _NONE), version)
    if expects is None:
        return EXPECTATION
    return Head(path, -1 if codings else int(lengths[0]) if lengths else 0, expects)


def _expectation(values: Sequence[bytes], version: str) -> bool | None:
    if not values or version == "1.0":
        return False  # RFC 9110 section 10.1.1: HTTP/1.0 expectations are ignored
    return True if len(values) == 1 and values[0].strip().lower() == b"100-continue" else None
