"""Reading a request's body, and building the one that is sent on.

Only what is needed is decoded, with the types that it must have; everything else stays bytes and is passed on as it
came. The body that a backend gets is rebuilt from the parsed members, so that it has each member once (a repeated
one counts as its last), asks for a stream wherever the engine can stream, and never holds what would steer the
engine: its scheduling priority, or another address.
"""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from gateway.faults import CallerError, CallerFault
from gateway.requests.endpoints import Endpoint, Kind

MEDIA_TOKENS = 1000  # what an image, audio or video part counts in an estimate
MESSAGE_TOKENS = 4  # template tokens around each message
MAX_CHOICES = 128
_EMPTY = Raw(b"")
_TRUE = Raw(b"true")
_NULL = b"null"
_STEERING = ("priority", "api_base", "base_url", "api_key")


class _Part(Struct):
    """One part of a message: text, or something that is counted flat, or a nested value that is counted by bytes."""

    type: str = "text"
    text: str | None = None
    content: Raw = _EMPTY
    input: Raw = _EMPTY


class _Message(Struct):
    role: str | None = None
    content: str | list[_Part] | None = None
    tool_calls: Raw = _EMPTY
    arguments: Raw = _EMPTY
    output: Raw = _EMPTY


class _StreamOptions(Struct):
    include_usage: bool | None = None


_Count = int | float | None
_Text = str | list[str | int | list[int]]  # a list mixes only where the caller mixes; the engine judges that


class _Body(Struct):
    """What every kind may have. Kinds add what they require and what they measure."""

    model: str
    stream: bool | None = None
    max_tokens: _Count = None
    max_completion_tokens: _Count = None
    max_output_tokens: _Count = None
    n: _Count = None
    best_of: _Count = None
    stream_options: _StreamOptions | None = None
    prompt_logprobs: Raw = _EMPTY
    use_beam_search: bool | None = None
    tools: Raw = _EMPTY
    functions: Raw = _EMPTY


class _Chat(_Body, kw_only=True):
    messages: list[_Message]


class _Completion(_Body, kw_only=True):
    prompt: _Text | None = None
    prompt_embeds: Raw = _EMPTY


class _Embedding(_Body, kw_only=True):
    input: str | list[str | int | list[int] | _Part]


class _Response(_Body, kw_only=True):
    input: str | list[_Message]
    instructions: str | None = None


class _AnthropicMessages(_Body, kw_only=True):
    messages: list[_Message]
    system: str | list[_Part] | None = None


class _Document(Struct):
    text: str | None = None


class _Rerank(_Body, kw_only=True):
    query: str
    documents: list[str | _Document]


class _Tokenize(_Body, kw_only=True):
    model: str = ""
    prompt: str | None = None
    content: str | None = None
    messages: list[_Message] | None = None


_DECODERS: dict[Kind, msgspec.json.Decoder[_Body]] = {
    Kind.CHAT: msgspec.json.Decoder(_Chat),
    Kind.COMPLETIONS: msgspec.json.Decoder(_Completion),
    Kind.EMBEDDINGS: msgspec.json.Decoder(_Embedding),
    Kind.RESPONSES: msgspec.json.Decoder(_Response),
    Kind.MESSAGES: msgspec.json.Decoder(_AnthropicMessages),
    Kind.RERANK: msgspec.json.Decoder(_Rerank),
    Kind.TOKENIZE: msgspec.json.Decoder(_Tokenize),
}
_members = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.Encoder().encode
_find_path = re.compile(r"^(?P<what>.*) - at `\$(?:\.(?P<path>[^`]*))?`$", re.DOTALL).match
_find_missing = re.compile(r"missing required field `(?P<name>\w+)`").search


class Ask(Struct, frozen=True):
    """What a body asks for. `flat_tokens` counts what has no text: media parts, integer prompts, message templates."""

    model: str
    stream: bool
    include_usage: bool  # the caller itself asked for the usage chunk
    streamable: bool  # False: an option that no engine can stream
    max_output_tokens: int | None  # for all choices together
    text_bytes: int
    flat_tokens: int


def read(endpoint: Endpoint, body: bytes) -> Ask:
    """Decode what is needed of a body.

    Raises:
        CallerError: not JSON, a member that is missing or has a wrong type or value; the member is named.
    """
    parsed = _decode(endpoint, body)
    if parsed.stream and not endpoint.streams:
        parsed.stream = False  # an endpoint that cannot stream ignores the wish, as engines do
    text_bytes, flat_tokens = _measure(parsed)
    return Ask(
        model=parsed.model,
        stream=bool(parsed.stream),
        include_usage=parsed.stream_options is not None and bool(parsed.stream_options.include_usage),
        streamable=endpoint.streams and _is_streamable(parsed),
        max_output_tokens=_output_bound(parsed),
        text_bytes=text_bytes,
        flat_tokens=flat_tokens,
    )


def rebuild(endpoint: Endpoint, ask: Ask, body: bytes, model: str) -> bytes:
    """The body for the backend: one of each member, `model` as the backends call it, streamed where possible.

    Raises:
        CallerError: nested so deeply that it can be read but not rebuilt.
    """
    try:
        members = _members.decode(body)
    except RecursionError:
        raise CallerError(CallerFault.MALFORMED, "The body is nested too deeply.") from None
    for name in _STEERING:
        members.pop(name, None)
    members["model"] = Raw(_encode(model))
    if ask.streamable:
        members["stream"] = _TRUE
        if endpoint.injects_usage:
            members["stream_options"] = _with_usage(members.get("stream_options"))
    return _encode(members)


