"""One socket to a backend: reads HTTP/1.1 answers, one exchange at a time.

Decides where an answer begins and ends and whether the socket may serve another one. Does not decide when to connect,
how long to wait or whether to try again. Parsing is llhttp's (httptools), in its strict mode; what llhttp does not
bound is bounded here: bytes that are neither body nor its end (headers, chunk extensions, trailers, interim answers).
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any, Protocol

import httptools

from gateway.upstream.errors import ConnectError, MidstreamDeath, ProtocolError, UpstreamError

#: More unread body than this pauses the backend; together with one read this bounds what a stalled caller costs.
HIGH_WATER = 16 * 1024
_READ_SIZE = 16 * 1024
#: Unread bytes in the kernel (SO_RCVBUF).
RECEIVE_BUFFER = 128 * 1024
#: Bytes without any body between them.
OVERHEAD_LIMIT = 64 * 1024
HEADER_COUNT_LIMIT = 200

_RESET = struct.pack("ii", 1, 0)  # struct linger: on, 0 s

# One read buffer for all connections: each read is parsed, and its body copied out, before the next one starts.
_READ_BUFFER = memoryview(bytearray(_READ_SIZE))


class Receiver(Protocol):
    """Who takes an answer as it comes. Called from the loop; none of these may raise."""

    def begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """The final answer's status and headers (names in lower case)."""

    def body(self, data: bytes) -> None:
        """The next piece of the decoded body."""

    def end(self) -> None:
        """The answer is complete; the connection has been given back."""

    def fail(self, error: UpstreamError) -> None:
        """No more will come; the connection is gone."""


class Connection(asyncio.BufferedProtocol):
    """See the module. `idle` and `lost` tell the pool that it may be used again, or never."""

    __slots__ = (
        "_answered",
        "_close_delimited",
        "_complete",
        "_headers",
        "_idle",
        "_lost",
        "_overhead",
        "_parser",
        "_paused",
        "_poisoned",
        "_progress",
        "_receiver",
        "idle_since",
        "transport",
    )

    def __init__(self, idle: Callable[["Connection"], None], lost: Callable[["Connection"], None]) -> None:
        self._idle = idle
        self._lost = lost
        self._parser: Any = httptools.HttpResponseParser(self)
        self._receiver: Receiver | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._answered = False  # a byte of the answer came
        self._complete = False  # its final headers came
        self._close_delimited = False
        self._poisoned = False
        self._progress = False
        self._paused = False
        self._overhead = 0
        self.idle_since = 0.0
        self.transport: asyncio.Transport | None = None

    def __repr__(self) -> str:
        busy = "busy" if self._receiver is not None else "idle"
        return f"<Connection {busy}{' closed' if self.closed else ''}>"

    @property
    def closed(self) -> bool:
        """Whether no request may be written to it any more."""
        return self.transport is None or self.transport.is_closing()

    @property
    def answered(self) -> bool:
        """Whether any byte of the current answer has come."""
        return self._answered

    def start(self, receiver: Receiver, request: bytes) -> None:
        """Send a whole request; its answer goes to the receiver."""
        assert self.transport is not None  # noqa: S101  # the pool hands out connected ones only
        self._receiver = receiver
        self._answered = self._complete = self._close_delimited = False
        self._overhead = 0
        self.transport.write(request)

    def discard(self) -> None:
        """Close at once, without sending what is still buffered. Any number of times."""
        is_busy = self._receiver is not None
        self._receiver = None
        self._poisoned = True
        if self.transport is None or self.transport.is_closing():
            return
        if is_busy:
            # a reset: the engine sees it wherever it is, and a storm of aborts leaves no ports in TIME_WAIT
            raw = self.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def pause(self) -> None:
        """Stop reading until `resume`: the backend is slowed down by TCP."""
        if not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._paused and self.transport is not None:
            self._paused = False
            if not self.transport.is_closing():
                self.transport.resume_reading()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; a connection that was given up while connecting closes here."""
        self.transport = transport  # type: ignore[assignment]  # create_connection makes full transports
        raw = transport.get_extra_info("socket")
        # else the kernel would take megabytes from a fast backend for a caller that does not read
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        if self._poisoned:
            transport.abort()  # type: ignore[attr-defined]

    def connection_lost(self, exc: Exception | None) -> None:
        """End of file or a reset: the end of a close-delimited answer, or a fault."""
        receiver, self._receiver = self._receiver, None
        self.transport = None
        self._lost(self)
        if receiver is None:
            return
        if not self._answered:
            receiver.fail(ConnectError("the backend closed the connection without an answer"))
        elif self._complete and self._close_delimited and exc is None:
            receiver.end()
        else:
            receiver.fail(MidstreamDeath("the backend closed the connection inside its answer"))

    def eof_received(self) -> bool:
        """Half-closed connections are of no use: let the transport close."""
        return False

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # asyncio's signature
        """Where the next bytes are read to."""
        return _READ_BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """Parse what was read."""
        if self._receiver is None:
            self.discard()  # nobody asked: whatever comes next could be taken for somebody else's answer
            return
        self._answered = True
        self._progress = False
        try:
            self._parser.feed_data(_READ_BUFFER[:nbytes])
        except httptools.HttpParserUpgrade:
            self._fail("the backend switched protocols")
        except httptools.HttpParserError as error:
            self._fail(f"the backend's answer is malformed: {error}")
        else:
            self._overhead = 0 if self._progress else self._overhead + nbytes
            if self._poisoned:
                self.discard()
            elif self._overhead > OVERHEAD_LIMIT:
                self._fail("the backend's headers are too large")

    # httptools' side: exceptions here would become parser errors without a text, so there are none

    def on_message_begin(self) -> None:
        """A new answer, or bytes beyond the last one."""
        self._headers = []
        if self._receiver is None:
            self._poisoned = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field; trailers come here too and are dropped."""
        if not self._complete and len(self._headers) <= HEADER_COUNT_LIMIT:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Pass the final answer on; skip interim ones."""
        status = self._parser.get_status_code()
        if self._receiver is None or status < 200:
            return
        if len(self._headers) > HEADER_COUNT_LIMIT:
            self._fail("the backend sent too many headers")
            return
        self._complete = self._progress = True
        framed = status in (204, 304) or any(
            name in (b"content-length", b"transfer-encoding") for name, _ in self._headers
        )
        self._close_delimited = not framed
        self._receiver.begin(status, self._headers)

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._progress = True
        if self._receiver is not None:
            self._receiver.body(data)

    def on_message_complete(self) -> None:
        """Give the connection back, if it can serve again, then tell the receiver."""
        receiver = self._receiver
        if receiver is None or not self._complete:
            return  # an interim answer, or bytes after the end
        self._receiver = None
        self._progress = True
        if self._reusable():
            self.resume()
            self._idle(self)
        elif self.transport is not None:
            self.transport.abort()
        receiver.end()

    def _reusable(self) -> bool:
        transport = self.transport
        return (
            transport is not None
            and not transport.is_closing()
            and self._parser.should_keep_alive()
            and transport.get_write_buffer_size() == 0  # an early answer: the request is still being written
        )

    def _fail(self, message: str) -> None:
        receiver = self._receiver
        self.discard()
        if receiver is not None:
            receiver.fail(ProtocolError(message))
