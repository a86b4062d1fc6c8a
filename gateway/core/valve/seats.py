"""A valve that counts seats only: one of the arithmetic limits, enforced. It knows no prompts and no KV tokens."""

from collections.abc import Sequence
from math import floor

from gateway.core.events import BackendBounds
from gateway.core.limits import new_limit
from gateway.core.policy import BackendPolicy, LimitPolicy
from gateway.core.valve.interface import Ask, ValveGauge
from gateway.core.valve.sequences import SeatRange, nothing, reserve
from gateway.core.vocabulary import Account


class _Held:
    """One attempt: when it went out, and whether at least half of the limit was in flight then."""

    __slots__ = ("at", "is_used", "prompt_tokens")

    def __init__(self, at: float, prompt_tokens: int, *, is_used: bool) -> None:
        self.at: float | None = at  # None once its first token came
        self.prompt_tokens = prompt_tokens
        self.is_used = is_used


class SeatValve:
    """in_flight < floor(limit) - (0 for rank 0, else the reserve, which is 0 unless the policy sets one)."""

    __slots__ = ("_held", "_last", "_limit", "_pinned", "_policy", "_range")

    def __init__(self, policy: LimitPolicy, backend: BackendPolicy, *, gateways: int = 1) -> None:
        """Start with the algorithm's own limit, within one of `gateways` equal parts."""
        self._policy = policy
        self._range = SeatRange(policy, backend, gateways)
        self._limit = new_limit(policy, self._range.low, self._range.high)
        self._pinned: int | None = None
        self._held: dict[int, _Held] = {}
        self._last: Ask | None = None

    def __repr__(self) -> str:
        return f"<SeatValve {self._policy.algorithm.value} {self.in_flight}/{self.limit:.1f}>"

    @property
    def in_flight(self) -> int:
        """Attempts dispatched and not released."""
        return len(self._held)

    @property
    def limit(self) -> float:
        """Current number of seats."""
        if self._pinned is not None:
            return min(self._pinned, self._range.high)
        return self._limit.value

    @property
    def _reserved(self) -> int:
        return reserve(self._policy, nothing, floor(self.limit))

    def _seats(self, tier: int) -> int:
        return floor(self.limit) - (self._reserved if tier > 0 else 0)

    def binds(self, ask: Ask, now: float) -> Account | None:  # noqa: ARG002  # as the protocol has it
        """Whether a seat is free."""
        return Account.SEQUENCES if len(self._held) >= self._seats(ask.tier) else None

    def dispatch(self, attempt: int, ask: Ask, now: float) -> None:
        """Take a seat."""
        is_used = 2 * (len(self._held) + 1) >= self.limit
        self._held[attempt] = _Held(now, ask.prompt_tokens, is_used=is_used)
        self._last = ask

    def progress(self, tokens: Sequence[tuple[int, int]], now: float, *, lagged: bool) -> None:
        """First tokens are the samples; later ones are not looked at."""
        for attempt, _ in tokens:
            held = self._held.get(attempt)
            if held is not None and held.at is not None:
                sent_at, held.at = held.at, None
                if not lagged:
                    self._limit.answered(now - sent_at, is_used=held.is_used)

    def release(self, attempt: int, now: float) -> None:  # noqa: ARG002  # as the protocol has it
        """Give the seat back. An attempt without a first token is no sample: it may have been abandoned."""
        self._held.pop(attempt, None)

    def tick(self, now: float) -> None:
        """Let what rises late rise."""
        self._range.advance(now)
        self._limit.bound(self._range.low, self._range.high)

    def pressure(self, tier: int, now: float) -> float:  # noqa: ARG002  # as the protocol has it
        """Use of the tier's seats."""
        seats = self._seats(tier)
        return min(1.0, len(self._held) / seats) if seats > 0 else 1.0

    def burden(self, now: float) -> float:  # noqa: ARG002  # as the protocol has it
        """Use of the seats that this gateway could have."""
        return 0.3 * len(self._held) / max(1, self._range.high)

    def bound(self, bounds: BackendBounds, share: float, now: float) -> None:
        """Obey fresh bounds; algorithms on gauges see the telemetry."""
        self._range.bound(bounds, share, now)
        self._limit.bound(self._range.low, self._range.high)
        self._limit.observed(bounds, len(self._held), now)

    def pin(self, limit: int | None) -> None:
        """Fix the limit by hand, or release it."""
        self._pinned = None if limit is None else max(0, limit)

    def gauge(self, now: float) -> ValveGauge:
        """Seats only: the other accounts are off."""
        pending = sum(held.prompt_tokens for held in self._held.values() if held.at is not None)
        return ValveGauge(
            limit=self.limit,
            reserved_seats=self._reserved,
            in_flight=len(self._held),
            kv_tokens=0,
            prefill_tokens=pending,
            prefill_ratio=0.0,
            kv_use_ratio=None,
            sequences_ratio=self.pressure(1, now),
            binding=None if self._last is None else self.binds(self._last, now),
            slow=1.0,
            tpot_s=None,
        )
