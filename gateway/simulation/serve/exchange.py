"""One HTTP exchange of a bare ASGI application: read a body, start, answer, notice that the caller has gone."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from gateway.simulation.serve.wire import WrongRequest

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

JSON_TYPE = "application/json"
METRICS_TYPE = "text/plain; version=0.0.4"
EVENTS_TYPE = "text/event-stream; charset=utf-8"
MAX_BODY_BYTES = 8 << 20
LOOPBACK = ("127.0.0.1", "::1")


class Exchange:
    """A request and the way to answer it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        client = scope.get("client")
        self.is_loopback = client is None or client[0] in LOOPBACK
        self._receive = receive
        self._send = send

    async def read_body(self) -> bytes:
        """The whole body; raises WrongRequest where it is too large or the caller left before its end."""
        body = bytearray()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise WrongRequest(400, "The body ended early")
            body += message.get("body", b"")
            if len(body) > MAX_BODY_BYTES:
                raise WrongRequest(413, "The body is too large")
            if not message.get("more_body", False):
                return bytes(body)

    async def disconnected(self) -> None:
        """Wait until the caller has gone. Only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def start(self, status: int, kind: str, headers: Headers = ()) -> None:
        """Send the status line and headers."""
        fields = [(b"content-type", kind.encode()), *headers]
        await self._send({"type": "http.response.start", "status": status, "headers": fields})

    async def start_events(self) -> None:
        """Begin a stream of server-sent events."""
        await self.start(200, EVENTS_TYPE)

    async def send_body(self, body: bytes, *, is_last: bool = True) -> None:
        """Send a part of the body."""
        await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})

    async def answer(
        self, status: int, content: object, *, headers: Headers = (), kind: str = JSON_TYPE
    ) -> None:
        """Answer at once with bytes, or with anything that becomes JSON."""
        body = content if isinstance(content, bytes) else msgspec.json.encode(content)
        await self.start(status, kind, ((b"content-length", b"%d" % len(body)), *headers))
        await self.send_body(body)
