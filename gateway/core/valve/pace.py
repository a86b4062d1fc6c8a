"""What the engine's steps tell: how long they should take, how much prefill they hold, and whether they are slow.

An *interval* is the time between two engine steps in which this gateway got a chunk. The prefill in a step is
m = min(CHUNK, snap + fresh): what had been sent when the step began, not what is pending when it ends.

    expected = step(n) + m * prefill_cost                      n: own streams that were decoding
    slow     += .5 * (min(10, interval / expected) - slow)
    tpot     += .05 * (interval - tpot)                        stalls included; only where someone waits for a token
    cost     += .05 * (max(0, interval - step(n)) / m - cost)  where m >= CHUNK / 8 and slow < 1.5 before this step
    step(n)  learns where m = 0 and no prefill was pending; at most 30 s frozen while slow > 1.5, unless the sample is
             below the prediction or n > 1.25 * the largest n seen + 1: a batch never seen can't be called slow
    after it: todo = min(max(0, todo - m), prefill_tokens), snap = todo

Beyond the formulas: the first eight prefill samples are averaged with the start value however slow they look, or one
far too small would call every prefill slow and never be corrected. A pass that follows within .3 step(n) and repeats no
stream belongs to the same step (sockets are read one after the other). Passes within .3 step(n) of one another are steps
that were held back and came together: they share the time since the last such group, so that a network or a busy engine
process that delivers in bursts looks neither several times faster nor, between two bursts, silent. A lagged pass teaches
nothing, nor does the interval that it begins.
"""

from gateway.core.windows import Ewma, StepReference

SLOW = 1.5
SILENT = 1.6
_NOT_SILENT = 0.4  # of the mean step: less is never called silent, for 1.6 * .3 (the least reference) is more
_SLOW_WEIGHT = 0.5
_SLOW_CAP = 10.0
_TPOT_WEIGHT = 0.05
_COST_WEIGHT = 0.05
_FIRST_COSTS = 8
_FROZEN_S = 30.0
_SAME_STEP = 0.3
_NEW_BATCH = 1.25
_TOGETHER_WEIGHT = 0.05


