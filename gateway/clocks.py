"""The two clocks, as arguments. Only the entry point names the real ones."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Clocks:
    """`monotonic` measures and never goes backwards (the gate's `now`); `wall` tells epoch seconds and may jump."""

    monotonic: Callable[[], float]
    wall: Callable[[], float]

    def month(self) -> str:
        """This calendar month in UTC, as "2026-11": monthly quotas begin anew with it."""
        return datetime.fromtimestamp(self.wall(), UTC).strftime("%Y-%m")
