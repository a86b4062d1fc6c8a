"""For tests that speak raw bytes: a caller on a socket, a strict reader of answers, and the smallest relay."""

import asyncio
import json
import socket
from dataclasses import dataclass, field
from typing import Any

from gateway.departure import EXTENSION
from gateway.edge import Limits, Listener
from gateway.upstream import Target, Timeouts, Upstream, UpstreamError
from tests.fakes.backend import FakeBackend


@dataclass(frozen=True, slots=True)
class Loopback:
    """An address of this machine, with a port that the system chooses."""

    host: str = "127.0.0.1"
    port: int = 0


@dataclass(slots=True)
class Answer:
    """One HTTP answer as it came."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def closes(self) -> bool:
        return "close" in self.header("connection")


@dataclass(slots=True)
class Talk:
    """Everything that came back on one connection."""

    answers: list[Answer]
    rest: bytes
    ended: bool  # the gateway closed

    @property
    def statuses(self) -> list[int]:
        return [answer.status for answer in self.answers]


async def talk(
    port: int, *pieces: bytes | float, timeout_s: float = 5.0, methods: tuple[str, ...] = ()
) -> Talk:
    """Send pieces (floats are pauses), then read until the gateway closes or the time is over."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    received = bytearray()
    ended = True
    reading = asyncio.ensure_future(_read(reader, received))
    try:
        await _send(writer, pieces)
        await asyncio.wait_for(reading, timeout_s)
    except TimeoutError:
        ended = False
    except ConnectionError:
        await asyncio.wait({reading})
        reading.exception()
    finally:
        reading.cancel()
        writer.transport.abort()
    answers, rest = parse_answers(bytes(received), methods, ended=ended)
    return Talk(answers, rest, ended)


async def _send(writer: asyncio.StreamWriter, pieces: tuple[bytes | float, ...]) -> None:
    for piece in pieces:
        if isinstance(piece, float):
            await asyncio.sleep(piece)
        elif writer.is_closing():
            return
        else:
            writer.write(piece)
            await writer.drain()


async def _read(reader: asyncio.StreamReader, received: bytearray) -> None:
    while data := await reader.read(65536):
        received += data


def parse_answers(
    data: bytes, methods: tuple[str, ...] = (), *, ended: bool = False
) -> tuple[list[Answer], bytes]:
    """All whole answers in the data, and what is left; interim answers are among them."""
    answers: list[Answer] = []
    final = 0
    while data.startswith(b"HTTP/1.1 ") and b"\r\n\r\n" in data:
        head, _, rest = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ")[1])
        headers = [
            (name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:])
        ]
        method = methods[final] if final < len(methods) else "GET"
        taken = _body(rest, status, dict(headers), method, ended=ended)
        if taken is None:
            break
        body, data = taken
        final += status >= 200
        answers.append(Answer(status, headers, body))
    return answers, data


def _body(
    rest: bytes, status: int, headers: dict[str, str], method: str, *, ended: bool
) -> tuple[bytes, bytes] | None:
    if status < 200 or status in (204, 304) or method == "HEAD":
        return b"", rest
    if headers.get("transfer-encoding") == "chunked":
        return dechunk(rest)
    if "content-length" in headers:
        length = int(headers["content-length"])
        return (rest[:length], rest[length:]) if len(rest) >= length else None
    return (rest, b"") if ended else None


def dechunk(data: bytes) -> tuple[bytes, bytes] | None:
    """Body and what follows, or None while it is incomplete."""
    body = b""
    while True:
        line, found, rest = data.partition(b"\r\n")
        if not found:
            return None
        size = int(line, 16)
        if len(rest) < size + 2:
            return None
        assert rest[size : size + 2] == b"\r\n", "chunk without its end"
        body, data = body + rest[:size], rest[size + 2 :]
        if size == 0:
            return body, data


class Relay:
    """The smallest ASGI app that relays: reads the whole body, opens an exchange, passes the answer on."""

    def __init__(self, upstream: Upstream, target: Target) -> None:
        self.upstream = upstream
        self.target = target
        self.crashes: list[BaseException] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self._relay(scope, receive, send)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.crashes.append(error)
            raise

    async def _relay(self, scope: Any, receive: Any, send: Any) -> None:
        body = await _whole_body(receive)
        if body is None:
            return
        departure = scope["extensions"][EXTENSION]
        task = asyncio.current_task()
        assert task is not None
        departure.watch(task.cancel)
        try:
            await self._pass_on(scope, body, send)
        except asyncio.CancelledError:
            if not departure.has_left:
                raise
        finally:
            departure.forget()

    async def _pass_on(self, scope: Any, body: bytes, send: Any) -> None:
        path = scope["raw_path"].decode().replace("*", "/*", 1)
        if scope["query_string"]:
            path += "?" + scope["query_string"].decode()
        method = scope["method"] if scope["method"] in ("GET", "POST", "PUT", "OPTIONS") else "POST"
        try:
            exchange = await self.upstream.open(self.target, method, path, [], body)
        except UpstreamError:
            await send({"type": "http.response.start", "status": 502, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
            return
        try:
            kept = [pair for pair in exchange.headers if pair[0] in (b"content-type", b"content-length")]
            await send({"type": "http.response.start", "status": exchange.status, "headers": kept})
            async for chunk in exchange:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            exchange.abort()


async def _whole_body(receive: Any) -> bytes | None:
    """The request's body, None when its caller left before it was whole."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message["body"]
        if not message["more_body"]:
            return body


@dataclass
class Wire:
    """Caller -> edge -> relay -> recording backend."""

    limits: Limits = field(default_factory=Limits)
    timeouts: Timeouts = field(default_factory=lambda: Timeouts(2, 10, 10, 60))
    backend: FakeBackend = field(default_factory=FakeBackend)

    async def __aenter__(self) -> "Wire":
        await self.backend.listen()
        loop = asyncio.get_running_loop()
        self.upstream = Upstream(loop.time)
        self.relay = Relay(self.upstream, Target.parse(self.backend.url, timeouts=self.timeouts))
        self.listener = Listener(self.relay, self.limits)
        await self.listener.open(Loopback())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.listener.end()
        self.upstream.close()
        await self.backend.stop()

    @property
    def port(self) -> int:
        return self.listener.port

    @property
    def reached(self) -> list[tuple[str, str, bytes]]:
        """What the backend saw, in order."""
        return [(request.method, request.path, request.body) for request in self.backend.requests]

    async def talk(self, *pieces: bytes | float, **options: Any) -> Talk:
        return await talk(self.port, *pieces, **options)
