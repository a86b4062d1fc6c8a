"""Arithmetic of the selectable limits: given this sample, the limit becomes N. Enforcing it is `core.valve.seats`.

They are there to compare with and because operators know them; the default is the token valve (`core.valve.token`). All
promise low <= value <= high whatever the samples are; a sample that is not finite and positive changes nothing.
`is_used` says that at least half of the limit was in flight when the sample's attempt went out: a half-idle backend's
good answers are no evidence that it could carry more, so without it nothing rises.
"""

from math import inf
from typing import Protocol

from gateway.core.events import BackendBounds
from gateway.core.policy import LimitPolicy
from gateway.core.vocabulary import LimitAlgorithm
from gateway.core.windows import Ewma


class Limit(Protocol):
    """A number of seats that moves with what is seen."""

    @property
    def value(self) -> float:
        """Current number of seats."""

    def answered(self, ttft_s: float, *, is_used: bool) -> None:
        """A first token came after `ttft_s`."""

    def observed(self, seen: BackendBounds, in_flight: int, now: float) -> None:
        """Fresh engine gauges."""

    def bound(self, low: float, high: float) -> None:
        """Stay within low..high from now on."""


class FixedLimit:
    """value = high, or `initial` where one is set. No samples, no telemetry, no change.

    Set to exactly the right value it is hard to beat at a stationary load; one step above loses the first tier, and any
    change of prompts or speed makes it wrong.
    """

    __slots__ = ("_initial", "value")

    def __init__(self, low: float, high: float, initial: float | None = None) -> None:
        self._initial = inf if initial is None else initial
        self.value = max(low, min(high, self._initial))

    def answered(self, ttft_s: float, *, is_used: bool) -> None:
        """Learns nothing."""

    def observed(self, seen: BackendBounds, in_flight: int, now: float) -> None:
        """Learns nothing."""

    def bound(self, low: float, high: float) -> None:
        """Stay within low..high."""
        self.value = max(low, min(high, self._initial))


class _MovingLimit:
    """A value kept within low..high, starting at `initial` or low."""

    __slots__ = ("_high", "_low", "value")

    def __init__(self, low: float, high: float, initial: float | None = None) -> None:
        self.value = low if initial is None else initial
        self.bound(low, high)

    def answered(self, ttft_s: float, *, is_used: bool) -> None:
        """Learns nothing unless overridden."""

    def observed(self, seen: BackendBounds, in_flight: int, now: float) -> None:
        """Learns nothing unless overridden."""

    def bound(self, low: float, high: float) -> None:
        """Stay within low..high."""
        self._low, self._high = low, high
        self._move(self.value)

    def _move(self, value: float) -> None:
        self.value = max(self._low, min(self._high, value))


class VegasLimit(_MovingLimit):
    """TCP Vegas carried over to LLM gateways, on TTFT, as published for them: alpha .1, beta .2.

        base   = min(base, ttft)                          the smallest ever seen
        sample = .8 sample + .2 ttft                      the first one as it is
        delay  = sample - base, threshold = alpha * base
        delay < threshold:             limit + 1
        delay > threshold * (1 + beta): limit * .8

    From `low`, as published. The minimum of TTFT is that of the shortest prompt ever, so on mixed prompts it sits near
    `low`: at ten times the load, 17 % of the best achievable goodput (profile gpu, seed 1). The guard `is_used` is ours.
    """

    __slots__ = ("_base", "_sample")

    ALPHA = 0.1
    BETA = 0.2

    def __init__(self, low: float, high: float, initial: float | None = None) -> None:
        super().__init__(low, high, initial)
        self._base = inf
        self._sample = 0.0

    def answered(self, ttft_s: float, *, is_used: bool) -> None:
        """Move by one sample."""
        if not 0.0 < ttft_s < inf:
            return
        self._base = min(self._base, ttft_s)
        self._sample = 0.8 * self._sample + 0.2 * ttft_s if self._sample else ttft_s
        delay = self._sample - self._base
        threshold = self._base * self.ALPHA
        if delay < threshold:
            if is_used:
                self._move(self.value + 1.0)
        elif delay > threshold * (1.0 + self.BETA):
            self._move(self.value * 0.8)


