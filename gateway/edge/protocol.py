"""One connection of a caller: bounds what it may cost, refuses what is not one clear request.

Decides when to stop listening to a connection, and in which order answers go out. Does not decide anything about a
well-framed request. Subclasses uvicorn's httptools protocol, which has no deadline for headers or bodies, no limit
for headers, and keeps parsing after early answers.

After a refusal the connection is *deaf*: what still comes is thrown away for `linger_s`, so that the refusal is not
lost to a reset, and is never parsed. A refusal never overtakes the answers to requests that came before it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from gateway.departure import EXTENSION
from gateway.edge import framing
from gateway.edge.cycle import EdgeCycle
from gateway.edge.deadlines import Deadline, StallWatch, Wait
from gateway.edge.framing import Head, Refusal
from gateway.edge.limits import Limits

if TYPE_CHECKING:
    from uvicorn._types import HTTPScope

_DISCARD_LIMIT = 1024 * 1024


class _Part(Enum):
    """Where in a request the parser is."""

    BETWEEN = auto()
    HEAD = auto()
    BODY = auto()


_BETWEEN, _HEAD, _BODY = _Part


@dataclass(slots=True)
class Serving:
    """What all connections of one listener share.

    Attributes:
        draining: answers end their connections.
        refused: how often each refusal was given, by its code.
        emptied: set while there is no connection.
        new_id: a request id for answers that no application gives; "" for none.
    """

    limits: Limits
    draining: bool = False
    refused: dict[str, int] = field(default_factory=dict)
    emptied: asyncio.Event = field(default_factory=asyncio.Event)
    new_id: Callable[[], str] = str

    def __post_init__(self) -> None:
        self.emptied.set()


class EdgeProtocol(HttpToolsProtocol):
    """See the module."""

    def __init__(self, config: Config, server_state: ServerState, serving: Serving) -> None:
        super().__init__(config, server_state, {})
        self.parser = httptools.HttpRequestParser(self)  # strict, unlike uvicorn's
        self.limits = serving.limits
        self._most_headers = serving.limits.headers
        self._serving = serving
        self._part = _BETWEEN
        self._head_bytes = 0
        self._refusal: Refusal | None = None  # found while parsing
        self._last_words: Refusal | None = None  # to be sent after the answers before it
        self._deaf = False
        self._discarded = 0
        self._answering: EdgeCycle | None = None
        self._deadline = Deadline(self.loop, self._on_late)
        self._stall: StallWatch = None  # type: ignore[assignment]  # once there is a transport
        self._body_since = 0.0

    @property
    def draining(self) -> bool:
        """Whether answers end their connections now."""
        return self._serving.draining

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered, or one waits behind it."""
        return self._answering is not None

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A new connection must send a whole head in time."""
        super().connection_made(cast("asyncio.Transport", transport))
        self._serving.emptied.clear()
        self.transport.set_write_buffer_limits(high=self.limits.high_water)
        self._stall = StallWatch(self.loop, self.transport, self.limits.stall_s)
        self._deadline.expect(Wait.HEAD, self.limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every request of this connection, also those that wait, and let go of everything."""
        self._deadline.stop()
        self._stall.stop()
        self._deaf = True
        if self._answering is not None:
            self._answering.leave()
        self.pipeline.clear()
        super().connection_lost(exc)
        if not self.connections:
            self._serving.emptied.set()

    def data_received(self, data: bytes) -> None:
        """Parse, then look at what the parser found."""
        if self._deaf:
            self._discard(len(data))
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._found(framing.UPGRADE)
        except httptools.HttpParserError:
            self._found(framing.MALFORMED)
        if self._refusal is not None:
            self._refuse(self._refusal)
        elif self._part is not _BODY:
            self._between_bodies(len(data))
        elif self._deadline.wait is not Wait.BODY:
            self._body_since = self.loop.time()
            self._deadline.expect(Wait.BODY, self.limits.body_grace_s)

    def pause_writing(self) -> None:
        """The caller does not take its answer: it has `stall_s` to take some of it."""
        super().pause_writing()
        self._stall.start()

    def resume_writing(self) -> None:
        """The caller has taken enough."""
        super().resume_writing()
        self._stall.stop()

    def shutdown(self) -> None:
        """Drain: close now if nothing is being answered, otherwise after the answer."""
        if not self.is_busy and not self.transport.is_closing():
            self._close()

    # the parser's side: exceptions here would become parser errors, so there are none

    def on_message_begin(self) -> None:
        """A new request."""
        if self._is_over():
            return
        self._part = _HEAD
        self._head_bytes = 0
        self.url = b""
        self.headers = []

    def on_url(self, url: bytes) -> None:
        """A piece of the request target."""
        self.url += url
        if len(self.url) > self.limits.url_bytes:
            self._found(framing.LONG_TARGET)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field: of the head, or a trailer."""
        if self._part is _HEAD:
            if len(self.headers) < self._most_headers:
                self.headers.append((name.lower(), value))
            else:
                self._found(framing.LARGE_HEAD)
        elif self._part is _BODY:
            self._found(framing.TRAILERS)

    def on_headers_complete(self) -> None:
        """Take the head, or refuse it; start the application, or queue behind the answer in progress."""
        if self._is_over():
            return
        method, version = self.parser.get_method(), self.parser.get_http_version()
        head = framing.read_head(method, version, self.url, self.headers, self.limits)
        if isinstance(head, Refusal):
            self._found(head)
            return
        self._part = _BODY
        self._deadline.clear()
        keep_alive = version != "1.0" and self.parser.should_keep_alive()
        cycle = EdgeCycle(self, self._scope(method, version, head), head, keep_alive=keep_alive)
        self.cycle = cycle
        if self._answering is None:
            self._answer(cycle)
            return
        # reading goes on: a caller that leaves while reading is paused is not noticed
        self.pipeline.appendleft((cycle, self.app))
        if len(self.pipeline) >= self.limits.pipelined:
            cycle.keep_alive = False  # it is the last one that is read

    def on_body(self, body: bytes) -> None:
        """A piece of the newest request's body."""
        if self._is_over():
            return
        cycle = cast("EdgeCycle", self.cycle)
        cycle.received += len(body)
        if cycle.response_complete or cycle.too_large:
            return  # answered without it, or about to be
        if cycle.received > self.limits.body_bytes:
            self._found(framing.LARGE_BODY)
            return
        cycle.body += body
        cycle.message_event.set()
        if len(cycle.body) > self.limits.high_water:
            if cycle is self._answering:
                self.flow.pause_reading()
            else:
                self._read_no_more()

    def on_message_complete(self) -> None:
        """The newest request has come whole."""
        if self._is_over():
            return
        self._part = _BETWEEN
        self._deadline.clear()
        self._head_bytes = 0
        self.cycle.more_body = False
        self.cycle.message_event.set()

    # requests and answers in order

    def _scope(self, method: bytes, version: str, head: Head) -> "HTTPScope":
        raw_path, _, query = head.target.partition(b"?")
        path = raw_path.decode("ascii")
        return {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme or "http",
            "root_path": "",
            "method": method.decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self.headers,
            "state": {},
        }

    def _answer(self, cycle: EdgeCycle) -> None:
        self._answering = cycle
        cycle.scope["extensions"] = {EXTENSION: cycle.departure}  # type: ignore[dict-item]  # ours
        self._start_asgi_task(cycle, self.app)

    def on_response_complete(self) -> None:
        """Go on with the next request, say the last words, or wait for more."""
        self.server_state.total_requests += 1
        cycle, self._answering = self._answering, None
        if self.transport.is_closing() or cycle is None:
            return
        if not cycle.keep_alive:
            self._end_after(cycle)
        elif self.pipeline:
            self._answer(cast("EdgeCycle", self.pipeline.pop()[0]))
        elif self._last_words is not None:
            self._say(self._last_words)
        else:
            self.flow.resume_reading()
            if self._part is _BETWEEN:
                self.cycle = self.scope = self.headers = None  # type: ignore[assignment]  # what idles costs little
                self._deadline.expect(Wait.IDLE, self.limits.idle_s)
            else:
                self._deadline.expect(Wait.HEAD, self.limits.head_s)

    def _end_after(self, cycle: EdgeCycle) -> None:
        """The answer was the last one of this connection."""
        unread = cycle.more_body or bool(self.pipeline) or self.flow.read_paused or self._part is not _BETWEEN
        self.pipeline.clear()
        if unread:
            self._linger()
        else:
            self._close()

    def _read_no_more(self) -> None:
        """Forget the newest of the waiting requests, and end after the answer to the one before it."""
        self.pipeline.popleft()
        self._deaf = True
        last = self.pipeline[0][0] if self.pipeline else self._answering
        if last is not None:
            last.keep_alive = False

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded <= _DISCARD_LIMIT:
            return
        if self._answering is None:
            self.transport.abort()
        else:
            self.flow.pause_reading()

    # refusals

    def _is_over(self) -> bool:
        """Whether nothing of what the parser finds counts any more."""
        if self._refusal is not None or self._deaf:
            return True
        cycle: EdgeCycle | None = self.cycle  # type: ignore[assignment]  # uvicorn's name for "not yet"
        return cycle is not None and not cycle.keep_alive and not cycle.more_body

    def _found(self, refusal: Refusal) -> None:
        if self._refusal is None and not self._is_over():
            self._refusal = refusal

    def _refuse(self, refusal: Refusal) -> None:
        """Say no to the newest request, after the answers to those before it."""
        self._deaf = True
        self._refusal = refusal
        if self._part is _BODY:
            cycle = cast("EdgeCycle", self.cycle)
            if cycle is self._answering:
                self.refuse_cycle(cycle, refusal)
                return
            self.pipeline.popleft()  # the newest: its body is broken, so it is never started
        if self._answering is None:
            self._say(refusal)
        else:
            self._last_words = refusal

    def refuse_cycle(self, cycle: EdgeCycle, refusal: Refusal) -> None:
        """Answer a request that an application has already been started for."""
        if cycle.disconnected or self.transport.is_closing():
            return
        self.pipeline.clear()
        self._answering = None
        cycle.leave()
        if cycle.is_on_the_wire:
            self._close()  # in the middle of an answer: recognisably incomplete
        else:
            self._say(refusal, head_only=cycle.scope["method"] == "HEAD")

    def _say(self, refusal: Refusal, *, head_only: bool = False) -> None:
        counts = self._serving.refused
        counts[refusal.code] = counts.get(refusal.code, 0) + 1
        request_id = self._serving.new_id()
        body = refusal.body(request_id)
        lines = [STATUS_LINE[refusal.status]]
        lines += [b"%b: %b\r\n" % pair for pair in self.server_state.default_headers]
        if request_id:
            lines.append(b"x-request-id: %b\r\n" % request_id.encode("ascii"))
        if refusal.status == framing.METHOD.status:
            lines.append(b"allow: GET, POST\r\n")
        lines.append(
            b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        )
        self.transport.write(b"".join(lines) + (b"" if head_only else body))
        self._linger()

    def _linger(self) -> None:
        """End our side; take in and throw away the rest for a moment, then close."""
        self._deaf = True
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._deadline.expect(Wait.LINGER, self.limits.linger_s)

    def _close(self) -> None:
        """Close after what is still unsent, which must not take for ever."""
        self._deaf = True
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._deadline.expect(Wait.LINGER, self.limits.stall_s)
        else:
            self._deadline.clear()

    # time

    def _between_bodies(self, size: int) -> None:
        """A head that has not come whole is bounded in bytes and in time from its first byte."""
        if self._is_over():
            self._deaf = True
        elif self._part is _HEAD or self._head_bytes or self._deadline.wait in (Wait.IDLE, Wait.HEAD):
            self._head_bytes += size
            if self._head_bytes > self.limits.head_bytes:
                self._refuse(framing.LARGE_HEAD)
            elif self._deadline.wait is not Wait.HEAD:
                self._deadline.expect(Wait.HEAD, self.limits.head_s)

    def _on_late(self, wait: Wait) -> None:
        match wait:
            case Wait.HEAD:
                self._head_is_late()
            case Wait.BODY:
                self._check_body_rate()
            case Wait.IDLE:
                self._close()
            case Wait.LINGER | Wait.NOTHING:
                self._end_lingering()

    def _head_is_late(self) -> None:
        if self._part is _BETWEEN and not self._head_bytes:
            self._close()  # it never began: nothing to answer
        elif self.flow.read_paused:
            self._deadline.expect(Wait.HEAD, self.limits.head_s)  # our doing: it waits behind an answer
        else:
            self._refuse(framing.SLOW_HEAD)

    def _check_body_rate(self) -> None:
        if self._part is not _BODY:
            return
        step_s = min(1.0, self.limits.body_grace_s)
        if self.flow.read_paused:
            self._body_since += step_s  # our doing: the application does not ask for more
        elif self._received() < (self.loop.time() - self._body_since) * self.limits.body_rate_per_s:
            self._refuse(framing.SLOW_BODY)
            return
        self._deadline.expect(Wait.BODY, step_s)

    def _received(self) -> int:
        return cast("EdgeCycle", self.cycle).received

    def _end_lingering(self) -> None:
        if self.transport.get_write_buffer_size() and not self._stall.is_on:
            self._stall.start()
        else:
            self.transport.abort()
