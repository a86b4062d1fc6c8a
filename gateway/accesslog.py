"""One JSON line per request, written where a slow reader cannot hold up a request, nor the end of the process.

Lines are gathered and written by one daemon thread, one write at a time; what nobody reads in time is dropped and counted
once `MAX_BYTES` wait. JSON escapes control characters, so that a line is always one line.
"""

import asyncio
import contextlib
import os
from queue import SimpleQueue
from threading import Thread

import msgspec

from gateway.tally import Exchange

FLUSH_S = 0.1
CLOSE_S = 0.5
MAX_BYTES = 8 << 20

_encode = msgspec.json.Encoder().encode


class AccessLog:
    """A sink of the tally. `descriptor` is where lines go."""

    def __init__(self, descriptor: int, *, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread that writes; it ends with `close` or with the process."""
        self._descriptor = descriptor
        self._loop = loop
        self._lines: list[bytes] = []
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._batches: SimpleQueue[list[bytes] | None] = SimpleQueue()
        self.dropped = 0
        Thread(target=self._write_batches, name="access log", daemon=True).start()

    def write(self, exchange: Exchange) -> None:
        """Take one line. Never blocks."""
        if self._bytes >= MAX_BYTES:
            self.dropped += 1
            return
        line = _encode(exchange) + b"\n"
        self._lines.append(line)
        self._bytes += len(line)
        if self._timer is None and self._is_idle.is_set():
            self._timer = self._loop.call_later(FLUSH_S, self._flush)

    async def close(self) -> None:
        """Write what is left, as far as somebody reads it within `CLOSE_S`."""
        if self._timer is not None:
            self._timer.cancel()
        if self._is_idle.is_set():
            self._flush()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._is_idle.wait()
        self._batches.put(None)

    def _flush(self) -> None:
        self._timer = None
        if self._lines:
            lines, self._lines = self._lines, []
            self._is_idle.clear()
            self._batches.put(lines)

    def _written(self, size: int, lost: int) -> None:
        self._bytes -= size
        self.dropped += lost
        self._is_idle.set()
        self._flush()

    # -- in the thread --------------------------------------------------------------------------------------------

    def _write_batches(self) -> None:
        while (lines := self._batches.get()) is not None:
            data = memoryview(b"".join(lines))
            size, lost = len(data), 0
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError:
                lost = len(lines)  # the reader has gone: serving matters more
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._written, size, lost)
