"""A scripted backend on raw TCP: what a test says, byte for byte, and a record of every byte that came in.

It is deliberately not built on an HTTP library: it counts requests as a strict server would, so that bytes which an
ambiguous framing would turn into a second request are seen as one. Scripts are set out of band, never by the request.

    async with FakeBackend(Sse(3, gap_s=0.01)) as backend:
        backend.then(Status(503), Hold())      # the next two requests; afterwards the default script again
        ... talk to backend.url ...
        assert backend.max_in_flight == 1
"""

import asyncio
import json
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

PROMPT_TOKENS = 5
COMPLETION_TOKENS = 7


@dataclass(slots=True)
class Recorded:
    """One request as it arrived: raw bytes and the parts that tests look at."""

    raw: bytes
    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int
    at: float
    peer_closed_at: float | None = None
    answered_at: float | None = None

    def header(self, name: str) -> list[str]:
        """All values of a field, in order."""
        return [value for key, value in self.headers if key == name.lower()]

    @property
    def json(self) -> Any:
        """The body, decoded; {} when there is none, or it is not a JSON object."""
        try:
            decoded = json.loads(self.body)
        except ValueError:
            return {}
        return decoded if isinstance(decoded, dict) else {}

    @property
    def streams(self) -> bool:
        """Whether the body asks for a stream."""
        return self.json.get("stream") is True

    @property
    def wants_usage(self) -> bool:
        """Whether the body asks for the usage chunk."""
        return bool((self.json.get("stream_options") or {}).get("include_usage"))


class PeerClosedError(Exception):
    """The peer closed while a script was still answering."""


class Line:
    """What a script sees of its connection: ordered writes that wait for the peer, and the ways to end it."""

    def __init__(self, connection: "_Connection", request: Recorded) -> None:
        self._connection = connection
        self.request = request
        self.backend = connection.backend

    async def write(self, data: bytes) -> None:
        """Send; waits while the peer does not read. Raises PeerClosedError once it has gone."""
        self._connection.send(data)
        await self._connection.drained()

    async def head(self, status: int, headers: Sequence[tuple[str, str]], reason: str = "X") -> None:
        """Send the status line and the header fields."""
        lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers), "", ""]
        await self.write("\r\n".join(lines).encode("latin-1"))

    async def chunk(self, data: bytes) -> None:
        """Send one chunk of a chunked body."""
        await self.write(b"%x\r\n%s\r\n" % (len(data), data))

    def fin(self) -> None:
        """Close in order, after what has been written."""
        self._connection.close()

    def rst(self) -> None:
        """Reset: the peer gets ECONNRESET."""
        self._connection.reset()


