"""The backend of the benchmark: prebuilt bytes on asyncio.Protocol, so that it costs as little as Python can.

    python -m benchmarks.upstream        prints its three ports, one JSON line, and serves until it is ended

`fast` answers at once: events in one write to a request that streams, else one JSON body. `paced` streams an event
every 20 ms, spread evenly over the 20 ms between all streams. `idle` begins a stream and says nothing more.
"""

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any, cast

import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable

SPACING_S = 0.02
SLOTS = 20  # of 1 ms: how finely streams are spread
CONTENT_EVENTS = 8
USAGE = {"prompt_tokens": 12, "completion_tokens": CONTENT_EVENTS, "total_tokens": 12 + CONTENT_EVENTS}
COMMON = {"id": "chatcmpl-0123456789abcdef", "created": 1_800_000_000, "model": "m"}


def event(payload: object) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"


def chat(delta: dict[str, str], finish: str | None = None) -> bytes:
    """One piece of a streamed chat."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return event({**COMMON, "object": "chat.completion.chunk", "choices": [choice]})


def chunked(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def whole(payload: object) -> bytes:
    """A complete JSON answer."""
    body = json.dumps(payload, separators=(",", ":")).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ROLE = chat({"role": "assistant", "content": ""})
CONTENT = chat({"content": " word"})
LAST = chat({}, "stop") + event({**COMMON, "object": "chat.completion.chunk", "choices": [], "usage": USAGE})
EVENTS = HEAD + chunked(ROLE + CONTENT * CONTENT_EVENTS + LAST + b"data: [DONE]\n\n") + b"0\r\n\r\n"
MESSAGE = {"role": "assistant", "content": " word" * CONTENT_EVENTS}
CHAT = whole(
    {
        **COMMON,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": MESSAGE, "logprobs": None, "finish_reason": "stop"}],
        "usage": USAGE,
    }
)
EMBEDDING = whole(
    {
        "object": "list",
        "model": "m",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.125] * 32}],
        "usage": {"prompt_tokens": 12, "total_tokens": 12},
    }
)
PIECE = chunked(CONTENT)
BEGIN = HEAD + chunked(ROLE)


class Backend(asyncio.Protocol):
    """One connection; a request is whole when its announced length is there."""

    def __init__(self) -> None:
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer each request that is whole."""
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            at = self.buffer.lower().find(b"content-length: ", 0, end)
            length = int(self.buffer[at + 16 : self.buffer.find(b"\r", at)]) if at >= 0 else 0
            if len(self.buffer) < end + 4 + length:
                return
            request, self.buffer = self.buffer[: end + 4 + length], self.buffer[end + 4 + length :]
            self.answer(request, end)

    def answer(self, request: bytes, end: int) -> None:
        """Everything at once."""
        if b"/embeddings" in request[:40]:
            self.transport.write(EMBEDDING)
        elif b'"stream":true' in request[end:] or b'"stream": true' in request[end:]:
            self.transport.write(EVENTS)
        else:
            self.transport.write(CHAT)


class Idle(Backend):
    """Begins to stream, and no more."""

    def answer(self, request: bytes, end: int) -> None:  # noqa: ARG002  # the same answer to everything
        """Headers and the first event."""
        self.transport.write(BEGIN)


class Paced(Idle):
    """Streams until the peer leaves."""

    slots: tuple[set["Paced"], ...] = tuple(set() for _ in range(SLOTS))

    def answer(self, request: bytes, end: int) -> None:
        """Begin, then take part in the emptiest slot."""
        super().answer(request, end)
        min(self.slots, key=len).add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # whatever ended it
        """Nobody listens any more."""
        for slot in self.slots:
            slot.discard(self)


async def pace() -> None:
    """Write one event to each stream of each slot, slot by slot, without drifting."""
    loop = asyncio.get_running_loop()
    tick, began = 0, loop.time()
    while True:
        tick += 1
        await asyncio.sleep(max(0.0, began + tick * SPACING_S / SLOTS - loop.time()))
        for stream in Paced.slots[tick % SLOTS]:
            stream.transport.write(PIECE)


async def serve() -> None:
    """Listen on three ports and say which."""
    loop = asyncio.get_running_loop()
    ports: dict[str, Any] = {}
    kinds: dict[str, Callable[[], Backend]] = {"fast": Backend, "paced": Paced, "idle": Idle}
    servers = []
    for name, kind in kinds.items():
        server = await loop.create_server(kind, "127.0.0.1", 0, backlog=4096)
        servers.append(server)
        ports[name] = server.sockets[0].getsockname()[1]
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    await pace()


if __name__ == "__main__":
    uvloop.run(serve())
