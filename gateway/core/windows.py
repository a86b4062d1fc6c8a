"""Samples over time: averages, sliding counts, the step reference, and values that fall at once but rise later.

Nothing here decides anything; each class states its formula and the bound it promises. A sample that is not a finite
number changes nothing.
"""

from math import inf, isfinite

_SLICES = 10


class Ewma:
    """Exponentially weighted mean: value += w * (sample - value), w = max(weight, 1/k) for the k-th sample.

    The 1/k start makes the first samples a plain mean, so that no start value biases it. The value stays between the
    smallest and the largest sample ever added.
    """

    __slots__ = ("_weight", "count", "value")

    def __init__(self, weight: float) -> None:
        """Start without a value."""
        self._weight = weight
        self.value: float | None = None
        self.count = 0

    def add(self, sample: float) -> None:
        """Take one sample; not finite: ignored."""
        if not isfinite(sample):
            return
        self.count += 1
        if self.value is None:
            self.value = sample
            return
        plain = 1.0 / self.count
        self.value += (plain if plain > self._weight else self._weight) * (sample - self.value)


class SlidingCounts:
    """Successes and failures of the last `window_s` seconds, in ten slices: O(1) memory, O(1) amortised time.

    The oldest slice is forgotten whole, so the window is between 90 and 100 % of `window_s` long.
    """

    __slots__ = ("_failures", "_position", "_slice_s", "_successes", "failures", "successes")

    def __init__(self, window_s: float, now: float) -> None:
        """Start empty at `now`."""
        self._slice_s = window_s / _SLICES
        self.clear(now)

    def clear(self, now: float) -> None:
        """Forget everything."""
        self._position = int(now // self._slice_s)
        self._failures = [0] * _SLICES
        self._successes = [0] * _SLICES
        self.failures = 0
        self.successes = 0

    def forget(self, now: float) -> None:
        """Drop what is older than the window."""
        position = int(now // self._slice_s)
        if position == self._position:
            return
        for passed in range(self._position + 1, min(position, self._position + _SLICES) + 1):
            index = passed % _SLICES
            self.failures -= self._failures[index]
            self.successes -= self._successes[index]
            self._failures[index] = self._successes[index] = 0
        self._position = max(self._position, position)

    def add(self, *, failed: bool, now: float) -> None:
        """Count one outcome."""
        self.forget(now)
        index = self._position % _SLICES
        if failed:
            self._failures[index] += 1
            self.failures += 1
        else:
            self._successes[index] += 1
            self.successes += 1


class StepReference:
    """How long a decode-only engine step with n own streams takes: a running linear regression of time on n.

    step(n) = max(.3 * mean, mean + slope * (n - mean n)), weight max(.02, 1/k). The slope stays in 0..mean/mean n and
    moves only while the variance of n is above .5; a sample counts at most twice what was predicted for it. Without the
    slope the reference would freeze at the unloaded step, and every full batch would look slow.

    Bounds: step(n) > 0 once known; one sample moves the mean by at most its weight times the prediction.
    """

    __slots__ = ("_count", "_covariance", "_mean_n", "_slope", "_variance", "largest_n", "mean")

    WEIGHT = 0.02
    FLOOR = 0.3
    CAP = 2.0
    MIN_VARIANCE = 0.5

    def __init__(self) -> None:
        """Start unknown."""
        self.mean: float | None = None
        self.largest_n = 0
        self._mean_n = 0.0
        self._slope = 0.0
        self._variance = 0.0
        self._covariance = 0.0
        self._count = 0

    def step(self, n: int) -> float:
        """Expected seconds of a decode-only step with n streams; 0 while unknown."""
        mean = self.mean
        if mean is None:
            return 0.0
        expected = mean + self._slope * (n - self._mean_n)
        least = self.FLOOR * mean
        return expected if expected > least else least

    def learn(self, n: int, interval_s: float) -> None:
        """Take one decode-only step. Not finite or not positive: ignored."""
        if not 0.0 < interval_s < inf:
            return
        self._count += 1
        if n > self.largest_n:
            self.largest_n = n
        if self.mean is None:
            self.mean, self._mean_n = interval_s, float(n)
            return
        weight = 1.0 / self._count
        if weight < self.WEIGHT:
            weight = self.WEIGHT
        error = min(interval_s, self.CAP * self.step(n)) - self.mean
        distance = n - self._mean_n
        self.mean += weight * error
        self._mean_n += weight * distance
        self._variance = (1.0 - weight) * (self._variance + weight * distance * distance)
        self._covariance = (1.0 - weight) * (self._covariance + weight * distance * error)
        if self._variance > self.MIN_VARIANCE:
            steepest = self.mean / self._mean_n
            slope = self._covariance / self._variance
            self._slope = 0.0 if slope < 0.0 else slope if slope < steepest else steepest


class LateRise:
    """A bound that several gateways share: it falls at once and rises `DELAY_S` later.

    All gateways get the same bounds within a second: who must give, gives at once; who may take, takes after the others
    have given. So the sum over the gateways never exceeds the whole. While a rise waits, a further one can only make it
    smaller; the rest follows with the next bounds.
    """

    __slots__ = ("_due_at", "_next", "value")

    DELAY_S = 1.0

    def __init__(self, value: float) -> None:
        """Start at `value`."""
        self.value = value
        self._next: float | None = None
        self._due_at = 0.0

    def set(self, value: float, now: float) -> None:
        """Ask for `value`."""
        self.advance(now)
        if value <= self.value:
            self.value, self._next = value, None
        elif self._next is None:
            self._next, self._due_at = value, now + self.DELAY_S
        else:
            self._next = min(self._next, value)

    def advance(self, now: float) -> None:
        """Let a rise that is due happen."""
        if self._next is not None and now >= self._due_at:
            self.value, self._next = self._next, None