def chat_chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """One chat.completion.chunk event, framed as engines do."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return event(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [choice],
        }
    )


def usage_chunk(prompt: int = PROMPT_TOKENS, completion: int = COMPLETION_TOKENS) -> bytes:
    """The usage-only event that ends a stream when the request asked for it."""
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return event({**base, "choices": [], "usage": usage})


def event(payload: Any) -> bytes:
    """One data event."""
    return b"data: " + json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Hold:
    """Read the request, send nothing until `backend.release()`, then answer with `then`."""

    then: Any = None

    async def __call__(self, line: Line) -> None:
        await line.backend.released()
        await (self.then or Json())(line)


@dataclass(frozen=True)
class Json:
    """200 with usage; as one JSON body, or as the same answer in events when the request asks to stream."""

    delay_s: float = 0.0
    prompt: int = PROMPT_TOKENS
    completion: int = COMPLETION_TOKENS
    always: bool = False

    async def __call__(self, line: Line) -> None:
        await asyncio.sleep(self.delay_s)
        if line.request.streams and not self.always:
            await Sse(self.completion, prompt=self.prompt)(line)
            return
        usage = {"prompt_tokens": self.prompt, "completion_tokens": self.completion}
        usage["total_tokens"] = self.prompt + self.completion
        message = {"role": "assistant", "content": "x" * self.completion}
        body = json.dumps(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": usage,
            }
        ).encode()
        await line.head(200, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        await line.write(body)


@dataclass(frozen=True)
class Sse:
    """Role chunk, `n` content chunks `gap_s` apart, finish chunk, usage chunk if asked for, [DONE]."""

    n: int = COMPLETION_TOKENS
    gap_s: float = 0.0
    prompt: int = PROMPT_TOKENS
    first_s: float = 0.0

    async def __call__(self, line: Line) -> None:
        await self.start(line)
        await line.chunk(chat_chunk({}, finish="stop"))
        if line.request.wants_usage:
            await line.chunk(usage_chunk(self.prompt, self.n))
        await line.chunk(DONE)
        await line.write(b"0\r\n\r\n")

    async def start(self, line: Line) -> None:
        """Headers, role chunk and the content chunks."""
        await line.head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
        await asyncio.sleep(self.first_s)
        await line.chunk(chat_chunk({"role": "assistant", "content": ""}))
        for index in range(self.n):
            if self.gap_s:
                await asyncio.sleep(self.gap_s)
            await line.chunk(chat_chunk({"content": f"t{index} "}))


@dataclass(frozen=True)
class Status:
    """An error answer of the engine, in the OpenAI shape unless `body` says otherwise."""

    code: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None

    async def __call__(self, line: Line) -> None:
        body = self.body
        if body is None:
            body = json.dumps(
                {"error": {"message": f"status {self.code}", "type": "fake", "code": self.code}}
            ).encode()
        fields = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), *self.headers]
        await line.head(self.code, fields)
        await line.write(body)


@dataclass(frozen=True)
class Rst:
    """`n` content chunks, then a TCP reset."""

    n: int = 0
    gap_s: float = 0.0

    async def __call__(self, line: Line) -> None:
        await Sse(self.n, self.gap_s).start(line)
        await asyncio.sleep(0.02)  # a reset overtakes bytes the peer has not read yet
        line.rst()


@dataclass(frozen=True)
class Fin:
    """`n` content chunks, then an orderly close without the last-chunk marker."""

    n: int = 0
    gap_s: float = 0.0

    async def __call__(self, line: Line) -> None:
        await Sse(self.n, self.gap_s).start(line)
        line.fin()


@dataclass(frozen=True)
class HdrDelay:
    """Nothing for `delay_s`, not even headers, then `then`."""

    delay_s: float
    then: Any = None

    async def __call__(self, line: Line) -> None:
        await asyncio.sleep(self.delay_s)
        await (self.then or Json())(line)


@dataclass(frozen=True)
class Raw:
    """Bytes as they are, with pauses (floats) between; then keep the connection, or `end` it with "fin" or "rst"."""

    parts: tuple[bytes | float, ...]
    end: str = ""

    async def __call__(self, line: Line) -> None:
        for part in self.parts:
            if isinstance(part, bytes):
                await line.write(part)
            else:
                await asyncio.sleep(part)
        if self.end == "fin":
            line.fin()
        elif self.end == "rst":
            line.rst()


@dataclass(frozen=True)
class CloseAtOnce:
    """Read the request, answer nothing and close ("fin") or reset ("rst")."""

    how: str = "fin"

    async def __call__(self, line: Line) -> None:
        line.rst() if self.how == "rst" else line.fin()


@dataclass(frozen=True)
class Flood:
    """A stream of `total` bytes in content events of `size` bytes, as fast as the peer takes them."""

    total: int
    size: int = 16 * 1024

    async def __call__(self, line: Line) -> None:
        await line.head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
        content = chat_chunk({"content": "x" * self.size})
        sent = 0
        while sent < self.total:
            await line.chunk(content)
            sent += len(content)
            line.backend.flooded += len(content)
        await line.chunk(DONE)
        await line.write(b"0\r\n\r\n")


@dataclass(slots=True)
class Metrics:
    """What `/metrics` answers."""

    text: str = "# TYPE fake gauge\nfake 1\n"
    delay_s: float = 0.0
    status: int = 200


@dataclass
class FakeBackend:
    """See the module. `default` answers when no script is planned; `keep_alive_s` closes idle connections."""

    default: Any = field(default_factory=Json)
    host: str = "127.0.0.1"
    unix_path: str | None = None
    tls: ssl.SSLContext | None = None
    keep_alive_s: float | None = None

    requests: list[Recorded] = field(default_factory=list)
    malformed: list[bytes] = field(default_factory=list)
    connections: int = 0
    open_connections: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    flooded: int = 0
    metrics: Metrics = field(default_factory=Metrics)
    metrics_requests: int = 0
    port: int = 0

    def __post_init__(self) -> None:
        self._planned: deque[Any] = deque()
        self._release = asyncio.Event()
        self._lines: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def listen(self) -> None:
        """Start to accept; a port that was used before is used again."""
        loop = asyncio.get_running_loop()
        if self.unix_path is not None:
            self._server = await loop.create_unix_server(lambda: _Connection(self), self.unix_path)
            return
        self._server = await loop.create_server(
            lambda: _Connection(self), self.host, self.port, ssl=self.tls, backlog=1024, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Close the listener only: new connections are refused, open ones live on."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await asyncio.sleep(0)

    async def stop(self) -> None:
        """Close the listener and every connection."""
        await self.refuse()
        for line in list(self._lines):
            line.close()
        await self.until(lambda: not self._lines, 5)

    @property
    def url(self) -> str:
        """The base URL to configure."""
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}"

    def then(self, *scripts: Any) -> None:
        """Plan the next requests, one script each; afterwards the default script answers."""
        self._planned.extend(scripts)

    def release(self) -> None:
        """Let every held request go on."""
        self._release.set()
        self._release = asyncio.Event()

    async def released(self) -> None:
        """Wait for the next release."""
        await self._release.wait()

    async def until(self, condition: Callable[[], bool], timeout_s: float = 3.0) -> None:
        """Wait until a condition on this backend holds; raises TimeoutError with the figures."""
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():  # noqa: ASYNC110  # any condition, also on time
                    await asyncio.sleep(0.002)
        except TimeoutError:
            raise TimeoutError(f"still not so after {timeout_s} s: {self!r}") from None

    def __repr__(self) -> str:
        return (
            f"<FakeBackend :{self.port} requests={len(self.requests)} in_flight={self.in_flight} "
            f"max={self.max_in_flight} open={self.open_connections} connections={self.connections}>"
        )

    def next_script(self) -> Any:
        """The script for the request that has just arrived."""
        return self._planned.popleft() if self._planned else self.default


class _Connection(asyncio.Protocol):
    def __init__(self, backend: FakeBackend) -> None:
        self.backend = backend
        self.buffer = bytearray()
        self.task: asyncio.Task[None] | None = None
        self.current: Recorded | None = None
        self.lost = False
        self.idle: asyncio.TimerHandle | None = None
        self.writable = asyncio.Event()
        self.writable.set()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=64 * 1024)
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family != socket.AF_UNIX:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)  # writes block soon
        self.backend.connections += 1
        self.number = self.backend.connections
        self.backend.open_connections += 1
        self.backend._lines.add(self)
        self.rest()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.backend.open_connections -= 1
        self.backend._lines.discard(self)
        if self.current is not None:
            self.current.peer_closed_at = time.monotonic()
            self.finished()
        if self.idle is not None:
            self.idle.cancel()
        self.writable.set()
        if self.task is not None:
            self.task.cancel()
        if self.buffer:
            self.backend.malformed.append(bytes(self.buffer))

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def send(self, data: bytes) -> None:
        if self.lost:
            raise PeerClosedError
        self.transport.write(data)

    async def drained(self) -> None:
        await self.writable.wait()
        if self.lost:
            raise PeerClosedError

    def close(self) -> None:
        self.transport.close()

    def reset(self) -> None:
        raw = self.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def rest(self) -> None:
        if self.backend.keep_alive_s is not None:
            loop = asyncio.get_running_loop()
            self.idle = loop.call_later(self.backend.keep_alive_s, self.close)

    def data_received(self, data: bytes) -> None:
        if self.idle is not None:
            self.idle.cancel()
        self.buffer += data
        self.advance()

    def advance(self) -> None:
        if self.current is not None or self.lost:
            return
        try:
            taken = take_request(self.buffer)
        except ValueError:
            self.backend.malformed.append(bytes(self.buffer))
            self.buffer.clear()
            self.transport.abort()
            return
        if taken is not None:
            request, used = taken
            del self.buffer[:used]
            request.connection = self.number
            self.begin(request)

    def begin(self, request: Recorded) -> None:
        self.current = request
        if request.path.endswith("/metrics"):
            self.backend.metrics_requests += 1
            script: Any = _serve_metrics
        else:
            self.backend.requests.append(request)
            self.backend.in_flight += 1
            self.backend.max_in_flight = max(self.backend.max_in_flight, self.backend.in_flight)
            script = self.backend.next_script()
        self.task = asyncio.get_running_loop().create_task(self.play(script, request))

    async def play(self, script: Any, request: Recorded) -> None:
        try:
            await script(Line(self, request))
        except PeerClosedError:
            return
        if self.current is request:
            request.answered_at = time.monotonic()
            self.finished()
        if not self.lost:
            self.rest()
            self.advance()

    def finished(self) -> None:
        if self.current is not None and not self.current.path.endswith("/metrics"):
            self.backend.in_flight -= 1
        self.current = None


async def _serve_metrics(line: Line) -> None:
    metrics = line.backend.metrics
    await asyncio.sleep(metrics.delay_s)
    body = metrics.text.encode()
    await line.head(
        metrics.status, [("Content-Type", "text/plain; version=0.0.4"), ("Content-Length", str(len(body)))]
    )
    await line.write(body)


def take_request(buffer: bytearray) -> tuple[Recorded, int] | None:
    """The first request in the buffer and its length, or None while it is incomplete.

    Raises:
        ValueError: for anything that is not exactly one way to frame a message.
    """
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(buffer[:end]).decode("latin-1").split("\r\n")
    method, path, version = head[0].split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError("version")
    pairs = [line.split(":", 1) for line in head[1:]]
    headers = [(name.lower(), value.strip()) for name, value in pairs]
    used = _body_end(buffer, end + 4, headers)
    if used is None:
        return None
    body, stop = used
    return Recorded(bytes(buffer[:stop]), method, path, headers, body, 0, time.monotonic()), stop


def _body_end(buffer: bytearray, start: int, headers: list[tuple[str, str]]) -> tuple[bytes, int] | None:
    lengths = [value for name, value in headers if name == "content-length"]
    codings = [value for name, value in headers if name == "transfer-encoding"]
    if len(lengths) + len(codings) > 1:
        raise ValueError("two framings")
    if codings:
        if codings != ["chunked"]:
            raise ValueError("coding")
        return _chunks(buffer, start)
    length = int(lengths[0]) if lengths else 0
    stop = start + length
    return (bytes(buffer[start:stop]), stop) if len(buffer) >= stop else None


def _chunks(buffer: bytearray, start: int) -> tuple[bytes, int] | None:
    body = bytearray()
    while True:
        line_end = buffer.find(b"\r\n", start)
        if line_end < 0:
            return None
        size = int(bytes(buffer[start:line_end]), 16)
        start = line_end + 2
        if len(buffer) < start + size + 2:
            return None
        if buffer[start + size : start + size + 2] != b"\r\n":
            raise ValueError("chunk end")
        body += buffer[start : start + size]
        start += size + 2
        if size == 0:
            return bytes(body), start