class Gradient2Limit(_MovingLimit):
    """Netflix concurrency-limits' Gradient2 on TTFT: tolerance 1.5, smoothing .2, queue 4, long window 600 samples.

        long     = mean of the last 600 samples; x .95 where long > 2 * ttft
        gradient = max(.5, min(1, 1.5 * long / ttft))
        limit    = .8 limit + .2 (limit * gradient + 4)

    As published it does nothing at all while less than half of the limit is in flight. The long mean follows a lasting
    slow-down, so its limit climbs again after about 600 samples: known, and the reason why it is not the default.
    """

    __slots__ = ("_long",)

    TOLERANCE = 1.5
    SMOOTHING = 0.2
    QUEUE = 4.0
    LONG_WEIGHT = 2.0 / (600 + 1)

    def __init__(self, low: float, high: float, initial: float | None = None) -> None:
        super().__init__(low, high, initial)
        self._long = Ewma(self.LONG_WEIGHT)

    def answered(self, ttft_s: float, *, is_used: bool) -> None:
        """Move by one sample."""
        if not 0.0 < ttft_s < inf:
            return
        self._long.add(ttft_s)
        long = self._long.value or ttft_s
        if long > 2.0 * ttft_s:
            self._long.value = long * 0.95
        if not is_used:
            return
        gradient = max(0.5, min(1.0, self.TOLERANCE * long / ttft_s))
        target = self.value * gradient + self.QUEUE
        self._move(self.value + self.SMOOTHING * (target - self.value))


class GaugeAimdLimit(_MovingLimit):
    """Additive increase, multiplicative decrease on engine gauges, at most one move per second.

        engine waiting > 0 or KV ratio > kv_target:  min(limit, in flight) * .85
        in flight >= .85 limit:                      limit + 1

    Telemetry older than 3 s is absent: nothing moves. So is a gauge that is missing, negative or not finite; without the
    engine's waiting count nothing rises. At most one move per `PERIOD_S`, however often the same scrape is told.
    """

    __slots__ = ("_kv_target", "_moved_at")

    MAX_AGE_S = 3.0
    PERIOD_S = 0.9  # bounds come every second, give or take; twice in one period is one observation
    DECREASE = 0.85
    USED = 0.85

    def __init__(self, low: float, high: float, initial: float | None, kv_target: float) -> None:
        super().__init__(low, high, initial)
        self._kv_target = kv_target
        self._moved_at = -inf

    def observed(self, seen: BackendBounds, in_flight: int, now: float) -> None:
        """Move by one scrape."""
        age = seen.telemetry_age_s
        if age is None or not 0.0 <= age <= self.MAX_AGE_S or now - self._moved_at < self.PERIOD_S:
            return
        waiting, kv = seen.engine_waiting, seen.kv_ratio
        is_waiting_known = waiting is not None and 0 <= waiting < inf
        if (is_waiting_known and waiting) or (kv is not None and self._kv_target < kv <= 1.0):
            self._moved_at = now
            self._move(min(self.value, in_flight) * self.DECREASE)
        elif is_waiting_known and in_flight >= self.USED * self.value:
            self._moved_at = now
            self._move(self.value + 1.0)


def new_limit(policy: LimitPolicy, low: float, high: float) -> Limit:
    """The limit that `policy.algorithm` names, within low..high. The token valve has none: it is fixed here."""
    initial = None if policy.initial_limit is None else float(policy.initial_limit)
    match policy.algorithm:
        case LimitAlgorithm.VEGAS:
            return VegasLimit(low, high, initial)
        case LimitAlgorithm.GRADIENT2:
            return Gradient2Limit(low, high, initial)
        case LimitAlgorithm.AIMD:
            return GaugeAimdLimit(low, high, initial, policy.kv_target)
        case LimitAlgorithm.FIXED | LimitAlgorithm.TOKEN_VALVE:  # pragma: no branch  # exhaustive
            return FixedLimit(low, high, initial)
