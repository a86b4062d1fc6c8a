"""How fast work is served: cost shares of the tiers, and cost per second as a whole and per tier.

Both are averages of *dispatched cost*. Shares forget by cost (about `HORIZON` units), so that they mean the same on
a slow and on a fast backend; rates forget by seconds. A rate is raised by every second that was better, but lowered
only while something waits: a quiet minute is no outage.
"""

import math
from collections.abc import Sequence

HORIZON = 60_000.0  # cost units over which a tier's share is averaged
GAIN = 0.3  # of one second in a rate
PERIOD_S = 1.0
LONGEST_GAP = 60  # periods without an event after which a rate is forgotten anyway


class CostShares:
    """Recent share of every tier in the dispatched cost, 0..1: exponential average over `HORIZON` cost units."""

    __slots__ = ("parts",)

    def __init__(self, tiers: int) -> None:
        """Start with nothing dispatched."""
        self.parts = [0.0] * tiers  # by index of the tier; read it, change it with `put` and `add` only

    def __getitem__(self, index: int) -> float:
        return self.parts[index]

    def put(self, index: int, share: float) -> None:
        """Set a share that was known before the tiers changed."""
        self.parts[index] = share

    def add(self, index: int, cost: int) -> None:
        """Count `cost` dispatched for one tier; give it back with a negative `cost`."""
        shares = self.parts
        part = -math.expm1(-abs(cost) / HORIZON)
        if cost < 0:
            shares[index] = max(0.0, shares[index] - part)
            return
        kept = 1.0 - part
        for i, share in enumerate(shares):
            shares[i] = share * kept
        shares[index] += part


class ServiceRates:
    """Cost dispatched per second, total and per tier. 0.0 means that nothing was measured yet."""

    __slots__ = ("_counts", "_sum", "period_ends", "tiers", "total")

    def __init__(self, tiers: int, now: float) -> None:
        """Start measuring at `now`."""
        self.total = 0.0
        self.tiers = [0.0] * tiers
        self._sum = 0
        self._counts = [0] * tiers
        self.period_ends = now + PERIOD_S

    def add(self, index: int, cost: int) -> None:
        """Count what was just dispatched (or, negative, what came back untouched)."""
        self._sum += cost
        self._counts[index] += cost

    def roll(self, waiting: Sequence[int], now: float) -> bool:
        """Close the periods that ended by `now`; True where one did. `waiting`: tickets that wait, per tier."""
        if now < self.period_ends:
            return False
        periods = 1 + int((now - self.period_ends) / PERIOD_S)
        self.period_ends += periods * PERIOD_S
        periods = min(periods, LONGEST_GAP)
        self.total = _average(self.total, self._sum, periods, falls=any(waiting))
        for i, count in enumerate(self._counts):
            self.tiers[i] = _average(self.tiers[i], count, periods, falls=waiting[i] > 0)
            self._counts[i] = 0
        self._sum = 0
        return True


def _average(rate: float, count: int, periods: int, *, falls: bool) -> float:
    """The rate after `periods` periods, the first of which saw `count`, the others nothing."""
    sample = max(0, count) / PERIOD_S
    if rate == 0.0:
        rate = sample
    elif sample > rate or falls:
        rate += GAIN * (sample - rate)
    if falls and periods > 1:
        rate *= (1.0 - GAIN) ** (periods - 1)
    return rate
