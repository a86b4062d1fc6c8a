"""Who takes the events of one API, and gives the whole answer: chat, completions, responses, messages.

Merging follows what official clients do with the same chunks: strings are joined, lists are joined, parts with an
`index` are merged with the part of that index, names and ids are taken once, everything else counts as its last.
"""

from typing import Any, Protocol

import msgspec

from gateway.sse import Dialect

Json = dict[str, Any]

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode
_TAKEN_ONCE = frozenset({"id", "type", "role", "index", "object", "name"})
_CHUNK_ONLY = frozenset({"choices", "usage", "object", "obfuscation"})


class NoAnswerError(Exception):
    """The events do not make a whole answer: the stream ended early, or is not what its API says."""


class Aggregate(Protocol):
    """One answer in the making."""

    def take(self, payload: bytes) -> None:
        """The data of one event, in order, without `[DONE]`.

        Raises:
            NoAnswerError: the data is not a JSON object.
        """

    def answer(self) -> bytes:
        """The whole answer as JSON.

        Raises:
            NoAnswerError: the stream did not come to its end.
        """


def for_dialect(dialect: Dialect) -> Aggregate:
    """A fresh builder for one answer."""
    match dialect:
        case Dialect.CHAT:
            return _Choices("chat.completion", "message")
        case Dialect.COMPLETIONS:
            return _Choices("text_completion", None)
        case Dialect.RESPONSES:
            return _Response()
        case Dialect.MESSAGES:
            return _Message()


def _object(payload: bytes) -> Json:
    try:
        return _decode(payload)
    except (msgspec.DecodeError, RecursionError):
        raise NoAnswerError("an event is not a JSON object") from None


def _merge(into: Json, more: Json) -> None:
    for name, value in more.items():
        have = into.get(name)
        if value is None or have is None:
            if name not in into or value is not None:
                into[name] = _unindexed(value)
        elif isinstance(have, str) and isinstance(value, str):
            into[name] = have if name in _TAKEN_ONCE else have + value
        elif isinstance(have, list) and isinstance(value, list):
            _merge_list(have, value)
        elif isinstance(have, dict) and isinstance(value, dict):
            _merge(have, value)
        else:
            into[name] = value


