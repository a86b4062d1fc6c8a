"""How answers look on the wire, byte for byte as vLLM 0.32 and llama.cpp b10434 frame them.

A stream is a role chunk (chat only), one chunk per LLM token, the finish reason (vLLM: in the last content chunk;
llama.cpp: in a chunk of its own), a usage chunk with empty choices where the caller asked for usage, and [DONE].
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from gateway.simulation.serve.wire import Asked

DONE = b"data: [DONE]\n\n"
BUSY_MESSAGE = (
    "The engine is currently busy and cannot accept new requests. "
    "Please try again later or on a different instance."
)
CRASH_MESSAGE = "EngineCore encountered an issue. See stack trace (above) for the root cause."

Fields = dict[str, Any]


class Dialect(StrEnum):
    """Whose manners the simulated engine has."""

    VLLM = "vllm"
    LLAMA_CPP = "llama.cpp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """The frames of one answer."""

    dialect: Dialect
    asked: Asked
    answer_id: str
    created: int
    model: str

    def opening(self) -> bytes:
        """What a stream begins with, together with the first token."""
        if not self.asked.is_chat:
            return b""
        content = "" if self.dialect is Dialect.VLLM else None
        return self._choices({"role": "assistant", "content": content}, None, 0)

    def token(self, index: int) -> bytes:
        """The chunk of the token with that index."""
        is_last = index == len(self.asked.pieces) - 1
        finish = self.finish_reason() if is_last and self.dialect is Dialect.VLLM else None
        return self._choices(self._delta(index), finish, index + 1)

    def closing(self) -> bytes:
        """What a complete stream ends with."""
        out = b""
        if self.dialect is Dialect.LLAMA_CPP:
            out += self._choices({}, self.finish_reason(), len(self.asked.pieces))
        options = self.asked.body.stream_options
        if options is not None and options.include_usage:
            fields = self._fields(self._object() + ".chunk" if self.asked.is_chat else self._object())
            out += event({**fields, "choices": [], "usage": self.usage(len(self.asked.pieces))})
        return out + DONE

    def whole(self) -> bytes:
        """The answer to a caller that did not ask for a stream."""
        text = "".join(self.asked.pieces)
        choices = []
        for index in range(self.asked.body.n):
            choice: Fields = {"index": index, "finish_reason": self.finish_reason()}
            if not self.asked.is_chat:
                choice["text"] = text
            elif self.asked.tool is None:
                choice["message"] = {"role": "assistant", "content": text}
            else:
                call = {"id": self._call_id(), "type": "function"}
                call_fields = {**call, "function": {"name": self.asked.tool, "arguments": text}}
                choice["message"] = {"role": "assistant", "content": None, "tool_calls": [call_fields]}
            choices.append(choice)
        usage = self.usage(len(self.asked.pieces))
        return msgspec.json.encode({**self._fields(self._object()), "choices": choices, "usage": usage})

    def usage(self, generated: int) -> Fields:
        """What was used so far. Several choices are counted as one, as the engines do."""
        prompt = self.asked.prompt_tokens
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + generated,
            "completion_tokens": generated,
        }

    def finish_reason(self) -> str:
        """Why the answer ended."""
        if self.asked.is_cut and self.asked.tool is None:
            return "length"
        return "stop" if self.asked.tool is None else "tool_calls"

    def _delta(self, index: int) -> Fields:
        piece = self.asked.pieces[index]
        if self.asked.tool is None:
            return {"content": piece}
        call: Fields = {"index": 0, "function": {"arguments": piece}}
        if index == 0:
            call |= {"id": self._call_id(), "type": "function"}
            call["function"]["name"] = self.asked.tool
        return {"tool_calls": [call]}

    def _choices(self, delta: Fields, finish: str | None, generated: int) -> bytes:
        choices: list[Fields] = []
        for index in range(self.asked.body.n):
            choice: Fields = {"index": index, "finish_reason": finish}
            if self.asked.is_chat:
                choice["delta"] = delta
            else:
                choice["text"] = delta.get("content", "")
            if self.dialect is Dialect.VLLM:
                choice["logprobs"] = None
            choices.append(choice)
        kind = "chat.completion.chunk" if self.asked.is_chat else "text_completion"
        fields = {**self._fields(kind), "choices": choices}
        options = self.asked.body.stream_options
        if options is not None and options.continuous_usage_stats:
            fields["usage"] = self.usage(generated)
        return event(fields)

    def _object(self) -> str:
        return "chat.completion" if self.asked.is_chat else "text_completion"

    def _fields(self, kind: str) -> Fields:
        fields: Fields = {"id": self.answer_id, "object": kind, "created": self.created, "model": self.model}
        if self.dialect is Dialect.LLAMA_CPP:
            fields["system_fingerprint"] = "b1-simulated"
        return fields

    def _call_id(self) -> str:
        return f"call_{self.answer_id[-12:]}"


def event(fields: Fields) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def error_fields(dialect: Dialect, status: int, message: str, param: str | None = None) -> Fields:
    """An error as that engine words it."""
    if dialect is Dialect.LLAMA_CPP:
        kinds = {400: "invalid_request_error", 404: "not_found_error", 503: "unavailable_error"}
        return {"error": {"code": status, "message": message, "type": kinds.get(status, "server_error")}}
    kinds = {400: "BadRequestError", 404: "NotFoundError", 503: "Service Unavailable"}
    kind = kinds.get(status, "InternalServerError")
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}