class Pace:
    """The step clock of one engine as one gateway sees it."""

    __slots__ = (
        "_chunk",
        "_cost_samples",
        "_group",
        "_group_at",
        "_is_tainted",
        "_rate",
        "_rate_n",
        "_slow_since",
        "_snap",
        "_together",
        "last_chunk_at",
        "prefill_cost",
        "reference",
        "slow",
        "steps",
        "todo",
        "tpot",
    )

    def __init__(self, chunk_tokens: int, prefill_window_s: float, now: float) -> None:
        """Start unknown, with a prefill cost that fills the window with one chunk."""
        self._chunk = chunk_tokens
        self._snap = 0
        self._is_tainted = False
        self._group = 1  # steps that came together with the last one,
        self._group_at = now  # the first of them at this instant
        self._together = 1.0  # how many usually do
        self._slow_since: float | None = None
        self._cost_samples = 0
        self._rate = 0.0  # the last prefill rate,
        self._rate_n = -1  # known for so many streams until the next step teaches; -1: for none
        self.todo = 0
        self.steps = 0  # engine steps seen so far
        self.last_chunk_at = now
        self.prefill_cost = prefill_window_s / chunk_tokens
        self.reference = StepReference()
        self.slow = 1.0
        self.tpot = Ewma(_TPOT_WEIGHT)

    def sent(self, prompt_tokens: int, now: float, *, is_idle: bool) -> int:
        """A prompt went out. Returns the step after which it counts as sent: -1 where it starts an idle engine."""
        self.todo += prompt_tokens
        if not is_idle:
            return self.steps
        self._snap = self.todo
        self.last_chunk_at = self._group_at = now
        self._group = 1
        self._is_tainted = False
        return -1

    def left(self, prefill_tokens: int) -> None:
        """An attempt was released; `prefill_tokens` are still pending."""
        self.todo = min(self.todo, prefill_tokens)

    def is_same_step(self, n: int, now: float) -> bool:
        """Whether a pass without a repeated stream belongs to the step of the last one."""
        return now - self.last_chunk_at < _SAME_STEP * self.reference.step(n)

    def chunk(self, n: int, fresh: int, now: float, *, was_pending: bool, lagged: bool) -> None:
        """A step ended: n streams had been decoding, `fresh` prompt tokens came and went since the last one."""
        prefill = self._snap + fresh
        if prefill > self._chunk:
            prefill = self._chunk
        since = now - self._group_at
        mean = self.reference.mean
        if (
            mean is not None
            and since < mean  # as it nearly never is: the step itself is worked out only then
            and since < _SAME_STEP * self.reference.step(n)
            and not (lagged or self._is_tainted)
        ):
            self._group += 1
        else:
            group, self._group, self._group_at = self._group, 1, now
            if group > 1 or self._together > 1.0:
                self._together += _TOGETHER_WEIGHT * (group - self._together)
            if not (lagged or self._is_tainted) and since > 0.0:
                self._learn(n, prefill, since / group, now, was_pending=was_pending)
            self._is_tainted = lagged
        self.todo = self.todo - prefill if self.todo > prefill else 0
        self.last_chunk_at = now
        self.steps += 1

    def settle(self, prefill_tokens: int) -> None:
        """After the chunk: what is left to compute can't be more than what is pending."""
        if prefill_tokens < self.todo:
            self.todo = prefill_tokens
        self._snap = self.todo

    def _learn(self, n: int, prefill: int, interval: float, now: float, *, was_pending: bool) -> None:
        self._rate_n = -1
        reference = self.reference
        step = reference.step(n)
        was_slow = self.slow >= SLOW
        if step > 0.0:
            ratio = interval / (step + prefill * self.prefill_cost)
            self.slow += _SLOW_WEIGHT * ((ratio if ratio < _SLOW_CAP else _SLOW_CAP) - self.slow)
            if self.slow > SLOW or self._slow_since is not None:
                self._note_slow(now)
        if n > 0:
            self.tpot.add(interval)
        if prefill >= self._chunk / 8 and (not was_slow or self._cost_samples < _FIRST_COSTS):
            self._learn_cost(max(0.0, interval - step) / prefill)
        elif prefill == 0 and n > 0 and not was_pending and not self._is_frozen(n, interval, now):
            reference.learn(n, interval)

    def _learn_cost(self, cost: float) -> None:
        self._cost_samples += 1
        is_first = self._cost_samples <= _FIRST_COSTS
        weight = 1.0 / (1 + self._cost_samples) if is_first else _COST_WEIGHT
        self.prefill_cost += weight * (cost - self.prefill_cost)

    def _note_slow(self, now: float) -> None:
        if self.slow <= SLOW:
            self._slow_since = None
        elif self._slow_since is None:
            self._slow_since = now

    def _is_frozen(self, n: int, interval: float, now: float) -> bool:
        if self._slow_since is None or now - self._slow_since > _FROZEN_S:
            return False
        reference = self.reference
        return interval >= reference.step(n) and n <= _NEW_BATCH * reference.largest_n + 1.0

    def slow_now(self, in_flight: int, n: int, now: float) -> float:
        """How many times too slow the engine is: measured, or by its silence where that is longer than 1.6 steps."""
        slow = self.slow
        mean = self.reference.mean
        if in_flight <= 0 or mean is None:
            return slow
        waited = now - self.last_chunk_at
        if waited < _NOT_SILENT * mean:
            return slow
        expected = self.reference.step(n) + min(self.todo, self._chunk) * self.prefill_cost
        silence = waited / (expected * self._together)
        return silence if silence > SILENT and silence > slow else slow

    def prefill_rate(self, n: int) -> float:
        """Prefill tokens per second that the engine computes beside n streams: computed, not measured."""
        if n != self._rate_n:
            duration = self.reference.step(n) + self._chunk * self.prefill_cost
            self._rate = self._chunk / (duration if duration > 1e-9 else 1e-9)
            self._rate_n = n
        return self._rate