def _unindexed(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    """A list of indexed parts starts as parts merged by index, also where the first event names one twice."""
    if isinstance(value, list) and value and all(isinstance(v, dict) and "index" in v for v in value):
        parts: list[Json] = []
        _merge_list(parts, value)
        return parts
    return value


def _merge_list(have: list[Any], more: list[Any]) -> None:
    known = {index: part for part in have if (index := _index(part)) is not None}
    for part in more:
        index = _index(part)
        if index is None or index not in known:
            have.append(part)
            if index is not None:
                known[index] = part
        else:
            _merge(known[index], part)


def _index(part: Any) -> int | str | None:  # noqa: ANN401  # any JSON value
    index = part.get("index") if isinstance(part, dict) else None
    return index if isinstance(index, int | str) else None


def _without_index(parts: Any) -> Any:  # noqa: ANN401  # any JSON value
    """Tool calls in order of their index, which only chunks have."""
    if not isinstance(parts, list):
        return parts
    ordered = sorted(parts, key=_place)
    return [{k: v for k, v in p.items() if k != "index"} if isinstance(p, dict) else p for p in ordered]


def _text(block: Json, name: str) -> str:
    value = block.get(name)
    return value if isinstance(value, str) else ""


def _place(part: Any) -> int:  # noqa: ANN401  # any JSON value
    index = part.get("index") if isinstance(part, dict) else None
    return index if isinstance(index, int) else 0


class _Choices:
    """Chat completions (`holder` = "message": deltas are merged into it) and completions (None: text is joined)."""

    __slots__ = ("_choices", "_holder", "_object", "_top", "_usage")

    def __init__(self, kind: str, holder: str | None) -> None:
        self._object = kind
        self._holder = holder
        self._top: Json = {}
        self._choices: dict[int, Json] = {}
        self._usage: Any = None

    def take(self, payload: bytes) -> None:
        chunk = _object(payload)
        usage = chunk.get("usage")
        if usage is not None:
            self._usage = usage
        for name, value in chunk.items():
            if name not in _CHUNK_ONLY and (value is not None or name not in self._top):
                self._top[name] = value
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            return
        for choice in choices:
            if not isinstance(choice, dict):
                raise NoAnswerError("a choice is not a JSON object")
            self._take_choice(choice)

    def _take_choice(self, choice: Json) -> None:
        index = choice.get("index", 0)
        if not isinstance(index, int):
            raise NoAnswerError("a choice has no index")
        known = self._choices.get(index)
        if known is None:
            known = self._choices[index] = {"index": index, "finish_reason": None}
            if self._holder:
                known[self._holder] = {"role": "assistant", "content": None}
        for name, value in choice.items():
            if name == "delta" and self._holder:
                if isinstance(value, dict):
                    _merge(known[self._holder], value)
            elif name != "index":
                self._take_member(known, name, value)

    @staticmethod
    def _take_member(known: Json, name: str, value: Any) -> None:  # noqa: ANN401  # any JSON value
        if name == "text":
            known[name] = known.get(name, "") + (value if isinstance(value, str) else "")
        elif name == "logprobs" and isinstance(value, dict) and isinstance(known.get(name), dict):
            _merge(known[name], value)
        elif value is not None or name not in known:
            known[name] = value

    def answer(self) -> bytes:
        if not self._choices or any(c["finish_reason"] is None for c in self._choices.values()):
            raise NoAnswerError("the stream ended before its answer did")
        choices = [self._finished(self._choices[index]) for index in sorted(self._choices)]
        whole = {**self._top, "object": self._object, "choices": choices}
        if self._usage is not None:
            whole["usage"] = self._usage
        return _encode(whole)

    def _finished(self, choice: Json) -> Json:
        message = choice.get(self._holder) if self._holder else None
        if message is not None and message.get("tool_calls"):
            message["tool_calls"] = _without_index(message["tool_calls"])
            if message.get("content") == "":
                message["content"] = None
        return choice


class _Response:
    """The responses API ends with an event that holds the whole answer."""

    __slots__ = ("_whole",)

    def __init__(self) -> None:
        self._whole: Any = None

    def take(self, payload: bytes) -> None:
        event = _object(payload)
        if event.get("type") in ("response.completed", "response.incomplete", "response.failed"):
            self._whole = event.get("response")

    def answer(self) -> bytes:
        if not isinstance(self._whole, dict):
            raise NoAnswerError("the stream ended before its answer did")
        return _encode(self._whole)


class _Message:
    """Anthropic's messages: a start, content blocks with deltas, a final delta with the usage, a stop."""

    __slots__ = ("_blocks", "_inputs", "_message", "_stopped")

    def __init__(self) -> None:
        self._message: Json = {}
        self._blocks: dict[int, Json] = {}
        self._inputs: dict[int, str] = {}
        self._stopped = False

    def take(self, payload: bytes) -> None:
        event = _object(payload)
        match event:
            case {"type": "message_start", "message": dict(message)}:
                self._message = message
            case {"type": "content_block_start", "index": int(index), "content_block": dict(block)}:
                self._blocks[index] = block
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)}:
                self._take_delta(index, delta)
            case {"type": "message_delta", "delta": dict(delta)}:
                self._message.update(delta)
                usage = event.get("usage")
                if isinstance(usage, dict):
                    known = self._message.get("usage")
                    self._message["usage"] = {**known, **usage} if isinstance(known, dict) else usage
            case {"type": "message_stop"}:
                self._stopped = True
            case _:
                pass  # pings, the ends of blocks, and what is new

    def _take_delta(self, index: int, delta: Json) -> None:
        block = self._blocks.setdefault(index, {"type": "text", "text": ""})
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                block["text"] = _text(block, "text") + text
            case {"type": "input_json_delta", "partial_json": str(text)}:
                self._inputs[index] = self._inputs.get(index, "") + text
            case {"type": "thinking_delta", "thinking": str(text)}:
                block["thinking"] = _text(block, "thinking") + text
            case {"type": "signature_delta", "signature": str(text)}:
                block["signature"] = _text(block, "signature") + text
            case {"type": "citations_delta", "citation": citation}:
                have = block.get("citations")
                block["citations"] = [*(have if isinstance(have, list) else ()), citation]
            case _:
                pass  # a kind of delta that is not known: nothing to add it to

    def answer(self) -> bytes:
        if not self._stopped or not self._message:
            raise NoAnswerError("the stream ended before its answer did")
        for index, text in self._inputs.items():
            if text:
                self._blocks[index]["input"] = _object(text.encode())
        content = [self._blocks[index] for index in sorted(self._blocks)]
        return _encode({**self._message, "content": content})
