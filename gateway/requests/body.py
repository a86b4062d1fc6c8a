"""Reading a request's body, and building the one that is sent on.

Only what is needed is decoded, with the types that it must have; everything else stays bytes and is passed on as it
came. The body that a backend gets is rebuilt from the parsed members, so that it has each member once (a repeated
one counts as its last), asks for a stream wherever the engine can stream, and never holds what would steer the
engine: its scheduling priority, its slots and ranks, the id of somebody's request, another address, another model.
"""

import re

import msgspec
from msgspec import Raw, Struct

from gateway.faults import CallerError, CallerFault
from gateway.requests.endpoints import Endpoint
from gateway.requests.measure import measure, prompt_count
from gateway.requests.shapes import DECODERS, EMPTY, Body, Count

MAX_CHOICES = 128
_TRUE = Raw(b"true")
_NULL = b"null"
# What steers an engine rather than the answer. Grants are by model, routing and priority are the gate's, and no caller
# may name an address that an engine connects to, or hand it code.
_STEERING = (
    "priority",
    "api_base",
    "base_url",
    "api_key",
    "fallbacks",  # of other proxies: another model
    "request_id",  # vLLM: ids are the gateway's, a caller could name somebody else's
    "kv_transfer_params",  # vLLM: the host to fetch a cache from
    "rid",  # SGLang, likewise, and down to its routing
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "data_parallel_rank",
    "routed_dp_rank",
    "disagg_prefill_dp_rank",
    "session_params",
    "custom_logit_processor",  # pickled code
    "lora_path",
    "id_slot",  # llama.cpp: the slot to run in
    "lora",
    "disaggregated_params",  # TensorRT-LLM
    "nvext",  # Dynamo: the instance to run on
    "adapter_id",  # TGI
)
_BOUNDS = ("max_tokens", "max_output_tokens", "max_completion_tokens", "max_new_tokens", "n_predict")
_CHOICES = ("n", "best_of", "n_cmpl")
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
    text_bytes, flat_tokens = measure(parsed)
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


def _decode(endpoint: Endpoint, body: bytes) -> Body:
    try:
        if not body.isascii():
            body.decode()  # members that stay bytes are not looked at again: no broken text may pass
        return DECODERS[endpoint.kind].decode(body)
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


def _whole(name: str, value: Count, most: int | None = None) -> int | None:
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


def _output_bound(body: Body) -> int | None:
    """The caller's own bound on output tokens, over all choices: the largest of all spellings that some engine reads.

    Engines differ in which one they obey where several are named, so that a smaller one would be a way to reserve
    little and take much.
    """
    bounds = [_whole(name, value) for name in _BOUNDS if (value := _named_bound(body, name)) is not None]
    choices = _choices(body)
    is_endless = body.n_predict is not None and body.n_predict < 0
    return None if is_endless or not bounds else max(b or 0 for b in bounds) * choices


def _named_bound(body: Body, name: str) -> Count:
    value: Count = getattr(body, name)
    return None if name == "n_predict" and value is not None and value < 0 else value  # llama.cpp: no bound


def _choices(body: Body) -> int:
    """How many answers the engine makes at once: choices of each prompt."""
    each = max(_whole(name, getattr(body, name), MAX_CHOICES) or 1 for name in _CHOICES)
    prompts = prompt_count(body)
    if each * prompts > MAX_CHOICES:
        raise CallerError(
            CallerFault.INVALID,
            f"Invalid value for 'prompt': at most {MAX_CHOICES} answers in one request are allowed, "
            f"here {prompts} prompts ask for {each} each.",
            "prompt",
        )
    return each * prompts


def _is_streamable(body: Body) -> bool:
    """False for options that engines refuse together with a stream; a caller that wants both hears it from them."""
    if body.stream:
        return True
    logprobs = body.prompt_logprobs
    wants_logprobs = logprobs is not EMPTY and bytes(logprobs) != _NULL
    return not (wants_logprobs or body.use_beam_search or (body.best_of or 1) > (body.n or 1))
