"""The two clocks, as arguments. Only the entry point names the real ones."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clocks:
    """`monotonic` measures and never goes backwards (the gate's `now`); `wall` tells epoch seconds and may jump."""

    monotonic: Callable[[], float]
    wall: Callable[[], float]
