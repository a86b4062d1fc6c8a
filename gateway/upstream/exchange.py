"""One request to a backend and its answer, as the caller of `Upstream.open` holds it.

Decides how long to wait and when to stop the backend from sending more. Does not connect and does not try again.
"""

import asyncio
import zlib
from collections.abc import Callable
from typing import Self

from gateway.upstream.connection import HIGH_WATER, Connection
from gateway.upstream.errors import (
    AbortedError,
    FirstByteTimeout,
    IdleTimeout,
    MidstreamDeath,
    ProtocolError,
    TotalTimeout,
    UpstreamError,
)
from gateway.upstream.target import Timeouts

_AUTODETECT = 32 + zlib.MAX_WBITS  # gzip or zlib, whichever the header says


class Exchange:
    """Iterate for the body, piece by piece as it comes; `abort` at any time.

    Attributes:
        status: of the final answer.
        headers: names in lower case, in order, including hop-by-hop ones (choose by an allowlist). Content-Encoding
            and Content-Length are missing where the body has been decoded.
    """

    __slots__ = (
        "_buffered",
        "_chunks",
        "_clock",
        "_connection",
        "_deadline",
        "_decoder",
        "_ended",
        "_error",
        "_flowing",
        "_loop",
        "_timeouts",
        "_timer",
        "_total",
        "_waiter",
        "headers",
        "status",
    )

    def __init__(
        self, connection: Connection, timeouts: Timeouts, clock: Callable[[], float], total: float
    ) -> None:
        """Made by `Upstream` only. `total` is when the whole must have ended, on `clock`."""
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._connection: Connection | None = connection
        self._timeouts = timeouts
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._decoder: zlib._Decompress | None = None
        self._ended = False
        self._flowing = False  # the body has begun
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._total = total
        self._deadline = clock() + timeouts.first_byte_s
        self._timer: asyncio.TimerHandle | None = None
        self._arm(min(timeouts.first_byte_s, total - clock()))

    def __repr__(self) -> str:
        state = "ended" if self._ended else "failed" if self._error is not None else "open"
        return f"<Exchange {self.status} {state} buffered={self._buffered}>"

    def abort(self) -> None:
        """Stop the backend's work at once. Any number of times, at any time; after the end it changes nothing."""
        if self._connection is not None:
            self._stop(AbortedError("aborted by this side"))

    @property
    def ended(self) -> bool:
        """Whether the whole answer has come (the last pieces may still be waiting to be read)."""
        return self._ended

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """The next bytes of the body: everything that has come since the last call.

        Raises:
            UpstreamError: when the backend failed; what had come before has been returned.
            AbortedError: after `abort`.
        """
        while True:
            if self._chunks:
                data = self._take()
                if data:
                    return data
            elif self._error is not None:
                raise self._error
            elif self._ended:
                raise StopAsyncIteration
            else:
                await self._wait()

    async def read_all(self, limit: int) -> bytes:
        """The whole body, for short answers.

        Raises:
            ProtocolError: when it is longer than `limit` bytes; the exchange is aborted.
            UpstreamError: as in iteration.
        """
        parts: list[bytes] = []
        size = 0
        async for data in self:
            size += len(data)
            if size > limit:
                self.abort()
                raise ProtocolError("the backend's answer is too large")
            parts.append(data)
        return b"".join(parts)

    async def answered(self) -> None:
        """Wait for status and headers. Used by `Upstream`."""
        while not self.status:
            if self._error is not None:
                raise self._error
            await self._wait()

    # the connection's side

    def begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Note the answer's head."""
        self.headers = headers
        self.status = status
        coding = b",".join(value for name, value in headers if name == b"content-encoding").strip().lower()
        if coding in {b"gzip", b"x-gzip", b"deflate"}:
            # not asked for, but it happens: callers get identity, and usage can be read
            self._decoder = zlib.decompressobj(_AUTODETECT)
            self.headers = [
                pair for pair in headers if pair[0] not in (b"content-encoding", b"content-length")
            ]
        elif coding not in {b"", b"identity"}:
            self.status = 0
            self._stop(ProtocolError("the backend's answer has a content coding that was not asked for"))
        self._wake()

    def body(self, data: bytes) -> None:
        """Keep a piece; pause the backend when too much is unread."""
        self._chunks.append(data)
        self._buffered += len(data)
        if not self._flowing:
            self._flowing = True
            self._arm(min(self._timeouts.idle_s, self._total - self._clock()))
        if self._buffered > HIGH_WATER and self._connection is not None:
            self._connection.pause()
        self._wake()

    def end(self) -> None:
        """The answer is complete."""
        self._ended = True
        self._connection = None
        self._disarm()
        self._wake()

    def fail(self, error: UpstreamError) -> None:
        """The connection is gone."""
        if self._error is None:
            self._error = error
        self._connection = None
        self._disarm()
        self._wake()

    # waiting

    async def _wait(self) -> None:
        waiter = self._loop.create_future()
        self._waiter = waiter
        if self._flowing:
            self._deadline = self._clock() + self._timeouts.idle_s
        try:
            await waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _take(self) -> bytes:
        chunks, self._chunks = self._chunks, []
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        if self._decoder is not None:
            return self._decoded(self._decoder, data)
        self._drained()
        return data

    def _drained(self) -> None:
        self._buffered = 0
        if self._connection is not None:
            self._connection.resume()

    def _decoded(self, decoder: "zlib._Decompress", data: bytes) -> bytes:
        """At most HIGH_WATER bytes at a time: a small body may decode to a huge one."""
        try:
            out = decoder.decompress(data, HIGH_WATER)
        except zlib.error:
            self._stop(ProtocolError("the backend's answer is not in the coding it names"))
            return b""
        if decoder.unused_data:  # zlib would keep whatever still comes, without end
            self._stop(ProtocolError("the backend's answer goes on after its coded end"))
            return b""
        if decoder.unconsumed_tail:
            self._chunks.append(decoder.unconsumed_tail)
            return out
        self._drained()
        if self._ended and not decoder.eof and self._error is None:
            self._error = MidstreamDeath("the backend's compressed answer is cut short")
        return out

    # time

    def _arm(self, delay_s: float) -> None:
        self._disarm()
        self._timer = self._loop.call_later(max(0.0, delay_s), self._tick)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        """The one timer: late by design, it looks at the deadline when it fires instead of moving with each piece."""
        now = self._clock()
        if now >= self._total:
            self._stop(TotalTimeout("the backend took too long as a whole"))
            return
        deadline = self._deadline if self._waiter is not None else now + self._timeouts.idle_s
        if now < deadline:
            self._arm(min(deadline, self._total) - now)
        elif self._flowing:
            self._stop(IdleTimeout("the backend stopped inside its answer"))
        else:
            self._stop(FirstByteTimeout("the backend's answer did not begin in time"))

    def _stop(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        connection, self._connection = self._connection, None
        self._disarm()
        if connection is not None:
            connection.discard()
        self._wake()
