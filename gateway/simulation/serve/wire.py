"""What callers ask of a simulated engine, read from the body of a request. Bad input raises `WrongRequest`."""

import math
import random
from typing import Any

import msgspec
from msgspec import Struct

BYTES_PER_TOKEN = 4
TOKENS_PER_MESSAGE = 4
TOKENS_PER_IMAGE = 1000
MEAN_OUTPUT_TOKENS = 120
OUTPUT_SIGMA = 0.6


class WrongRequest(Exception):  # noqa: N818  # it names the guilty side
    """The caller's fault: `status`, `message`, and the guilty field."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param


class StreamOptions(Struct, frozen=True):
    """What a stream carries besides content."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class Function(Struct, frozen=True):
    """A tool's function as the caller describes it."""

    name: str
    parameters: dict[str, Any] | None = None


class Tool(Struct, frozen=True):
    """A tool that the model may call."""

    function: Function
    type: str = "function"


class Message(Struct, frozen=True):
    """One message of a chat."""

    role: str
    content: str | list[dict[str, Any]] | None = None


class Body(Struct, frozen=True):
    """The fields of a chat completion, or of a completion, that the model obeys. All others are ignored."""

    model: str = ""
    messages: list[Message] | None = None
    prompt: str | list[str | int | list[int]] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int = 1
    priority: int = 0
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    seed: int | None = None


class Asked(Struct, frozen=True, kw_only=True):
    """A request, understood. `output_tokens` includes those of a tool call; `is_cut` says that max_tokens ended it."""

    body: Body
    is_chat: bool
    prompt_tokens: int
    output_tokens: int
    is_cut: bool
    pieces: tuple[str, ...]
    tool: str | None


_decoder = msgspec.json.Decoder(Body)


def read(raw: bytes, *, is_chat: bool, dice: random.Random) -> Asked:
    """Understand a body. Answers have exactly max_tokens tokens; without a bound their length is drawn."""
    try:
        body = _decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise WrongRequest(400, f"The body is not a valid request: {error}") from error
    if is_chat and not body.messages:
        raise WrongRequest(400, "messages must not be empty", "messages")
    if not is_chat and body.prompt is None:
        raise WrongRequest(400, "prompt is required", "prompt")
    bound = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    if bound is not None and bound < 1:
        raise WrongRequest(400, "max_tokens must be at least 1", "max_tokens")
    if not 1 <= body.n <= 16:  # as many choices as engines usually give
        raise WrongRequest(400, "n must be 1..16", "n")
    tool = _tool(body) if is_chat else None
    if tool is None:
        natural = bound if bound is not None else _drawn_length(dice)
        pieces = tuple(_word(dice, index) for index in range(natural))
    else:
        pieces = _arguments(tool.function, dice)
    length = len(pieces) if bound is None else min(bound, len(pieces))
    return Asked(
        body=body,
        is_chat=is_chat,
        prompt_tokens=_prompt_tokens(body),
        output_tokens=length,
        is_cut=bound is not None and length == bound,
        pieces=pieces[:length],
        tool=tool.function.name if tool else None,
    )


def _prompt_tokens(body: Body) -> int:
    if body.messages is not None:
        return sum(TOKENS_PER_MESSAGE + _content_tokens(message.content) for message in body.messages)
    if body.prompt is None or isinstance(body.prompt, str):
        return max(1, _text_tokens(body.prompt or ""))
    return max(1, sum(map(_part_tokens, body.prompt)))


def _part_tokens(part: str | int | list[int]) -> int:
    """Prompts may be text, LLM tokens by number, or lists of either."""
    if isinstance(part, str):
        return _text_tokens(part)
    return len(part) if isinstance(part, list) else 1


def _content_tokens(content: str | list[dict[str, Any]] | None) -> int:
    if content is None:
        return 0
    if isinstance(content, str):
        return _text_tokens(content)
    return sum(
        _text_tokens(str(part.get("text", ""))) if part.get("type") == "text" else TOKENS_PER_IMAGE
        for part in content
    )


def _text_tokens(text: str) -> int:
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def _drawn_length(dice: random.Random) -> int:
    drawn = dice.lognormvariate(math.log(MEAN_OUTPUT_TOKENS) - OUTPUT_SIGMA**2 / 2, OUTPUT_SIGMA)
    return max(1, round(drawn))


_WORDS = (
    "the", "queue", "drains", "as", "seats", "come", "free", "and", "each", "answer", "takes", "its", "turn", "so",
    "nothing", "waits", "longer", "than", "it", "must", "while", "water", "finds", "a", "level", "through", "gates",
)  # fmt: skip


def _word(dice: random.Random, index: int) -> str:
    word = dice.choice(_WORDS)
    return word if index == 0 else " " + word


def _tool(body: Body) -> Tool | None:
    """The tool that is called: the one that the caller chose, else the first; none where told so."""
    if not body.tools or body.tool_choice == "none":
        return None
    if isinstance(body.tool_choice, dict):
        chosen = body.tool_choice.get("function")
        wanted = chosen.get("name") if isinstance(chosen, dict) else None
        for tool in body.tools:
            if tool.function.name == wanted:
                return tool
        raise WrongRequest(400, "tool_choice names a tool that is not in tools", "tool_choice")
    return body.tools[0]


def _arguments(function: Function, dice: random.Random) -> tuple[str, ...]:
    """The arguments of a call as JSON text, one piece per token."""
    properties = (function.parameters or {}).get("properties")
    if not isinstance(properties, dict):
        properties = {}
    values = {name: _argument(schema, dice) for name, schema in properties.items()}
    text = msgspec.json.encode(values).decode()
    return tuple(text[at : at + BYTES_PER_TOKEN] for at in range(0, len(text), BYTES_PER_TOKEN))


def _argument(schema: Any, dice: random.Random) -> Any:  # noqa: ANN401  # any JSON value
    match schema.get("type") if isinstance(schema, dict) else None:
        case "integer" | "number":
            return dice.randrange(100)
        case "boolean":
            return True
        case "array":
            return []
        case "object":
            return {}
        case _:
            return f"{dice.choice(_WORDS)} {dice.choice(_WORDS)}"
