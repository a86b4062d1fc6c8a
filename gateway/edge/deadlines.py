"""Time on one connection: one deadline at a time, and a watch over callers who do not take their answer.

The deadline's timer is set lazily: moving it to later costs nothing, it is looked at when the timer fires. Most requests
come whole in one read, so most connections touch a timer once per `idle_s`.
"""

import asyncio
from collections.abc import Callable
from enum import Enum, auto


class Wait(Enum):
    """What a connection waits for."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()
    IDLE = auto()
    LINGER = auto()


class Deadline:
    """Calls `late` with what was waited for, once its time is over. `wait` may be read at any time."""

    __slots__ = ("_at", "_late", "_loop", "_timer", "_timer_at", "wait")

    def __init__(self, loop: asyncio.AbstractEventLoop, late: Callable[[Wait], None]) -> None:
        self._loop = loop
        self._late = late
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._at = 0.0
        self.wait = Wait.NOTHING

    def expect(self, wait: Wait, within_s: float) -> None:
        """Wait for something else from now on."""
        self.wait = wait
        self._at = self._loop.time() + within_s
        if self._timer is None or self._at < self._timer_at:
            self.stop()
            self._timer_at = self._at
            self._timer = self._loop.call_at(self._at, self._look)

    def clear(self) -> None:
        """Wait for nothing."""
        self.wait = Wait.NOTHING

    def stop(self) -> None:
        """Let go of the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self.wait is Wait.NOTHING:
            return
        left_s = self._at - self._loop.time()
        if left_s > 0:
            self.expect(self.wait, left_s)
            return
        wait, self.wait = self.wait, Wait.NOTHING
        self._late(wait)


class StallWatch:
    """Aborts a transport whose peer takes nothing for `stall_s` while there is something to take."""

    __slots__ = ("_loop", "_stall_s", "_timer", "_transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, stall_s: float) -> None:
        self._loop = loop
        self._transport = transport
        self._stall_s = stall_s
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_on(self) -> bool:
        """Whether it is watching."""
        return self._timer is not None

    def start(self) -> None:
        """Watch from now on."""
        self.stop()
        self._timer = self._loop.call_later(
            self._stall_s, self._look, self._transport.get_write_buffer_size()
        )

    def stop(self) -> None:
        """The peer has taken enough."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, before: int) -> None:
        self._timer = None
        unsent = self._transport.get_write_buffer_size()
        if unsent >= before:
            self._transport.abort()
        elif unsent:
            self.start()
