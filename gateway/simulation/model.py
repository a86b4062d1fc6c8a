"""One inference engine with continuous batching, as arithmetic: no clock, no network.

The driver asks for steps: `start_step` says how long the next one takes, `finish_step` what came out of it. Per step
(as vLLM's scheduler does it): sequences that run come first, each allocates memory by block; when blocks run out the
newest sequence is preempted and computed again later; then waiting ones are admitted first come first served while
seats, the chunk of prompt tokens and blocks last. A sequence emits its first token at the end of the step that
completes its prompt, then one per step. An aborted sequence is gone at the next step.
"""

import math
import random
from collections import deque
from dataclasses import dataclass, field

from gateway.simulation.profiles import EngineSpec


class Sequence:
    """One request inside the engine."""

    __slots__ = (
        "blocks",
        "context",
        "generated",
        "is_aborted",
        "is_paid_for",
        "key",
        "output_tokens",
        "priority",
        "prompt_tokens",
        "todo",
    )

    def __init__(self, key: str, prompt_tokens: int, output_tokens: int, priority: int = 0) -> None:
        """`todo` counts the tokens to compute before the next one comes out; a decoding sequence has 1."""
        self.key = key
        self.prompt_tokens = max(1, prompt_tokens)
        self.output_tokens = max(1, output_tokens)
        self.priority = priority
        self.generated = 0
        self.context = 0  # tokens in the cache
        self.todo = self.prompt_tokens
        self.blocks = 0
        self.is_aborted = False
        self.is_paid_for = True  # False: its caller has gone, tokens are waste


