"""What one event's data says: output, usage, an error. Only events that may hold usage or an error are decoded.

JSON escapes the quotes inside strings, so `"usage"` or `"error"` with both quotes bare is never model output.
"""

import re
from enum import StrEnum

import msgspec

_OUTPUT = re.compile(rb'"(?:content|text|reasoning(?:_content)?|refusal|arguments|name)":\s*"[^"]')
_QUOTE = ord('"')
#: No context is as long as this: a larger figure is a lie, and would be charged to a tenant and put into the ledger.
MOST_TOKENS = 1 << 27


class Dialect(StrEnum):
    """Which API's events: they differ in what carries output and where usage is found."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"


class Usage(msgspec.Struct, frozen=True):
    """LLM tokens of one answer as the engine counted them; `cached_tokens` is the prompt's share in its prefix cache."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class ErrorEvent(msgspec.Struct, frozen=True):
    """An error inside a stream. `code` is the HTTP status the engine names, None if it names none (503: busy)."""

    code: int | None
    message: str
    payload: bytes


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _WireUsage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None


class _WireError(msgspec.Struct):
    message: str | None = None
    code: int | str | None = None
    type: str | None = None


class _Nested(msgspec.Struct):
    usage: _WireUsage | None = None
    error: _WireError | str | None = None


class Candidate(msgspec.Struct):
    """The fields of one event that matter here, in any of the dialects."""

    type: str | None = None
    usage: _WireUsage | None = None
    choices: list[msgspec.Raw] | None = None
    error: _WireError | str | None = None
    response: _Nested | None = None
    message: _Nested | str | None = None
    code: int | str | None = None


#: Data of one event -> Candidate; raises msgspec.DecodeError where malformed, RecursionError where nested too deeply.
decode = msgspec.json.Decoder(Candidate).decode


def read_usage(payload: bytes) -> Usage | None:
    """Usage of a whole JSON answer, or of one event's data; None where there is none or it is malformed."""
    try:
        found = decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return None
    return usage_of(found, None)


def carries_output(payload: bytes, dialect: Dialect) -> bool:
    """Whether an event brings something that the model generated: text, reasoning, a refusal or a tool call."""
    match dialect:
        case Dialect.RESPONSES:
            return b'.delta"' in payload
        case Dialect.MESSAGES:
            return b'"content_block_delta"' in payload
        case Dialect.CHAT | Dialect.COMPLETIONS:
            at = payload.find(b'"content":"')
            return (at >= 0 and payload[at + 11] != _QUOTE) or _OUTPUT.search(payload) is not None


def usage_of(found: Candidate, before: Usage | None) -> Usage | None:
    """Usage in one event, over what an earlier one said: messages report the prompt first and the output last."""
    nested = found.response or found.message
    wire = found.usage or (nested.usage if isinstance(nested, _Nested) else None)
    if wire is None:
        return None
    before = before or Usage()
    details = wire.prompt_tokens_details or wire.input_tokens_details
    cached = details.cached_tokens if details is not None else wire.cache_read_input_tokens
    return Usage(
        prompt_tokens=_first(wire.prompt_tokens, wire.input_tokens, before.prompt_tokens),
        completion_tokens=_first(wire.completion_tokens, wire.output_tokens, before.completion_tokens),
        cached_tokens=_first(cached, None, before.cached_tokens),
    )


def _first(first: int | None, second: int | None, otherwise: int) -> int:
    value = first if first is not None else second
    return value if value is not None and 0 <= value <= MOST_TOKENS else otherwise


def error_of(found: Candidate, payload: bytes) -> ErrorEvent | None:
    """The error that an event reports, None for others."""
    wire = found.error or (found.response.error if found.response is not None else None)
    if wire is None and found.type == "error":
        wire = _WireError(message=found.message if isinstance(found.message, str) else None)
    if wire is None:
        return None
    if isinstance(wire, str):
        wire = _WireError(message=wire)
    code = wire.code if wire.code is not None else found.code
    return ErrorEvent(_status(code, wire.type), wire.message or "", payload)


def _status(code: int | str | None, kind: str | None) -> int | None:
    if isinstance(code, str):
        code = int(code) if code.isascii() and code.isdigit() and len(code) == 3 else None  # a status
    if code is None and kind == "overloaded_error":
        return 503
    return code
