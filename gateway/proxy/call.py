"""One request on its way through the gateway: what is known of it, and what has been sent of its answer."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway.contract.snapshot import GrantSpec, PoolSpec
from gateway.gatekeeper import Gatekeeper, Ticket
from gateway.refusals.answers import Answer, Headers, Wording
from gateway.requests.body import Ask
from gateway.requests.endpoints import Endpoint
from gateway.requests.hints import Hints
from gateway.sse import EventReader
from gateway.state import Applied
from gateway.tally import Exchange

if TYPE_CHECKING:
    import asyncio

Send = Callable[[dict[str, Any]], Awaitable[None]]


class Reply:
    """The answer as far as it was sent. The status line goes out once; `record` learns what was said."""

    __slots__ = ("_common", "_record", "_send", "extra", "is_complete", "is_started")

    def __init__(self, send: Send, record: Exchange, common: Callable[[], Headers]) -> None:
        self._send = send
        self._record = record
        self._common = common
        self.extra: Headers = []
        self.is_started = False
        self.is_complete = False

    async def start(self, status: int, headers: Headers) -> None:
        """Commit the status line and the headers; those that every answer has are added here."""
        self._record.status = status
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [*headers, *self.extra, *self._common()],
            }
        )
        self.is_started = True

    async def body(self, data: bytes) -> None:
        """More of the body."""
        self._record.bytes_out += len(data)
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """The last of the body."""
        self._record.bytes_out += len(data)
        self.is_complete = True
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def whole(self, answer: Answer) -> None:
        """A whole answer at once."""
        headers = [*answer.headers, (b"content-length", b"%d" % len(answer.body))]
        await self.start(answer.status, headers)
        await self.end(answer.body)


class Bodies:
    """How many bytes of request bodies this gateway holds: what its memory budget is about."""

    __slots__ = ("held_bytes",)

    def __init__(self) -> None:
        self.held_bytes = 0


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """See the module. Made by `app` once it is known who asks for what; `proxy` takes it from there."""

    endpoint: Endpoint
    ask: Ask
    hints: Hints
    headers: Mapping[bytes, bytes]
    body: bytes  # needed until the answer begins
    bodies: Bodies
    applied: Applied
    pool: PoolSpec
    grant: GrantSpec | None  # of a fallback pool: the main one where that has none
    tier: int
    arrived_at: float
    record: Exchange
    reply: Reply
    wording: Wording
    keeper: Gatekeeper
    prompt_estimate: int = 1
    inherited: int = 0  # LLM tokens of the requests whose ticket this one took over: charged with its own

    ticket: Ticket | None = None
    reader: EventReader | None = None
    opener: "asyncio.Task[Any] | None" = None  # waits for the head of a backend's answer
    has_left: bool = False
    is_superseded: bool = False
    is_cancelled: bool = False  # by ourselves, to stop the opener
    is_lagging: bool = False  # the last write waited for the caller
    first_token_at: float | None = None
    last_token_at: float = 0.0
    scale: float = 1.0  # LLM tokens per content event of this pool
    credit: float = 0.0  # part of a token that was not reported yet

    def drop_body(self) -> None:
        """The answer has begun, or none will: a stream that runs for minutes holds no prompt."""
        self.bodies.held_bytes -= len(self.body)
        self.body = b""

    def leave(self) -> None:
        """The caller has gone: give back everything at once and stop the backend's work, whatever is being awaited."""
        if self.has_left:
            return
        self.has_left = True
        if self.ticket is not None:
            self.keeper.leave(self.ticket, self.tokens_to_charge())

    def supersede(self, newer: "Call") -> Ticket | None:
        """A newer request with the same idempotency key takes over: returns the ticket, None where it has ended."""
        ticket, self.ticket = self.ticket, None
        self.is_superseded = True
        if ticket is None or not ticket.is_open:
            return None
        newer.inherited = self.inherited
        if ticket.dispatch is not None:  # else the same work could be had many times for the price of one
            newer.inherited += self.prompt_estimate + (self.tokens_so_far() or 0)
        ticket.hand_over()
        return ticket

    def tokens_so_far(self) -> int | None:
        """LLM tokens that the backend has sent, as far as is known; None before it answered."""
        reader = self.reader
        if reader is None:
            return None
        seen = round(reader.content_events * self.scale)
        # early usage is an early figure: messages name one output token before the first
        return max(seen, reader.usage.completion_tokens) if reader.usage is not None else seen

    def tokens_to_charge(self) -> int | None:
        """The same for an answer that stops here, with what the requests before it used."""
        so_far = self.tokens_so_far()
        return (so_far or 0) + self.inherited if self.inherited else so_far

    def cancel_opening(self) -> None:
        """Stop waiting for the head of a backend's answer; the request's own task then ends quietly."""
        if self.opener is not None and not self.is_cancelled:
            self.is_cancelled = True
            self.opener.cancel()
