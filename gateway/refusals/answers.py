"""Refusals as whole answers. The table of statuses and codes of the data plane is here and nowhere else.

Load and quotas are 429; `breaker_open`, `no_backend`, `gateway_overload` and `draining` are 503. `Retry-After` and
`retry-after-ms` name the same slot: official clients sleep the second where both are there, so it is never earlier
than the slot and never longer than the first. Where only a later time helps there is no Retry-After, and
`x-should-retry: false`.
"""

import math
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from gateway.core.commands import RetryAfter
from gateway.core.vocabulary import Fault, ShedReason
from gateway.faults import CallerError, CallerFault
from gateway.refusals.texts import fault_text, shed_text

Headers = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
_RETRY = (b"x-should-retry", b"true")
_NO_RETRY = (b"x-should-retry", b"false")
_encode = msgspec.json.Encoder().encode
_UNAVAILABLE = frozenset(
    {ShedReason.BREAKER_OPEN, ShedReason.NO_BACKEND, ShedReason.GATEWAY_OVERLOAD, ShedReason.DRAINING}
)
_RATE = frozenset({ShedReason.RATE_LIMITED, ShedReason.TOKEN_LIMITED, ShedReason.CONCURRENCY_LIMITED})
_TIMEOUTS = frozenset({Fault.FIRST_BYTE_TIMEOUT, Fault.IDLE_TIMEOUT, Fault.TOTAL_TIMEOUT})
_STATUS_OF_FAULT: dict[CallerFault, tuple[int, str | None]] = {
    CallerFault.MALFORMED: (400, "invalid_json"),
    CallerFault.INVALID: (400, "invalid_value"),
    CallerFault.UNAUTHENTICATED: (401, "invalid_api_key"),
    CallerFault.UNKNOWN_MODEL: (404, "model_not_found"),
    CallerFault.UNKNOWN_PATH: (404, "unknown_url"),
    CallerFault.WRONG_METHOD: (405, "method_not_supported"),
    CallerFault.TOO_LARGE: (413, "request_too_large"),
    CallerFault.TOO_SLOW: (408, "request_timeout"),
    CallerFault.CODED_BODY: (415, "unsupported_content_encoding"),
    CallerFault.KEY_REUSED: (422, "idempotency_key_reused"),
    CallerFault.SUPERSEDED: (409, "superseded"),
}
_ANTHROPIC_TYPE = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class Answer(Struct, frozen=True):
    """A whole answer: what is sent, and what the access line says about it."""

    status: int
    headers: Headers
    body: bytes


class Wording(Struct, frozen=True):
    """How to say it: in which API's shape, in which language, about which request."""

    request_id: str
    is_anthropic: bool = False
    language: str = "en"
    replaced: tuple[Mapping[str, str], ...] = ()  # messages that replace ours, first match wins


class Shed(Struct, frozen=True):
    """What the gate said, and the instants that it is about (epoch seconds)."""

    reason: ShedReason
    retry_after: RetryAfter | None
    retry_in_s: float | None  # from now to the slot, unrounded
    reset_at: float | None  # when trying again makes sense, also where that is too late for Retry-After


def _body(status: int, wording: Wording, error: dict[str, object]) -> bytes:
    error["request_id"] = wording.request_id
    if not wording.is_anthropic:
        return _encode({"error": error})
    error["type"] = _ANTHROPIC_TYPE.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return _encode({"type": "error", "error": error, "request_id": wording.request_id})


def shed_status(reason: ShedReason) -> int:
    """429 for load and quotas, 503 where nothing serves."""
    return 503 if reason in _UNAVAILABLE else 429


def _shed_code(reason: ShedReason) -> tuple[str, str]:
    """(code, type) of a shed reason."""
    if reason is ShedReason.QUOTA_EXHAUSTED:
        return "insufficient_quota", "insufficient_quota"
    if reason in _RATE:
        return "rate_limit_exceeded", "tokens" if reason is ShedReason.TOKEN_LIMITED else "requests"
    return "CAPACITY_OVERLOAD", "server_error" if reason in _UNAVAILABLE else "rate_limit_error"


def of_shed(shed: Shed, wording: Wording) -> Answer:
    """The gate refused or evicted a ticket."""
    after_s = shed.retry_after.after_s if shed.retry_after is not None else None
    status = shed_status(shed.reason)
    code, kind = _shed_code(shed.reason)
    headers: Headers = [JSON]
    if after_s is None:
        headers.append(_NO_RETRY)
    else:
        exact_ms = after_s * 1000 if shed.retry_in_s is None else math.ceil(shed.retry_in_s * 1000)
        headers += (
            (b"retry-after", b"%d" % after_s),
            (b"retry-after-ms", b"%d" % max(1, min(exact_ms, after_s * 1000))),
            _RETRY,
        )
    if shed.reset_at is not None:
        headers.append((b"x-ratelimit-reset", b"%d" % math.ceil(shed.reset_at)))
    error: dict[str, object] = {
        "message": shed_text(shed.reason, wording.language, after_s, wording.replaced),
        "type": kind,
        "code": code,
        "param": None,
        "retry_after_seconds": after_s,
        "reason": shed.reason.value,
    }
    return Answer(status, headers, _body(status, wording, error))


def of_caller_error(error: CallerError, wording: Wording) -> Answer:
    """The caller's own mistake: trying again unchanged does not help."""
    status, code = _STATUS_OF_FAULT[error.fault]
    headers: Headers = [JSON, _NO_RETRY]
    if error.fault is CallerFault.UNAUTHENTICATED:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.fault is CallerFault.WRONG_METHOD:
        headers.append((b"allow", b"POST"))
    if error.fault in (CallerFault.TOO_LARGE, CallerFault.TOO_SLOW):
        headers.append((b"connection", b"close"))  # the rest of the body is not read
    fields: dict[str, object] = {
        "message": error.message,
        "type": "invalid_request_error",
        "code": code,
        "param": error.param,
    }
    return Answer(status, headers, _body(status, wording, fields))


def fault_status(fault: Fault) -> int:
    """504 for time-outs of ours, 502 for everything else that a backend does wrong."""
    return 504 if fault in _TIMEOUTS else 502


def _fault_error(fault: Fault, wording: Wording) -> dict[str, object]:
    return {
        "message": fault_text(fault, wording.language),
        "type": "server_error",
        "code": "backend_timeout" if fault in _TIMEOUTS else "backend_error",
        "param": None,
        "reason": fault.value,
    }


def of_fault(fault: Fault, wording: Wording) -> Answer:
    """A backend failed before the first byte."""
    status = fault_status(fault)
    return Answer(status, [JSON], _body(status, wording, _fault_error(fault, wording)))


def fault_event(fault: Fault, wording: Wording) -> bytes:
    """The one event that ends a stream whose backend died: no [DONE] follows it."""
    status = fault_status(fault)
    data = _body(status, wording, _fault_error(fault, wording))
    if wording.is_anthropic:
        return b"event: error\ndata: " + data + b"\n\n"
    return b"data: " + data + b"\n\n"
