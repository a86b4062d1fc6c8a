"""The answer while a pool's breaker is open: an operator's text, in the shape of the API that was asked.

Marked by the header `x-sluicegate-fallback` and counted apart, never as success of the pool. Which tiers may have it
is the pool's to say (`FallbackSpec`); another pool as the fallback is `proxy.service`'s part. Usage is all zeros:
nothing was generated and nothing is charged.
"""

import msgspec

from gateway.refusals.answers import JSON, Answer, Headers
from gateway.requests.body import Ask
from gateway.requests.endpoints import Kind
from gateway.tally import Exchange

HEADER = b"x-sluicegate-fallback"
_EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")
_NO_CACHE = (b"cache-control", b"no-cache")
_encode = msgspec.json.Encoder().encode
_DONE = b"data: [DONE]\n\n"
_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
_TOKENS = {"input_tokens": 0, "output_tokens": 0}
_RESPONSE_USAGE = {
    **_TOKENS,
    "total_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}

Json = dict[str, object]


def text_answer(kind: Kind, ask: Ask, text: str, record: Exchange) -> Answer | None:
    """The whole answer with `text`; None for endpoints that do not answer with text."""
    match kind:
        case Kind.CHAT | Kind.COMPLETIONS:
            body = _choices(kind, ask, text, record)
        case Kind.RESPONSES:
            body = _response(ask, text, record)
        case Kind.MESSAGES:
            body = _message(ask, text, record)
        case _:
            return None
    headers: Headers = [(HEADER, b"text"), *((_EVENTS, _NO_CACHE) if ask.stream else (JSON,))]
    return Answer(200, headers, body)


def _event(payload: Json, name: str | None = None) -> bytes:
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + _encode(payload) + b"\n\n"


def _choices(kind: Kind, ask: Ask, text: str, record: Exchange) -> bytes:
    is_chat = kind is Kind.CHAT
    base: Json = {
        "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{record.request_id}",
        "object": "chat.completion" if is_chat else "text_completion",
        "created": int(record.at),
        "model": ask.model,
    }
    if not ask.stream:
        said: Json = {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
        choice: Json = {"index": 0, **said, "logprobs": None, "finish_reason": "stop"}
        return _encode({**base, "choices": [choice], "usage": _USAGE})
    if is_chat:
        base["object"] = "chat.completion.chunk"
        parts: list[tuple[Json, str | None]] = [
            ({"delta": {"role": "assistant", "content": ""}}, None),
            ({"delta": {"content": text}}, None),
            ({"delta": {}}, "stop"),
        ]
    else:
        parts = [({"text": text}, None), ({"text": ""}, "stop")]
    events = [
        _event({**base, "choices": [{"index": 0, **said, "logprobs": None, "finish_reason": finish}]})
        for said, finish in parts
    ]
    if ask.include_usage:
        events.append(_event({**base, "choices": [], "usage": _USAGE}))
    return b"".join([*events, _DONE])


def _response(ask: Ask, text: str, record: Exchange) -> bytes:
    part: Json = {"type": "output_text", "text": text, "annotations": []}
    item_id = f"msg_{record.request_id}"
    item: Json = {
        "type": "message",
        "id": item_id,
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }
    whole: Json = {
        "id": f"resp_{record.request_id}",
        "object": "response",
        "created_at": int(record.at),
        "status": "completed",
        "model": ask.model,
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": _RESPONSE_USAGE,
    }
    if not ask.stream:
        return _encode(whole)
    started: Json = {**whole, "status": "in_progress", "output": []}
    place: Json = {"item_id": item_id, "output_index": 0, "content_index": 0}
    steps: list[tuple[str, Json]] = [
        ("response.created", {"response": started}),
        (
            "response.output_item.added",
            {"output_index": 0, "item": {**item, "status": "in_progress", "content": []}},
        ),
        ("response.content_part.added", {**place, "part": {**part, "text": ""}}),
        ("response.output_text.delta", {**place, "delta": text}),
        ("response.output_text.done", {**place, "text": text}),
        ("response.content_part.done", {**place, "part": part}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": whole}),
    ]
    return b"".join(
        _event({"type": name, "sequence_number": number, **payload}, name)
        for number, (name, payload) in enumerate(steps)
    )


def _message(ask: Ask, text: str, record: Exchange) -> bytes:
    base: Json = {
        "id": f"msg_{record.request_id}",
        "type": "message",
        "role": "assistant",
        "model": ask.model,
    }
    block: Json = {"type": "text", "text": text}
    ended: Json = {"stop_reason": "end_turn", "stop_sequence": None}
    if not ask.stream:
        return _encode({**base, "content": [block], **ended, "usage": _TOKENS})
    started: Json = {**base, "content": [], "stop_reason": None, "stop_sequence": None, "usage": _TOKENS}
    steps: list[tuple[str, Json]] = [
        ("message_start", {"message": started}),
        ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
        ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": text}}),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": ended, "usage": {"output_tokens": 0}}),
        ("message_stop", {}),
    ]
    return b"".join(_event({"type": name, **payload}, name) for name, payload in steps)
