"""One request and its answer on a connection: the ASGI side.

Decides how an answer is framed and whether the connection may be used again. Everything about the connection itself is
in `protocol`. Subclasses uvicorn's cycle; its `send` is replaced because uvicorn's frames HTTP/1.0 answers in chunks,
keeps connections after early answers, and answers a crash in plain text.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from gateway.departure import Departure
from gateway.edge import framing
from gateway.edge.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from uvicorn._types import ASGI3Application, ASGIReceiveEvent, HTTPScope
    from uvicorn.protocols.http.flow_control import FlowControl
    from uvicorn.server import ServerState

    Message = Mapping[str, Any]

_LOG = logging.getLogger("gateway.edge")
_BODILESS = frozenset({204, 304})
_FRAMING = frozenset({b"content-length", b"connection", b"transfer-encoding"})
_DISCONNECT: "ASGIReceiveEvent" = {"type": "http.disconnect"}


class Connection(Protocol):
    """What a cycle needs of the connection that it is on (`protocol.EdgeProtocol`)."""

    transport: asyncio.Transport
    flow: "FlowControl"
    server_state: "ServerState"
    limits: Limits

    @property
    def draining(self) -> bool:
        """Whether answers end their connections now."""

    def on_response_complete(self) -> None:
        """The answer is complete."""

    def refuse_cycle(self, cycle: "EdgeCycle", refusal: framing.Refusal) -> None:
        """Answer instead of the application."""


class EdgeCycle(RequestResponseCycle):
    """See the module.

    Attributes:
        departure: tells the application at once that the caller has left.
        too_large: the announced body is refused as soon as the application asks for it, and not before: it may
            have something more important to say (401).
    """

    def __init__(
        self, protocol: Connection, scope: "HTTPScope", head: framing.Head, *, keep_alive: bool
    ) -> None:
        super().__init__(
            scope=scope,
            transport=protocol.transport,
            flow=protocol.flow,
            logger=_LOG,
            access_logger=_LOG,
            access_log=False,
            default_headers=protocol.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=head.expects_continue,
            keep_alive=keep_alive,
            on_response=protocol.on_response_complete,
        )
        self._protocol = protocol
        self._head = b""  # goes out with the first piece of the body: one write less
        self.received = 0
        self.too_large = head.length > protocol.limits.body_bytes
        self.departure = Departure()

    def leave(self) -> None:
        """The caller is gone, or its request turned out to be no request: the application gets `http.disconnect`."""
        if self.response_complete or self.disconnected:
            return
        self.disconnected = True
        self.message_event.set()
        self.departure.left()

    async def run_asgi(self, app: "ASGI3Application") -> None:
        """Run the application for this request; a crash is answered, and the connection ends."""
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            self.transport.abort()
            raise
        except Exception:  # noqa: BLE001  # the last resort: one request's crash must not reach the others
            _LOG.exception("the application failed")
            self._crashed()
        else:
            if not self.response_complete and not self.disconnected:
                if not self.departure.is_cut:
                    _LOG.error("the application returned without a complete answer")
                self._crashed()
        finally:
            self.on_response = _nothing

    @property
    def is_on_the_wire(self) -> bool:
        """Whether the caller has seen a part of the answer."""
        return self.response_started and not self._head

    def _crashed(self) -> None:
        if self.is_on_the_wire:
            self.transport.close()  # without the end of the message: recognisably incomplete
        elif not self.disconnected:
            self._protocol.refuse_cycle(self, framing.CRASH)

    async def receive(self) -> "ASGIReceiveEvent":
        """The next piece of the body, or that the caller left."""
        if self.too_large and not self.response_started:
            self._protocol.refuse_cycle(self, framing.LARGE_BODY)
        if self.disconnected or self.response_complete:
            return _DISCONNECT
        return await super().receive()

    async def send(self, message: "Message") -> None:
        """Send a piece of the answer; waits while the caller does not take what there is."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if not self.response_started:
            self._start(message)
        elif not self.response_complete:
            self._continue(message)
        else:
            raise RuntimeError("the answer was complete already")

    def _start(self, message: "Message") -> None:
        if message["type"] != "http.response.start":
            raise RuntimeError("an answer starts with http.response.start")
        status: int = message["status"]
        if self.more_body or self._protocol.draining:
            self.keep_alive = False  # an early answer: the rest of the request is not read as a request
        lines = [STATUS_LINE[status]]
        for name, value in (*self.default_headers, *message.get("headers", ())):
            if name in _FRAMING:
                self._note(name, value)
            if name != b"connection":
                lines.append(b"%b: %b\r\n" % (name, value))
        self._frame(status, lines)
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        head = b"".join(lines)
        if not head.count(b"\r\n") == head.count(b"\n") == head.count(b"\r") == len(lines) or b"\0" in head:
            raise RuntimeError("a header of the answer holds a line break")
        self.response_started = True
        self.waiting_for_100_continue = False
        self._head = head + b"\r\n"

    def _note(self, name: bytes, value: bytes) -> None:
        if name == b"content-length":
            self.expected_content_length = int(value)
            self.chunked_encoding = False
        elif name == b"connection" and value.lower() == b"close":
            self.keep_alive = False
        elif name == b"transfer-encoding":
            raise RuntimeError("framing is the edge's")

    def _frame(self, status: int, lines: list[bytes]) -> None:
        """Without a length: chunks, or the end of the connection for HTTP/1.0."""
        if self.chunked_encoding is not None or status in _BODILESS or self.scope["method"] == "HEAD":
            return
        if self.scope["http_version"] == "1.0":
            self.keep_alive = False
        else:
            self.chunked_encoding = True
            lines.append(b"transfer-encoding: chunked\r\n")

    def _continue(self, message: "Message") -> None:
        if message["type"] != "http.response.body":
            raise RuntimeError("an answer goes on with http.response.body")
        body: bytes = message.get("body", b"")
        more: bool = message.get("more_body", False)
        data = self._framed(body, more=more)
        if self._head:
            data, self._head = self._head + data, b""
        if data:
            self.transport.write(data)
        if not more:
            self._complete()

    def _framed(self, body: bytes, *, more: bool) -> bytes:
        if self.scope["method"] == "HEAD":
            self.expected_content_length = 0
            return b""
        if self.chunked_encoding:
            piece = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return piece if more else piece + b"0\r\n\r\n"
        if self.chunked_encoding is False:
            self.expected_content_length -= len(body)
            if self.expected_content_length < 0:
                raise RuntimeError("the answer is longer than its Content-Length")
        return body

    def _complete(self) -> None:
        if self.expected_content_length:
            raise RuntimeError("the answer is shorter than its Content-Length")
        self.response_complete = True
        self.departure.forget()
        self.message_event.set()
        self.on_response()


def _nothing() -> None:
    """Breaks the reference from a finished cycle to its connection."""