@dataclass(slots=True)
class Counters:
    """What the engine counts since it started; a restart starts them again."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    recomputed_tokens: int = 0
    wasted_tokens: int = 0  # generated for callers that had gone
    finished: int = 0
    aborted: int = 0
    rejected: int = 0
    steps: int = 0
    busy_seqs: int = 0
    prompt_s: float = 0.0
    decode_s: float = 0.0


@dataclass(slots=True)
class _Step:
    sequences: int = 0
    prefill: int = 0
    kv: int = 0
    emits: list[Sequence] = field(default_factory=list)


class Engine:
    """State of one engine. The same seed and the same calls give the same steps."""

    def __init__(self, spec: EngineSpec, seed: int = 0) -> None:
        self.spec = spec
        self.slow_factor = 1.0
        self.counters = Counters()
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.is_stepping = False
        self._by_key: dict[str, Sequence] = {}
        self._dice = random.Random(seed)  # noqa: S311  # a model, not a secret
        self._free_blocks = spec.kv_tokens // spec.block_tokens
        self._step = _Step()
        self._has_aborted = False
        self._mu = -0.5 * spec.jitter_sigma**2

    def __repr__(self) -> str:
        return f"<Engine running={len(self.running)} waiting={len(self.waiting)} kv={self.kv_ratio:.2f}>"

    @property
    def is_idle(self) -> bool:
        """Whether a step would have nothing to do."""
        return not self.running and not self.waiting

    @property
    def kv_ratio(self) -> float:
        """Part of the KV cache in use, 0..1; 0 where each seat has its own context."""
        total = self.spec.kv_tokens // self.spec.block_tokens
        return 1.0 - self._free_blocks / total if total else 0.0

    @property
    def context_tokens(self) -> int:
        """Tokens in the caches of all running sequences."""
        return sum(sequence.context for sequence in self.running)

    def sequence(self, key: str) -> Sequence | None:
        """The sequence of that key, if it is still here."""
        return self._by_key.get(key)

    def submit(self, key: str, prompt_tokens: int, output_tokens: int, priority: int = 0) -> bool:
        """Take a request; False where the engine's own queue is full. A prompt over the context is cut to fit."""
        limit = self.spec.max_waiting
        if limit is not None and len(self.waiting) >= limit:
            self.counters.rejected += 1
            return False
        context = min(self.spec.context_tokens, self.spec.kv_tokens or self.spec.context_tokens)
        prompt = min(prompt_tokens, context - 1)
        output = min(output_tokens, context - prompt)
        sequence = Sequence(key, prompt, output, priority)
        self._by_key[key] = sequence
        place = len(self.waiting)
        while place > 0 and self.waiting[place - 1].priority > priority:
            place -= 1
        self.waiting.insert(place, sequence)
        return True

    def abort(self, key: str) -> None:
        """The caller left: the sequence is dropped at the next step. Unknown keys are ignored."""
        sequence = self._by_key.get(key)
        if sequence is not None:
            sequence.is_aborted = True
            sequence.is_paid_for = False
            self._has_aborted = True

    def disown(self, key: str) -> None:
        """The caller left, but the engine has not noticed: what comes out from now on is waste."""
        sequence = self._by_key.get(key)
        if sequence is not None:
            sequence.is_paid_for = False

    def crash(self) -> tuple[str, ...]:
        """Lose everything and count from zero again; return whose work was lost."""
        lost = tuple(self._by_key)
        self.running.clear()
        self.waiting.clear()
        self._by_key.clear()
        self._free_blocks = self.spec.kv_tokens // self.spec.block_tokens
        self._step = _Step()
        self._has_aborted = False
        self.is_stepping = False
        self.counters = Counters()
        return lost

    def start_step(self) -> float | None:
        """Schedule the next step and say how many seconds it takes; None where there is nothing to do."""
        if self._has_aborted:
            self._drop_aborted()
        if self.is_idle:
            return None
        step = self._step = _Step()
        preemptions = self.counters.preemptions
        budget = self._schedule_running(step)
        if self.counters.preemptions == preemptions:
            self._admit(step, budget)
        self.is_stepping = True
        spec = self.spec
        prefill_s = spec.per_prefill_s * step.prefill
        plain_s = spec.base_s + spec.per_seq_s * step.sequences + prefill_s + spec.per_kv_s * step.kv
        duration = plain_s * self.slow_factor
        if spec.jitter_sigma:
            duration *= math.exp(self._dice.gauss(self._mu, spec.jitter_sigma))
        self._count(step, duration, prefill_s / plain_s)
        return duration

    def finish_step(self) -> list[Sequence]:
        """Who got a token in the step that was started. Sequences that are done have left their seats."""
        self.is_stepping = False
        emits = self._step.emits
        has_done = False
        wasted = 0
        for sequence in emits:
            sequence.todo = 1
            sequence.generated = generated = sequence.generated + 1
            if generated >= sequence.output_tokens:
                has_done = True
            if not sequence.is_paid_for:
                wasted += 1
        self.counters.generated_tokens += len(emits)
        self.counters.wasted_tokens += wasted
        if has_done:
            self._retire()
        return emits

    def _count(self, step: _Step, duration: float, prefill_ratio: float) -> None:
        counters = self.counters
        counters.steps += 1
        counters.busy_seqs += step.sequences
        counters.prompt_tokens += step.prefill
        counters.prompt_s += duration * prefill_ratio
        counters.decode_s += duration * (1.0 - prefill_ratio)

    def _retire(self) -> None:
        keep: list[Sequence] = []
        for sequence in self.running:
            if sequence.generated >= sequence.output_tokens:
                self._forget(sequence)
                self.counters.finished += 1
            else:
                keep.append(sequence)
        self.running = keep

    def _forget(self, sequence: Sequence) -> None:
        self._free_blocks += sequence.blocks
        sequence.blocks = 0
        self._by_key.pop(sequence.key, None)

    def _drop_aborted(self) -> None:
        self._has_aborted = False
        for sequence in [*self.running, *self.waiting]:
            if sequence.is_aborted:
                self._forget(sequence)
                self.counters.aborted += 1
        self.running = [sequence for sequence in self.running if not sequence.is_aborted]
        self.waiting = deque(sequence for sequence in self.waiting if not sequence.is_aborted)

    def _schedule_running(self, step: _Step) -> int:  # noqa: PLR0915  # the hot loop: calls would cost more than they clear up
        """Advance what runs, oldest first; return how much of the chunk is left."""
        budget = self.spec.chunk_tokens
        has_blocks = self.spec.kv_tokens > 0
        block = self.spec.block_tokens
        emits = step.emits
        running = self.running
        kv = index = 0
        while index < len(running):
            sequence = running[index]
            index += 1
            todo = sequence.todo
            tokens = 1 if todo == 1 else min(todo, budget)
            if tokens == 0:
                continue
            context = sequence.context + tokens
            if has_blocks and context > sequence.blocks * block and not self._allocate(sequence, context):
                break
            sequence.context = context
            kv += context
            step.sequences += 1
            if todo > 1:
                budget -= tokens
                step.prefill += tokens
            if tokens == todo:
                emits.append(sequence)
            else:
                sequence.todo = todo - tokens
        step.kv = kv
        return budget

    def _allocate(self, sequence: Sequence, context: int) -> bool:
        """Blocks for `context` tokens, preempting the newest if need be; False where it had to preempt itself."""
        need = -(-context // self.spec.block_tokens) - sequence.blocks
        while need > self._free_blocks:
            victim = self.running.pop()
            self._preempt(victim)
            if victim is sequence:
                return False
        self._free_blocks -= need
        sequence.blocks += need
        return True

    def _preempt(self, victim: Sequence) -> None:
        self._free_blocks += victim.blocks
        self.counters.preemptions += 1
        self.counters.recomputed_tokens += victim.context
        victim.blocks = 0
        victim.context = 0
        victim.todo = victim.prompt_tokens + victim.generated
        self.waiting.appendleft(victim)

    def _admit(self, step: _Step, budget: int) -> None:
        """Let waiting sequences in, first come first served, while seats, chunk and blocks last."""
        spec = self.spec
        while self.waiting and budget > 0 and len(self.running) < spec.seats:
            sequence = self.waiting[0]
            tokens = min(sequence.todo, budget)
            if spec.kv_tokens:
                need = -(-tokens // spec.block_tokens)
                if need > self._free_blocks:
                    return
                self._free_blocks -= need
                sequence.blocks = need
            self.waiting.popleft()
            self.running.append(sequence)
            budget -= tokens
            sequence.context = tokens
            step.sequences += 1
            step.prefill += tokens
            step.kv += tokens
            if tokens == sequence.todo:
                step.emits.append(sequence)
            else:
                sequence.todo -= tokens
