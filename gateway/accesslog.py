"""One JSON line per request, written where a slow reader cannot hold up a request.

Lines are gathered and written by a thread, one write at a time; what nobody reads in time is dropped and counted once
`MAX_BYTES` wait. JSON escapes control characters, so that a line is always one line.
"""

import asyncio
import os

import msgspec

from gateway.tally import Exchange

FLUSH_S = 0.1
MAX_BYTES = 8 << 20

_encode = msgspec.json.Encoder().encode


class AccessLog:
    """A sink of the tally. `descriptor` is where lines go."""

    def __init__(self, descriptor: int, *, loop: asyncio.AbstractEventLoop) -> None:
        self._descriptor = descriptor
        self._loop = loop
        self._lines: list[bytes] = []
        self._bytes = 0
        self._writing: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.dropped = 0

    def write(self, exchange: Exchange) -> None:
        """Take one line. Never blocks."""
        if self._bytes >= MAX_BYTES:
            self.dropped += 1
            return
        line = _encode(exchange) + b"\n"
        self._lines.append(line)
        self._bytes += len(line)
        if self._timer is None and self._writing is None:
            self._timer = self._loop.call_later(FLUSH_S, self._flush)

    def _flush(self) -> None:
        self._timer = None
        if self._lines:
            lines, self._lines = self._lines, []
            data = b"".join(lines)
            self._writing = self._loop.run_in_executor(None, _write_all, self._descriptor, data)
            self._writing.add_done_callback(lambda _: self._written(len(data), len(lines)))

    def _written(self, size: int, lines: int) -> None:
        writing, self._writing = self._writing, None
        self._bytes -= size
        if writing is not None and not writing.cancelled() and writing.exception() is not None:
            self.dropped += lines  # the reader has gone: serving matters more
        self._flush()

    async def close(self) -> None:
        """Write what is left, for a last while."""
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is None:
            self._flush()
        while self._writing is not None:
            await asyncio.wait((self._writing,))


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
