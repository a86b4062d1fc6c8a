"""The endpoints that are proxied. Nothing else passes, whatever a path looks like."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What an endpoint's body and answer look like."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"
    RESPONSES = "responses"
    MESSAGES = "messages"
    RERANK = "rerank"
    TOKENIZE = "tokenize"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One proxied endpoint.

    `streams`: the engine can answer as server-sent events, so it is always asked to. `injects_usage`: the usage chunk
    has to be asked for with `stream_options`; elsewhere the last events carry it anyway.
    """

    kind: Kind
    path: str
    streams: bool = False
    injects_usage: bool = False

    @property
    def is_anthropic(self) -> bool:
        """True where errors have Anthropic's shape."""
        return self.kind is Kind.MESSAGES


_ALL = (
    Endpoint(Kind.CHAT, "/v1/chat/completions", streams=True, injects_usage=True),
    Endpoint(Kind.COMPLETIONS, "/v1/completions", streams=True, injects_usage=True),
    Endpoint(Kind.EMBEDDINGS, "/v1/embeddings"),
    Endpoint(Kind.RESPONSES, "/v1/responses", streams=True),
    Endpoint(Kind.MESSAGES, "/v1/messages", streams=True),
    Endpoint(Kind.RERANK, "/v1/rerank"),
    Endpoint(Kind.TOKENIZE, "/tokenize"),
)
ENDPOINTS: dict[str, Endpoint] = {endpoint.path: endpoint for endpoint in _ALL}
MODELS_PATH = "/v1/models"
