"""How many retries a caller may add to its load: a share of its calls, and a small number when it calls seldom.

    balance = max(floor, ratio * calls) - retries

`calls` and `retries` fade with the same time constant `window_s`, so that what was long ago neither pays nor costs.
Bound: of N calls that begin within a fraction of the window, at most max(floor, ratio * N) retries are made, however
many of them fail; that is why a backend that fails everything sees at most 1 + ratio attempts per call. The idea is
Finagle's and gRPC's (retry throttling); a limit per call alone multiplies the load exactly when there is too much.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic

_FADED = 0.05  # of a retry: so much less than a whole one is a whole one, else what fades would never be gone


@dataclass(slots=True)
class RetryBudget:
    """Shared by all calls of a client, from any thread; give several clients the same one to bound them together.

    Attributes:
        ratio: retries per call, 0 to 1.
        floor: retries that are always allowed within the window, so that a single failed call can be tried again.
        window_s: after how many seconds a call or retry counts 1/e.
        clock: monotonic seconds.

    Raises:
        ValueError: a value is out of range; the message names it.
    """

    ratio: float = 0.2
    floor: float = 3.0
    window_s: float = 60.0
    clock: Callable[[], float] = monotonic
    _calls: float = field(default=0.0, init=False)
    _retries: float = field(default=0.0, init=False)
    _faded_at: float = field(default=0.0, init=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.ratio <= 1:
            raise ValueError(f"ratio: 0 to 1 is expected, not {self.ratio}")
        if not 0 <= self.floor < math.inf:
            raise ValueError(f"floor: 0 or more is expected, not {self.floor}")
        if not 0 < self.window_s < math.inf:
            raise ValueError(f"window_s: more than 0 is expected, not {self.window_s}")
        self._faded_at = self.clock()

    @property
    def balance(self) -> float:
        """Retries that are left now."""
        with self._lock:
            self._fade()
            return self._left()

    def deposit(self) -> None:
        """A call begins."""
        with self._lock:
            self._fade()
            self._calls += 1

    def withdraw(self) -> bool:
        """Take one retry; False where none is left."""
        with self._lock:
            self._fade()
            if self._left() + _FADED < 1:
                return False
            self._retries += 1
            return True

    def _left(self) -> float:
        return max(self.floor, self.ratio * self._calls) - self._retries

    def _fade(self) -> None:
        now = self.clock()
        share = math.exp(-max(0.0, now - self._faded_at) / self.window_s)
        self._calls *= share
        self._retries *= share
        self._faded_at = now
