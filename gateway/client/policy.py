"""What a caller wants of its retries, as values; checked once, when they are made."""

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

RETRIED_STATUSES = frozenset({408, 429, 500, 502, 503, 504, 529})


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When to try again, and how long to wait before.

    Attributes:
        max_retries: most retries of one call (so at most 1 + max_retries attempts).
        base_s: the first back-off; it doubles with every retry.
        cap_s: the longest back-off.
        min_wait_s: no wait is shorter, so that nothing can make a busy loop.
        max_named_wait_s: a server that names more than this gets no retry: its answer is returned at once.
        deadline_s: the time for a call with all its attempts and waits, until the answer begins; None: no limit.
            A call with a header `x-request-timeout-ms` of its own has that one instead.
        statuses: tried again where the server's `x-should-retry` says nothing.

    Raises:
        ValueError: a value is out of range; the message names it.
    """

    max_retries: int = 2
    base_s: float = 0.5
    cap_s: float = 8.0
    min_wait_s: float = 0.05
    max_named_wait_s: float = 60.0
    deadline_s: float | None = None
    statuses: frozenset[int] = RETRIED_STATUSES

    def __post_init__(self) -> None:
        if not 0 <= self.max_retries <= 100:  # said in the message
            raise ValueError(f"max_retries: 0 to 100 is expected, not {self.max_retries}")
        for name in ("base_s", "cap_s", "min_wait_s", "max_named_wait_s"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"{name}: more than 0 is expected, not {value}")
        if self.deadline_s is not None and not 0 < self.deadline_s < math.inf:
            raise ValueError(f"deadline_s: more than 0 or None is expected, not {self.deadline_s}")

    def backoff_s(self, retries: int) -> float:
        """The longest own wait before the retry after so many."""
        return min(self.cap_s, self.base_s * 2.0 ** min(retries, 64))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Clocks and dice; tests give their own.

    Attributes:
        monotonic: seconds for deadlines.
        wall: epoch seconds, for Retry-After as a date.
        dice: uniform in [0, 1).
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    dice: Callable[[], float] = random.random
