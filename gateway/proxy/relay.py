"""Passes a backend's stream on to a caller that asked for one: bytes untouched, first event held back, end told truly.

The status line waits for the first data event, so that a busy or broken engine becomes an honest status. Where a pool
sets `sse_keepalive_s`, it waits that long after the backend's headers at most: then 200 is committed and comment lines
flow until the first event. A backend that dies after the first byte is told by one error event and no `[DONE]`.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from gateway.core.vocabulary import Fault
from gateway.proxy.call import Call
from gateway.proxy.wire import STREAM_HEADERS, answer_headers
from gateway.refusals.answers import Headers, fault_event
from gateway.requests.endpoints import Kind
from gateway.sse import HOLD_LIMIT, Dialect, ErrorEvent, EventReader
from gateway.upstream import Exchange, MidstreamDeath, ProtocolError, UpstreamError

COMMENT = b": keep-alive\n\n"
SLOW_WRITE_S = 0.02  # a write that took longer waited for the caller
_DIALECTS = {
    Kind.CHAT: Dialect.CHAT,
    Kind.COMPLETIONS: Dialect.COMPLETIONS,
    Kind.RESPONSES: Dialect.RESPONSES,
    Kind.MESSAGES: Dialect.MESSAGES,
}
_MARKED = frozenset({Dialect.CHAT, Dialect.COMPLETIONS})  # their streams end with [DONE]


class Observer(Protocol):
    """Who is told what a backend sends, as it comes."""

    def content(self, call: Call, events: int) -> None:
        """So many events with output came."""

    def ended(self, call: Call, fault: Fault | None) -> None:
        """The backend is done with it, or failed at it: its seat is free."""


class EngineError(Exception):
    """The engine said in an event, before any output and under a status of 200, that it will not answer."""

    def __init__(self, event: ErrorEvent) -> None:
        super().__init__("the engine answered with an error event")
        self.event = event


def dialect_of(call: Call) -> Dialect:
    """Which API's events an endpoint that streams has."""
    return _DIALECTS[call.endpoint.kind]


class Keepalive:
    """Comment lines until the first event, from a task that exists only where a pool asks for them."""

    __slots__ = ("_call", "_headers", "_task")

    def __init__(self, call: Call, headers: Headers) -> None:
        self._call = call
        self._headers = headers
        self._task: asyncio.Task[None] | None = None
        if call.pool.sse_keepalive_s > 0:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """The first event came, or none will: nothing more is written from here on."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def _run(self) -> None:
        reply = self._call.reply
        while True:
            await asyncio.sleep(self._call.pool.sse_keepalive_s)
            if not reply.is_started:
                await reply.start(200, self._headers)
            await reply.body(COMMENT)


class Relay:
    """One stream on its way. `run` once."""

    __slots__ = ("_call", "_exchange", "_headers", "_held", "_now", "_observer", "_reader")

    def __init__(self, call: Call, exchange: Exchange, observer: Observer, now: Callable[[], float]) -> None:
        self._call = call
        self._exchange = exchange
        self._observer = observer
        self._now = now
        cuts = call.endpoint.injects_usage and not call.ask.include_usage
        self._reader = call.reader = EventReader(dialect_of(call), cut_usage=cuts)
        self._headers: Headers = [*answer_headers(exchange.headers), *STREAM_HEADERS]
        self._held = b""

    async def run(self) -> None:
        """Pass the stream on to its end.

        Raises:
            EngineError: an error event came before anything was sent to the caller.
            UpstreamError: the backend failed before anything was sent to the caller.
            AbortedError: this side aborted.
        """
        try:
            if await self._begin():
                await self._pass_on()
        except UpstreamError as error:
            if not self._call.reply.is_started:
                raise
            self._call.record.error = str(error)
            fault = Fault.MIDSTREAM if error.fault is Fault.CONNECTION else error.fault
            await self._fail(fault, is_between=self._reader.at_boundary)

    async def _begin(self) -> bool:
        """Hold back until the first event; False where the stream has been ended by then."""
        keepalive = Keepalive(self._call, self._headers)
        try:
            await self._hold()
        finally:
            await keepalive.stop()
        reader, reply, held = self._reader, self._call.reply, self._held
        self._held = b""
        if reader.error is not None and not reply.is_started and not reader.content_events:
            raise EngineError(reader.error)
        if not reply.is_started:
            await reply.start(200, self._headers)
        self._call.drop_body()
        return await self._send(held)

    async def _hold(self) -> None:
        """Gather what comes up to the first event, never more than one event and a bit: a backend may say anything."""
        reader, held, size = self._reader, [], 0
        async for data in self._exchange:
            held.append(reader.feed(data))
            size += len(data)
            if reader.data_events or reader.done or reader.error is not None or reader.truncated:
                break
            if size > reader.limit + HOLD_LIMIT:
                raise ProtocolError("the backend sends much, but no event")
        else:
            held.append(reader.finish())
            if not reader.data_events:
                raise MidstreamDeath("the backend's stream ended before its first event")
        self._held = b"".join(held)
        if reader.content_events:
            self._observer.content(self._call, reader.content_events)

    async def _pass_on(self) -> None:
        reader, feed = self._reader, self._reader.feed
        seen = reader.content_events
        async for data in self._exchange:
            out = feed(data)
            count = reader.content_events
            if count != seen:
                self._observer.content(self._call, count - seen)
                seen = count
            if (out or reader.error is not None) and not await self._send(out):
                return
        is_between = reader.at_boundary
        tail = reader.finish()
        if reader.error is not None:
            await self._send(tail)
        elif self._is_whole():
            self._observer.ended(self._call, None)
            await self._call.reply.end(tail)
        else:
            await self._fail(Fault.MIDSTREAM, is_between=is_between)

    def _is_whole(self) -> bool:
        """Whether a stream that ended in order also came to its end: nothing is invented for one that did not."""
        reader = self._reader
        return reader.done or reader.usage is not None or reader.dialect not in _MARKED

    async def _send(self, out: bytes) -> bool:
        """Pass bytes on; False where they held an error event, which has ended the stream."""
        error = self._reader.error
        if error is not None:
            before_it = _before(out, error.payload)
            if before_it:
                await self._call.reply.body(before_it)
            self._exchange.abort()
            await self._fail(Fault.MIDSTREAM, is_between=before_it is not None)
            return False
        before = self._now()
        await self._call.reply.body(out)
        self._call.is_lagging = self._now() - before > SLOW_WRITE_S
        return True

    async def _fail(self, fault: Fault, *, is_between: bool) -> None:
        """End an answer that had begun: one error event, or a broken transfer where an event is half sent."""
        self._observer.ended(self._call, fault)
        if is_between:
            await self._call.reply.end(fault_event(fault, self._call.wording))


def _before(out: bytes, payload: bytes) -> bytes | None:
    """The events before the one that holds `payload`; None where part of that one has been sent already."""
    at = out.find(payload)
    if at < 0:
        return None
    begin = max(out.rfind(b"\n\n", 0, at) + 2, out.rfind(b"\r\n\r\n", 0, at) + 4)
    return out[:begin] if begin > 3 else b""
