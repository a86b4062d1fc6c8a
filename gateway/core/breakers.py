"""When a backend counts as broken, and how it is tried again. Decides about one backend; chooses none.

    closed --(failures)--> open --(open_s)--> half-open --(probes succeed)--> closed, ramping up
                            ^                     |
                            +----(a probe fails or hangs)
    forced open / forced closed: set by a person, left only when released, then closed with nothing counted

What an outcome counts as:

| outcome | counts as |
|---|---|
| answered in full | success |
| 5xx except 503 (`server_error`) | failure |
| no connection (`connection`) | failure |
| no first byte, stalled or too long, by our own time-outs (`*_timeout`) | failure |
| death after the first byte, error event in the stream (`midstream`) | failure |
| 4xx (`caller_error`) | neither: the caller's fault |
| 429, 503: the engine is busy (`neutral`) | neither: back-pressure, it is alive |
| nothing but 503 for 10 s | not ready: skipped, tried once a second, until it answers anything else |
| the caller left or timed out (`neutral`) | neither |

Opens when at least `min_requests` counted outcomes of the last `window_s` seconds hold at least `failure_ratio` failures.
Bounds: in half-open at most `half_open_probes` probes at once and at most that many begin per second; each gives its
place back at its outcome or after `probe_timeout_s`, so half-open can't be wedged. Outcomes of attempts that were
dispatched before the breaker opened change nothing once it has.
"""

from gateway.core.policy import BreakerPolicy
from gateway.core.vocabulary import BreakerState, Fault
from gateway.core.windows import SlidingCounts

PROBE_SPACING_S = 1.0
NOT_READY_S = 10.0
RAMP_START = 0.1

# members of an Enum by name: looking one up in its class costs a quarter of a microsecond
_CLOSED = BreakerState.CLOSED
_FORCED_CLOSED = BreakerState.FORCED_CLOSED
_FORCED_OPEN = BreakerState.FORCED_OPEN
_HALF_OPEN = BreakerState.HALF_OPEN
_OPEN = BreakerState.OPEN
_CALLER_ERROR = Fault.CALLER_ERROR


