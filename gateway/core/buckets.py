"""Request and LLM-token buckets, concurrency and monthly quota of one tenant: pure arithmetic on `now`.

    level(now) = min(burst, level + rate_per_s * (now - then))

Bounds: what is granted in any window is at most burst + rate * window; a fresh bucket holds at most one burst; a refusal
takes nothing from any bucket; a reservation is settled or refunded exactly once. `retry_at` is the exact instant at which
the same request would be granted if nobody else took anything; None where waiting can't help before a later day (monthly
quota), where only another ticket's end helps (concurrency), or where the request can never fit (`fits` false).

Clocks that jump backwards refill nothing and forget nothing.
"""

from dataclasses import dataclass
from math import isfinite

from gateway.core.vocabulary import ShedReason

_TOLERANCE = 1e-9  # relative: level(retry_at) is the wanted amount but for rounding


@dataclass(frozen=True, slots=True)
class Denied:
    """Why nothing was taken. `fits` False: the request is larger than the bucket ever holds."""

    reason: ShedReason
    retry_at: float | None
    fits: bool = True


class Bucket:
    """A token bucket: `rate_per_s` refills up to `burst`. Its tokens are requests or LLM tokens, the owner says which."""

    __slots__ = ("_at", "_level", "burst", "rate_per_s")

    def __init__(self, rate_per_s: float, burst: float, now: float, *, level: float | None = None) -> None:
        """Start with `level`, at most (and by default) one burst.

        Raises:
            ValueError: a rate that is negative or not finite, a burst that is not a positive finite number.
        """
        _check_bucket(rate_per_s, burst)
        self.rate_per_s = rate_per_s
        self.burst = burst
        self._level = burst if level is None else min(burst, level)
        self._at = now

    def __repr__(self) -> str:
        return f"<Bucket {self._level:.1f}/{self.burst:g} +{self.rate_per_s:g}/s at {self._at:.3f}>"

    def level(self, now: float) -> float:
        """What can be taken now; below 0 after a debt was settled."""
        if now > self._at:
            self._level = min(self.burst, self._level + self.rate_per_s * (now - self._at))
            self._at = now
        return self._level

    def fits(self, amount: float) -> bool:
        """Whether that much can ever be taken at once."""
        return amount <= self.burst * (1.0 + _TOLERANCE)

    def has(self, amount: float, now: float) -> bool:
        """Whether that much can be taken now."""
        return amount <= self.level(now) + _TOLERANCE * max(1.0, amount)

    def retry_at(self, amount: float, now: float) -> float | None:
        """The first instant at which `amount` can be taken; None: never."""
        missing = amount - self.level(now)
        if missing <= 0.0:
            return now
        if not self.fits(amount) or self.rate_per_s == 0.0:
            return None
        return max(now, self._at) + missing / self.rate_per_s

    def take(self, amount: float, now: float) -> bool:
        """Take all of `amount`, or nothing. A negative amount is nothing."""
        amount = max(0.0, amount)
        if not self.has(amount, now):
            return False
        self._level -= amount
        return True

    def take_up_to(self, amount: float, now: float) -> float:
        """Take as much of `amount` as is there (for a lease); what was taken."""
        taken = max(0.0, min(amount, self.level(now)))
        self._level -= taken
        return taken

    def give(self, amount: float, now: float) -> None:
        """Put back what was taken and not used; above one burst it is lost."""
        self._level = min(self.burst, self.level(now) + max(0.0, amount))

    def owe(self, amount: float, now: float) -> None:
        """Take what was used beyond what had been taken, into debt if need be: later takers wait for it."""
        self._level = self.level(now) - max(0.0, amount)

    def configure(self, rate_per_s: float, burst: float, now: float) -> None:
        """Take a new rate and burst from now on; the level is kept, at most the new burst.

        Raises:
            ValueError: as for a new bucket; nothing changes then.
        """
        _check_bucket(rate_per_s, burst)
        level = self.level(now)
        self.rate_per_s, self.burst = rate_per_s, burst
        self._level = min(burst, level)


def _check_bucket(rate_per_s: float, burst: float) -> None:
    if not (isfinite(rate_per_s) and rate_per_s >= 0.0):
        raise ValueError(f"rate_per_s: must be a finite number, not negative, not {rate_per_s}")
    if not (isfinite(burst) and burst > 0.0):
        raise ValueError(f"burst: must be a finite number above 0, not {burst}")


