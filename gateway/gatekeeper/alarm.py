"""One timer for everything that the gate waits for: the instant it asked for, and its inner tick while it is busy."""

import asyncio
from collections.abc import Callable

INNER_TICK_S = 0.05
_SOON_S = 0.001  # timers may fire a little early: look again then, without spinning


class Alarm:
    """Calls `ring` when it is due. `is_busy` tells whether the gate holds tickets: only then its inner tick runs."""

    __slots__ = ("_is_busy", "_loop", "_now", "_ring", "_rung_at", "_timer", "_timer_at", "_wake_at")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], float],
        ring: Callable[[], None],
        is_busy: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._now = now
        self._ring = ring
        self._is_busy = is_busy
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._wake_at: float | None = None
        self._rung_at = now()

    def wake_at(self, at: float) -> None:
        """Ring no later than this; a later wish replaces an earlier one."""
        self._wake_at = at
        if self._timer is None or at < self._timer_at:
            self._arm()

    def keep(self) -> None:
        """Something happened: see that a timer runs where one is needed."""
        if self._timer is None:
            self._arm()

    def stop(self) -> None:
        """Ring no more by itself."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due_at(self) -> float | None:
        inner = self._rung_at + INNER_TICK_S if self._is_busy() else None
        if self._wake_at is None or inner is None:
            return inner if self._wake_at is None else self._wake_at
        return min(inner, self._wake_at)

    def _arm(self) -> None:
        self.stop()
        due_at = self._due_at()
        if due_at is not None:
            self._timer_at = due_at
            self._timer = self._loop.call_later(max(_SOON_S, due_at - self._now()), self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._now()
        due_at = self._due_at()
        if due_at is not None and now >= due_at:
            if self._wake_at is not None and now >= self._wake_at:
                self._wake_at = None
            self._rung_at = now
            self._ring()
        self.keep()
