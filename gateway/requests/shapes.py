"""The shapes of request bodies, as far as they are looked at. Members that are not named here are passed on unread."""

import msgspec
from msgspec import Raw, Struct

from gateway.requests.endpoints import Kind

EMPTY = Raw(b"")  # a member that is absent: compare by identity


class Part(Struct):
    """One part of a message: text, or something that is counted flat, or a nested value that is counted by bytes."""

    type: str = "text"
    text: str | None = None
    content: Raw = EMPTY
    input: Raw = EMPTY


class Message(Struct):
    """One message, of any of the APIs."""

    role: str | None = None
    content: str | list[Part] | None = None
    tool_calls: Raw = EMPTY
    arguments: Raw = EMPTY
    output: Raw = EMPTY


class StreamOptions(Struct):
    """What the caller wants of a stream."""

    include_usage: bool | None = None


Count = int | float | None
Text = str | list[str | int | list[int]]  # a list mixes only where the caller mixes; the engine judges that


class Body(Struct):
    """What every kind may have. Kinds add what they require and what they measure."""

    model: str
    stream: bool | None = None
    max_tokens: Count = None
    max_completion_tokens: Count = None
    max_output_tokens: Count = None
    max_new_tokens: Count = None  # SGLang's and TGI's own name
    n_predict: Count = None  # llama.cpp's own name, obeyed before the others
    n: Count = None
    best_of: Count = None
    n_cmpl: Count = None  # llama.cpp's own name for n
    stream_options: StreamOptions | None = None
    prompt_logprobs: Raw = EMPTY
    use_beam_search: bool | None = None
    tools: Raw = EMPTY
    functions: Raw = EMPTY


class Chat(Body, kw_only=True):
    """/v1/chat/completions."""

    messages: list[Message]


class Completion(Body, kw_only=True):
    """/v1/completions."""

    prompt: Text | None = None
    prompt_embeds: Raw = EMPTY


class Embedding(Body, kw_only=True):
    """/v1/embeddings."""

    input: str | list[str | int | list[int] | Part]


class Response(Body, kw_only=True):
    """/v1/responses."""

    input: str | list[Message]
    instructions: str | None = None


class AnthropicMessages(Body, kw_only=True):
    """/v1/messages."""

    messages: list[Message]
    system: str | list[Part] | None = None


class Document(Struct):
    """A document to rank that is not plain text."""

    text: str | None = None


class Rerank(Body, kw_only=True):
    """/v1/rerank."""

    query: str
    documents: list[str | Document]


class Tokenize(Body, kw_only=True):
    """/tokenize: some engines take no model."""

    model: str = ""
    prompt: str | None = None
    content: str | None = None
    messages: list[Message] | None = None


DECODERS: dict[Kind, msgspec.json.Decoder[Body]] = {
    Kind.CHAT: msgspec.json.Decoder(Chat),
    Kind.COMPLETIONS: msgspec.json.Decoder(Completion),
    Kind.EMBEDDINGS: msgspec.json.Decoder(Embedding),
    Kind.RESPONSES: msgspec.json.Decoder(Response),
    Kind.MESSAGES: msgspec.json.Decoder(AnthropicMessages),
    Kind.RERANK: msgspec.json.Decoder(Rerank),
    Kind.TOKENIZE: msgspec.json.Decoder(Tokenize),
}