class MonthlyQuota:
    """LLM tokens of a month: used + reserved + asked <= limit. Knows no calendar: its owner says when a month begins."""

    __slots__ = ("limit", "reserved", "used")

    def __init__(self, limit: int, used: int = 0) -> None:
        """`used`: month to date.

        Raises:
            ValueError: a negative limit or use.
        """
        if limit < 0 or used < 0:
            raise ValueError(f"limit, used: must not be negative, not {limit}, {used}")
        self.limit = limit
        self.used = used
        self.reserved = 0

    @property
    def remaining(self) -> int:
        """What can still be reserved, at least 0."""
        return max(0, self.limit - self.used - self.reserved)

    def begin(self, used: int = 0) -> None:
        """A new month, or a fresher count of this one. Reservations in flight stay."""
        self.used = max(0, used)


class TenantBuckets:
    """All that bounds one tenant in one pool; a bound that is None is off.

    `reserve` takes one request, one place and `tokens` LLM tokens from all of them, or nothing from any; then
    exactly one of `settle` and `refund` counts, whatever is called how often.
    """

    __slots__ = ("_held", "concurrency", "monthly", "requests", "tokens")

    def __init__(
        self,
        *,
        requests: Bucket | None = None,
        tokens: Bucket | None = None,
        monthly: MonthlyQuota | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Start with nothing in flight."""
        self.requests = requests
        self.tokens = tokens
        self.monthly = monthly
        self.concurrency = concurrency
        self._held: dict[str, int] = {}

    @property
    def in_flight(self) -> int:
        """Reservations neither settled nor refunded."""
        return len(self._held)

    def reserve(self, ticket: str, tokens: int, now: float) -> Denied | None:
        """Take everything for `ticket`, or nothing and say why. The bound that helps latest is named first.

        Raises:
            ValueError: a negative number of tokens, or a ticket that holds a reservation already.
        """
        if tokens < 0:
            raise ValueError(f"tokens: must not be negative, not {tokens}")
        if ticket in self._held:
            raise ValueError(f"ticket: {ticket} holds a reservation already")
        denied = self._deny(tokens, now)
        if denied is not None:
            return denied
        if self.requests is not None:
            self.requests.take(1.0, now)
        if self.tokens is not None:
            self.tokens.take(float(tokens), now)
        if self.monthly is not None:
            self.monthly.reserved += tokens
        self._held[ticket] = tokens
        return None

    def _deny(self, tokens: int, now: float) -> Denied | None:
        if self.monthly is not None and tokens > self.monthly.remaining:
            return Denied(ShedReason.QUOTA_EXHAUSTED, None, fits=tokens <= self.monthly.limit)
        too_many = _short(self.requests, 1.0, now, ShedReason.RATE_LIMITED)
        too_large = _short(self.tokens, float(tokens), now, ShedReason.TOKEN_LIMITED)
        if too_many is not None and too_large is not None:
            return _later(too_many, too_large)
        if too_many is not None or too_large is not None:
            return too_many or too_large
        if self.concurrency is not None and len(self._held) >= self.concurrency:
            return Denied(ShedReason.CONCURRENCY_LIMITED, None, fits=self.concurrency > 0)
        return None

    def settle(self, ticket: str, used_tokens: int, now: float) -> bool:
        """It ended with `used_tokens` really used: give back the rest, or owe what is missing. True the first time."""
        reserved = self._held.pop(ticket, None)
        if reserved is None:
            return False
        used = max(0, used_tokens)
        if self.tokens is not None:
            self.tokens.give(float(reserved - used), now)
            self.tokens.owe(float(used - reserved), now)
        if self.monthly is not None:
            self.monthly.reserved -= reserved
            self.monthly.used += used
        return True

    def refund(self, ticket: str, now: float) -> bool:
        """It cost nothing: give back all, the request too. True the first time."""
        reserved = self._held.pop(ticket, None)
        if reserved is None:
            return False
        if self.requests is not None:
            self.requests.give(1.0, now)
        if self.tokens is not None:
            self.tokens.give(float(reserved), now)
        if self.monthly is not None:
            self.monthly.reserved -= reserved
        return True


def _short(bucket: Bucket | None, amount: float, now: float, reason: ShedReason) -> Denied | None:
    if bucket is None or bucket.has(amount, now):
        return None
    return Denied(reason, bucket.retry_at(amount, now), fits=bucket.fits(amount))


def _later(one: Denied, other: Denied) -> Denied:
    """The one whose time comes later, never coming latest of all: only then does a retry make sense."""
    if one.retry_at is None:
        return one
    if other.retry_at is None or other.retry_at > one.retry_at:
        return other
    return one
