"""How many sequences: whole seats, who reserves how many, and the limit that moves on the time per output token."""

from collections.abc import Callable
from math import ceil, floor, isfinite

from gateway.core.events import BackendBounds
from gateway.core.policy import BackendPolicy, LimitPolicy
from gateway.core.windows import LateRise

DECREASE_EVERY_S = 0.2 - 1e-6  # ticks of 50 ms are not exact in binary
_RESERVED_RATIO = 0.05


class SeatRange:
    """Between how few and how many seats this gateway's limit may be: [min(L min, seats), seats].

    seats = what the slow loop gives this gateway; without it max(1, floor(L max * share)), where L max is the smallest of
    the pool's limit and the engine's own. Seats and share fall at once and rise a second later (`LateRise`). Figures that
    are negative or not finite are as if they had not been told.
    """

    __slots__ = ("_engine_max", "_low", "_own", "_policy_max", "_seats", "share")

    def __init__(self, policy: LimitPolicy, backend: BackendPolicy, gateways: int) -> None:
        """Until bounds come, one of `gateways` equal parts."""
        self._policy_max = policy.max_limit
        self._low = policy.min_limit
        self._engine_max = policy.max_limit if backend.max_seqs is None else backend.max_seqs
        self._own: int | None = None
        self.share = LateRise(1.0 / gateways)
        self._seats = LateRise(self._wanted(self.share.value))

    def _wanted(self, share: float) -> float:
        if self._own is not None:
            return min(self._own, self.engine_max)
        return max(1, floor(self.engine_max * share))

    @property
    def engine_max(self) -> int:
        """L max: seats of the whole backend."""
        return min(self._policy_max, self._engine_max)

    @property
    def high(self) -> int:
        """Most seats that this gateway may use."""
        return int(self._seats.value)

    @property
    def low(self) -> int:
        """Fewest seats that the limit falls to."""
        return min(self._low, self.high)

    def bound(self, bounds: BackendBounds, share: float, now: float) -> None:
        """Obey what is known of `bounds`."""
        if isfinite(share) and 0.0 <= share <= 1.0:
            self.share.set(share, now)
        else:
            share = self.share.value
        if _is_count(bounds.limit_max, 1):
            self._engine_max = int(bounds.limit_max or 0)
        if _is_count(bounds.limit_min, 1):
            self._low = int(bounds.limit_min or 0)
        if _is_count(bounds.seats, 0):
            self._own = int(bounds.seats or 0)
        self._seats.set(self._wanted(share), now)

    def advance(self, now: float) -> None:
        """Let what rises late rise."""
        self.share.advance(now)
        self._seats.advance(now)


def _is_count(value: int | None, low: int) -> bool:
    return value is not None and isfinite(value) and value >= low


def reserve(policy: LimitPolicy, default: Callable[[int], int], seats: int) -> int:
    """Seats of `seats` that only rank 0 may use: the policy's, else the default; one always stays for the others."""
    wanted = default(seats) if policy.reserved_seats is None else policy.reserved_seats
    return max(0, min(wanted, seats - 1))


def twentieth(seats: int) -> int:
    """The token valve's reserve: 0 below 2 seats, else 5 %, rounded up."""
    return 0 if seats < 2 else ceil(_RESERVED_RATIO * seats)  # one seat can't be shared


def nothing(_seats: int) -> int:
    """No reserve unless one is set."""
    return 0


class SequenceLimit:
    """L: additive increase, multiplicative decrease on x = mean time per output token / target.

        x > 1:                                          min(L, in flight) * max(.7, .95 - .25 (x - 1)), each 200 ms
        x < .9 and in flight >= .85 L - reserved:       L + max(.5, .02 L) per tick of 50 ms

    Starts at L min, which makes a cold start a ramp of ten seats a second. Never rises while less than half of it is in
    flight; falls only on a time measured since it fell last. Bound: [min(L min, seats), seats] of `SeatRange`.
    """

    __slots__ = ("_fell_at", "_fell_on", "value")

    def __init__(self, initial: float) -> None:
        self.value = initial
        self._fell_at = float("-inf")
        self._fell_on = 0

    def bound(self, low: float, high: float) -> None:
        """Stay within low..high."""
        self.value = max(low, min(high, self.value))

    def falls(self, ratio: float, in_flight: int, samples: int, now: float) -> None:
        """Take x = `ratio` > 1, measured over `samples` intervals so far."""
        if now - self._fell_at < DECREASE_EVERY_S or samples == self._fell_on:
            return
        self._fell_at, self._fell_on = now, samples
        self.value = min(self.value, in_flight) * max(0.7, 0.95 - 0.25 * (ratio - 1.0))

    def rises(self, in_flight: int, reserved: int) -> None:
        """Take a tick with x < .9, in which it may rise."""
        if in_flight >= max(0.5 * self.value, 0.85 * self.value - reserved):
            self.value += max(0.5, 0.02 * self.value)