def _with_usage(options: Raw | None) -> Raw:
    if options is None or bytes(options) == _NULL:
        return Raw(b'{"include_usage":true}')
    members = _members.decode(options)
    members["include_usage"] = _TRUE
    return Raw(_encode(members))


def _decode(endpoint: Endpoint, body: bytes) -> _Body:
    try:
        if not body.isascii():
            body.decode()  # members that stay bytes are not looked at again: no broken text may pass
        return _DECODERS[endpoint.kind].decode(body)
    except UnicodeDecodeError:
        raise CallerError(CallerFault.MALFORMED, "The body is not valid UTF-8.") from None
    except RecursionError:
        raise CallerError(CallerFault.MALFORMED, "The body is nested too deeply.") from None
    except msgspec.ValidationError as error:
        raise _named(str(error)) from None
    except msgspec.DecodeError as error:
        raise CallerError(CallerFault.MALFORMED, f"The body is not valid JSON: {error}") from None


def _named(text: str) -> CallerError:
    """The decoder's message with the member that it is about, in the words of the API."""
    match = _find_path(text)
    what, path = (match["what"], match["path"] or "") if match else (text, "")
    missing = _find_missing(what)
    if missing:
        name = f"{path}.{missing['name']}" if path else missing["name"]
        return CallerError(CallerFault.INVALID, f"Missing required parameter: '{name}'.", name)
    name = path.replace("[...]", "[]")
    where = f"'{name}'" if name else "the body"
    return CallerError(CallerFault.INVALID, f"Invalid type for {where}: {what}.", name or None)


def _whole(name: str, value: _Count, most: int | None = None) -> int | None:
    """A positive whole number or None; a float without a fraction counts as whole."""
    if value is None:
        return None
    if value < 1 or value != int(value):
        raise CallerError(
            CallerFault.INVALID,
            f"Invalid value for '{name}': a whole number of at least 1 is expected.",
            name,
        )
    if most is not None and value > most:
        raise CallerError(
            CallerFault.INVALID, f"Invalid value for '{name}': at most {most} is allowed.", name
        )
    return int(value)


def _output_bound(body: _Body) -> int | None:
    """The caller's own bound on output tokens, over all choices; the first one named of the three spellings."""
    bound: int | None = None
    if body.max_tokens is not None:
        bound = _whole("max_tokens", body.max_tokens)
    if body.max_output_tokens is not None:
        bound = _whole("max_output_tokens", body.max_output_tokens)
    if body.max_completion_tokens is not None:
        bound = _whole("max_completion_tokens", body.max_completion_tokens)
    if body.n is not None or body.best_of is not None:
        choices = max(
            _whole("n", body.n, MAX_CHOICES) or 1, _whole("best_of", body.best_of, MAX_CHOICES) or 1
        )
        bound = None if bound is None else bound * choices
    return bound


def _is_streamable(body: _Body) -> bool:
    """False for options that engines refuse together with a stream; a caller that wants both hears it from them."""
    if body.stream:
        return True
    logprobs = body.prompt_logprobs
    wants_logprobs = logprobs is not _EMPTY and bytes(logprobs) != _NULL
    return not (wants_logprobs or body.use_beam_search or (body.best_of or 1) > (body.n or 1))


def _raw_size(raw: Raw) -> int:
    return 0 if raw is _EMPTY else len(bytes(raw))


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _measure(body: _Body) -> tuple[int, int]:
    """(bytes of text, tokens that are counted flat) of the prompt."""
    size, flat = _raw_size(body.tools) + _raw_size(body.functions), 0
    match body:
        case _Chat() | _AnthropicMessages():
            more, flat = _messages_size(body.messages)
            size += more
            if isinstance(body, _AnthropicMessages) and body.system is not None:
                more, extra = _content_size(body.system)
                size, flat = size + more, flat + extra
        case _Completion():
            size, flat = _text_size(body.prompt)
            size += _raw_size(body.prompt_embeds)
        case _:
            more, flat = _measure_rest(body)
            size += more
    return size, flat


def _measure_rest(body: _Body) -> tuple[int, int]:
    size = flat = 0
    match body:
        case _Response():
            size = _size(body.instructions or "")
            text = body.input
            more, flat = (_size(text), MESSAGE_TOKENS) if isinstance(text, str) else _messages_size(text)
            size += more
        case _Embedding():
            size, flat = _text_size(body.input)
        case _Rerank():
            size = sum(_size(d if isinstance(d, str) else d.text or "") for d in body.documents)
            size += _size(body.query) * len(body.documents)  # the engine reads the query with each of them
        case _Tokenize():
            size, flat = _messages_size(body.messages or [])
            size += _size(body.prompt or "") + _size(body.content or "")
        case _:
            pass  # measured by the caller
    return size, flat


def _messages_size(messages: list[_Message]) -> tuple[int, int]:
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


def _content_size(content: str | list[_Part]) -> tuple[int, int]:
    if isinstance(content, str):
        return _size(content), 0
    size = flat = 0
    for part in content:
        if part.text is not None:
            size += _size(part.text)
        elif "text" not in part.type and part.content is _EMPTY and part.input is _EMPTY:
            flat += MEDIA_TOKENS
        size += _raw_size(part.content) + _raw_size(part.input)
    return size, flat


def _text_size(text: str | Sequence[str | int | list[int] | _Part] | None) -> tuple[int, int]:
    """Text is counted by bytes, integers are tokens already."""
    if text is None:
        return 0, 0
    if isinstance(text, str):
        return _size(text), 0
    size = flat = 0
    for item in text:
        match item:
            case str():
                size += _size(item)
            case int():
                flat += 1
            case _Part():
                more, extra = _content_size([item])
                size, flat = size + more, flat + extra
            case _:
                flat += len(item)
    return size, flat