class Breaker:
    """One backend's breaker. `now` never goes backwards; attempts are named by number.

    The owner calls `dispatched` once per attempt, then exactly one of `succeeded`, `failed` and `neutral`. `answered`
    (the first token) is optional: it lets a probe with a long answer prove the backend before it ends.
    """

    __slots__ = (
        "_alive_probes",
        "_counts",
        "_next_spacing_at",
        "_only_503_since",
        "_policy",
        "_probes",
        "_published",
        "_ramp_from",
        "_starts",
        "_until",
        "failures",
        "not_ready",
        "state",
        "successes",
    )

    def __init__(self, policy: BreakerPolicy, now: float) -> None:
        """Start closed."""
        self._policy = policy
        self._counts = SlidingCounts(policy.window_s, now)
        self._published: BreakerState | None = None
        self.failures = 0  # counted outcomes since the start, for reports
        self.successes = 0
        self._starts = 0  # probes begun before `_next_spacing_at`: outlives every change of state
        self._next_spacing_at = now
        self._reset(now)

    def __repr__(self) -> str:
        return (
            f"<Breaker {self.state.value} failures={self._counts.failures} successes={self._counts.successes}"
            f" probes={len(self._probes)} until={self.until}>"
        )

    def _reset(self, now: float) -> None:
        self.state = _CLOSED
        self.not_ready = False
        self._only_503_since: float | None = None
        self._until: float | None = None
        self._ramp_from: float | None = None
        self._probes: dict[int, float] = {}  # attempt -> when it counts as hung, oldest first
        self._alive_probes = 0
        self._counts.clear(now)

    @property
    def until(self) -> float | None:
        """When the next probe may go: the end of open, or of a not-ready pause. None: nothing is waited for."""
        if self.not_ready and self.state is _CLOSED:
            return self._next_spacing_at
        return self._until

    def allows(self, now: float) -> bool:
        """Whether the backend may be given a ticket now."""
        self.tick(now)
        match self.state:
            case BreakerState.FORCED_CLOSED:
                return True
            case BreakerState.CLOSED:
                return not self.not_ready or now >= self._next_spacing_at
            case BreakerState.HALF_OPEN:
                return self.has_place(now)
            case BreakerState.OPEN | BreakerState.FORCED_OPEN:  # pragma: no branch  # the match is exhaustive
                return False

    def has_place(self, now: float) -> bool:
        """Half-open: whether one more probe may go now. Reading it changes nothing."""
        return len(self._probes) < self._policy.half_open_probes and self._has_start(now)

    def _has_start(self, now: float) -> bool:
        return now >= self._next_spacing_at or self._starts < self._policy.half_open_probes

    def dispatched(self, attempt: int, now: float) -> None:
        """A ticket goes to the backend: in half-open it is a probe and takes a place."""
        self.tick(now)
        if self.state is _HALF_OPEN:
            self._begin_start(now)
            self._probes[attempt] = now + self._policy.probe_timeout_s
        elif self.not_ready:
            self._next_spacing_at = now + PROBE_SPACING_S

    def _begin_start(self, now: float) -> None:
        if now >= self._next_spacing_at:
            self._next_spacing_at = now + PROBE_SPACING_S
            self._starts = 0
        self._starts += 1

    def answered(self, attempt: int, now: float) -> None:
        """The first token came: the backend is alive, and a probe has done its work."""
        self._seems_ready()
        if self._probes and self._probes.pop(attempt, None) is not None:
            self._probe_succeeded(now)

    def succeeded(self, attempt: int, now: float) -> None:
        """Answered in full."""
        if self.state is _CLOSED:  # as nearly always: no time acts on it, and there are no probes
            self._seems_ready()
            self.successes += 1
            self._counts.add(failed=False, now=now)
            return
        self.tick(now)
        self.answered(attempt, now)
        self.successes += 1
        if self.state is _CLOSED:
            self._counts.add(failed=False, now=now)

    def failed(self, attempt: int, fault: Fault, now: float) -> None:
        """The dispatch failed; only the backend's own faults count (see the table)."""
        self.tick(now)
        if fault is _CALLER_ERROR:
            self._seems_ready()
            self.neutral(attempt, now)
            return
        self._seems_ready()
        self.failures += 1
        if self._probes.pop(attempt, None) is not None:
            self._open(now)
        elif self.state is _CLOSED and self._policy.enabled:
            self._counts.add(failed=True, now=now)
            if self._is_broken():
                self._open(now)

    def neutral(self, attempt: int, now: float, *, status: int | None = None) -> None:
        """It says nothing about the backend's health: the caller left, or the engine was busy (`status` 429 or 503)."""
        self.tick(now)
        self._probes.pop(attempt, None)
        if status is None:
            return
        if status != 503:  # Service Unavailable
            self._seems_ready()
        elif self._only_503_since is None:
            self._only_503_since = now
        elif now - self._only_503_since >= NOT_READY_S and not self.not_ready and self._policy.enabled:
            self.not_ready = True
            self._next_spacing_at = now + PROBE_SPACING_S

    def tick(self, now: float) -> None:
        """Let time act: the end of open, and probes that hang."""
        if self.state is _OPEN:
            if self._until is not None and now >= self._until:
                self._half_open()
        elif self._probes and now >= next(iter(self._probes.values())):
            self._open(now)

    def force(self, state: BreakerState | None, now: float) -> None:
        """Set by hand: (forced) open or closed; None releases it to a clean closed state.

        Saying the same again changes nothing.

        Raises:
            ValueError: for half-open, which nobody can force.
        """
        if state is None:
            self._release(now)
            return
        if state is _HALF_OPEN:
            raise ValueError("state: a breaker can be forced open or closed, not half-open")
        is_open = state in (_OPEN, _FORCED_OPEN)
        forced = _FORCED_OPEN if is_open else _FORCED_CLOSED
        if self.state is not forced:
            self._reset(now)
            self.state = forced

    def _release(self, now: float) -> None:
        if self.state is _FORCED_OPEN:
            self._reset(now)
            self._ramp_from = now
        elif self.state is _FORCED_CLOSED:
            self._reset(now)

    def published(self, state: BreakerState | None, now: float) -> None:
        """What the votes of all gateways give. Acts on its changes only: the verdict is a second old when it is repeated.

        It turns open: open here too. It turns from open to closed: probe here at once instead of waiting for the end.
        """
        before, self._published = self._published, state
        self.tick(now)
        if state is before or not self._policy.enabled:
            return
        if state is _OPEN and self.state is _CLOSED:
            self._open(now)
        elif state is _CLOSED and self.state is _OPEN:
            self._half_open()

    def ramp(self, now: float) -> float:
        """How much of its usual load a recovered backend may be given: .1 at recovery, 1 after `ramp_s`."""
        if self._ramp_from is None:
            return 1.0
        if now - self._ramp_from >= self._policy.ramp_s:
            self._ramp_from = None
            return 1.0
        return max(RAMP_START, (now - self._ramp_from) / self._policy.ramp_s)

    def _is_broken(self) -> bool:
        counts = self._counts
        total = counts.failures + counts.successes
        return total >= self._policy.min_requests and counts.failures >= self._policy.failure_ratio * total

    def _seems_ready(self) -> None:
        self._only_503_since = None
        self.not_ready = False

    def _open(self, now: float) -> None:
        self._reset(now)
        self.state = _OPEN
        self._until = now + self._policy.open_s

    def _half_open(self) -> None:
        self.state = _HALF_OPEN
        self._until = None

    def _probe_succeeded(self, now: float) -> None:
        self._alive_probes += 1
        if self._alive_probes >= self._policy.half_open_probes:
            self._reset(now)
            self._ramp_from = now
