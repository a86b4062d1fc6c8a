"""How large a prompt is: bytes of text, and tokens that are counted flat because they have no text."""

from collections.abc import Sequence

from msgspec import Raw

from gateway.requests.shapes import (
    EMPTY,
    AnthropicMessages,
    Body,
    Chat,
    Completion,
    Embedding,
    Message,
    Part,
    Rerank,
    Response,
    Tokenize,
)

MEDIA_TOKENS = 1000  # what an image, audio or video part counts
MESSAGE_TOKENS = 4  # template tokens around each message
ITEM_TOKENS = 1  # of each text in a list: empty ones are work too


def _raw_size(raw: Raw) -> int:
    return 0 if raw is EMPTY else len(bytes(raw))


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def measure(body: Body) -> tuple[int, int]:
    """(bytes of text, tokens that are counted flat) of the prompt."""
    size, flat = _raw_size(body.tools) + _raw_size(body.functions), 0
    match body:
        case Chat() | AnthropicMessages():
            more, flat = _messages_size(body.messages)
            size += more
            if isinstance(body, AnthropicMessages) and body.system is not None:
                more, extra = _content_size(body.system)
                size, flat = size + more, flat + extra
        case Completion():
            size, flat = _text_size(body.prompt)
            size += _raw_size(body.prompt_embeds)
        case _:
            more, flat = _measure_rest(body)
            size += more
    return size, flat


def _measure_rest(body: Body) -> tuple[int, int]:
    size = flat = 0
    match body:
        case Response():
            size = _size(body.instructions or "")
            text = body.input
            more, flat = (_size(text), MESSAGE_TOKENS) if isinstance(text, str) else _messages_size(text)
            size += more
        case Embedding():
            size, flat = _text_size(body.input)
        case Rerank():
            flat = ITEM_TOKENS * len(body.documents)
            size = sum(_size(d if isinstance(d, str) else d.text or "") for d in body.documents)
            size += _size(body.query) * len(body.documents)  # the engine reads the query with each of them
        case Tokenize():
            size, flat = _messages_size(body.messages or [])
            size += _size(body.prompt or "") + _size(body.content or "")
        case _:
            pass  # measured by the caller
    return size, flat


def _messages_size(messages: list[Message]) -> tuple[int, int]:
    size, flat = 0, MESSAGE_TOKENS * len(messages)
    for message in messages:
        size += _raw_size(message.tool_calls) + _raw_size(message.arguments) + _raw_size(message.output)
        content = message.content
        if content.__class__ is str:
            size += _size(content)
        elif content is not None:
            more, extra = _content_size(content)
            size, flat = size + more, flat + extra
    return size, flat


def _content_size(content: str | list[Part]) -> tuple[int, int]:
    if isinstance(content, str):
        return _size(content), 0
    size = flat = 0
    for part in content:
        if part.text is not None:
            size += _size(part.text)
        elif "text" not in part.type and part.content is EMPTY and part.input is EMPTY:
            flat += MEDIA_TOKENS
        size += _raw_size(part.content) + _raw_size(part.input)
    return size, flat


def _text_size(text: str | Sequence[str | int | list[int] | Part] | None) -> tuple[int, int]:
    """Text is counted by bytes, integers are tokens already."""
    if text is None:
        return 0, 0
    if isinstance(text, str):
        return _size(text), 0
    size = flat = 0
    for item in text:
        match item:
            case str():
                size, flat = size + _size(item), flat + ITEM_TOKENS
            case int():
                flat += 1
            case Part():
                more, extra = _content_size([item])
                size, flat = size + more, flat + extra
            case _:
                flat += len(item) or ITEM_TOKENS
    return size, flat


def prompt_count(body: Body) -> int:
    """How many prompts a completion has: one text or one list of tokens, or a list of those."""
    prompt = body.prompt if isinstance(body, Completion) else None
    if not isinstance(prompt, list) or not prompt or isinstance(prompt[0], int):
        return 1
    return len(prompt)
