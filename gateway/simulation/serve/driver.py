"""Runs an engine model in real time: one loop takes its steps, streams wait for their tokens.

The only simulation module that names the clock.
"""

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto

from gateway.simulation.model import Engine
from gateway.simulation.profiles import EngineSpec
from gateway.simulation.serve.faults import FaultKind, FaultOrder, Faults
from gateway.simulation.serve.wire import Asked

POLL_S = 0.02
CATCH_UP_S = 0.05
PREEMPTION_LAG_S = 5.8  # measured on vLLM: the counter moves that much later
TTFT_BUCKETS = (
    .001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
ITL_BUCKETS = (
    .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
E2E_BUCKETS = (
    .3, .5, .8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
)  # fmt: skip


class Signal(Enum):
    """What a stream may be told besides the number of a token."""

    CRASHED = auto()
    CUT = auto()
    LEFT = auto()


@dataclass(slots=True)
class Histogram:
    """A Prometheus histogram: cumulative counts are made when it is written."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total_s: float = 0.0

    def __post_init__(self) -> None:
        """Start with empty buckets, the last of them +Inf."""
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, seconds: float) -> None:
        """Count one sample."""
        self.total_s += seconds
        for index, bound in enumerate(self.bounds):
            if seconds <= bound:
                self.counts[index] += 1
                return
        self.counts[-1] += 1


@dataclass(slots=True)
class Stream:
    """One request that waits for its tokens."""

    key: str
    arrived_at: float
    is_cut: bool
    generated: int = 0
    slot: int | None = None
    last_at: float | None = None
    items: asyncio.Queue[int | Signal] = field(default_factory=asyncio.Queue)


@dataclass(frozen=True, slots=True)
class Gauges:
    """What the engine shows of itself: refreshed at the end of each step, frozen while it hangs."""

    running: int
    waiting: int
    kv_ratio: float


@dataclass(slots=True)
class Statistics:
    """Histograms and counters since the engine started."""

    started_at: float
    ttft: Histogram = field(default_factory=lambda: Histogram(TTFT_BUCKETS))
    inter_token: Histogram = field(default_factory=lambda: Histogram(ITL_BUCKETS))
    per_token: Histogram = field(default_factory=lambda: Histogram(ITL_BUCKETS))
    end_to_end: Histogram = field(default_factory=lambda: Histogram(E2E_BUCKETS))
    queue: Histogram = field(default_factory=lambda: Histogram(E2E_BUCKETS))
    stopped: int = 0
    cut: int = 0
    released_tokens: int = 0  # counted when a seat is released, as llama.cpp does
    longest: int = 0


class Driver:
    """One simulated engine under real time."""

    def __init__(self, spec: EngineSpec, *, seed: int, slow_down: float = 1.0) -> None:
        self.engine = Engine(spec, seed)
        self.faults = Faults()
        self.streams: dict[str, Stream] = {}
        self.statistics = Statistics(started_at=time.time())
        self.gauges = Gauges(0, 0, 0.0)
        self.metrics_read_at = 0.0
        self._slow_down = slow_down
        self._work = asyncio.Event()
        self._step_ended = asyncio.Event()
        self._preemptions: deque[tuple[float, int]] = deque([(0.0, 0)])

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def wall_s(self) -> int:
        """Whole seconds since the epoch."""
        return int(time.time())

    def submit(self, key: str, asked: Asked) -> Stream | None:
        """Take a request; None where the engine's own queue is full."""
        if not self.engine.submit(key, asked.prompt_tokens, asked.output_tokens, asked.body.priority):
            return None
        stream = self.streams[key] = Stream(key, self.now(), asked.is_cut)
        self._work.set()
        return stream

    def leave(self, stream: Stream, *, notices_after_s: float = 0.0) -> None:
        """The caller has gone. The engine notices at its next step, or so many seconds later."""
        if self.streams.pop(stream.key, None) is None:
            return
        self.engine.disown(stream.key)
        if notices_after_s:
            self._notice_later(stream.key, notices_after_s)
        else:
            self.engine.abort(stream.key)

    def _notice_later(self, key: str, after_s: float) -> None:
        """Abort that much later, unless metrics were read meanwhile: reading them wakes the engine's own waiting."""

        def notice() -> None:
            if self.metrics_read_at > self.now() - after_s:
                self._notice_later(key, after_s)
            else:
                self.engine.abort(key)

        asyncio.get_running_loop().call_later(after_s, notice)

    def order(self, order: FaultOrder) -> None:
        """Put a fault in force; a crash or a cut hits what is running at once."""
        self.faults.set(order, self.now())
        if order.fault in (FaultKind.CRASH, FaultKind.CUT):
            self._lose_all(Signal.CRASHED if order.fault is FaultKind.CRASH else Signal.CUT)
        self._work.set()

    def preemptions(self) -> int:
        """The preemption counter as vLLM shows it: late."""
        visible_until = self.now() - PREEMPTION_LAG_S
        while len(self._preemptions) > 1 and self._preemptions[1][0] <= visible_until:
            self._preemptions.popleft()
        return self._preemptions[0][1]

    def slots(self) -> dict[int, str]:
        """Which request holds which llama.cpp slot."""
        return {stream.slot: key for key, stream in self.streams.items() if stream.slot is not None}

    async def step_end(self) -> None:
        """Wait for the end of the running step; return at once where the engine is idle."""
        if not self.engine.is_idle:
            await self._step_ended.wait()

    async def run(self) -> None:
        """Take steps for ever."""
        due = self.now()
        while True:
            now = self.now()
            if self.faults.get(FaultKind.HANG, now) is not None:
                await asyncio.sleep(POLL_S)
                continue
            slow = self.faults.get(FaultKind.SLOW_DOWN, now)
            self.engine.slow_factor = self._slow_down * (slow.factor if slow else 1.0)
            duration = self.engine.start_step()
            if duration is None:
                self._refresh()
                await self._idle()
                due = self.now()
                continue
            self._seat()
            due = (due if due > now - CATCH_UP_S else now) + duration
            await asyncio.sleep(max(0.0, due - self.now()))
            await self._while_hanging()
            if self.engine.is_stepping:  # not crashed meanwhile
                self._deliver()

    async def _idle(self) -> None:
        self._work.clear()
        if self.engine.is_idle:
            await self._work.wait()

    async def _while_hanging(self) -> None:
        while self.faults.get(FaultKind.HANG, self.now()) is not None:  # noqa: ASYNC110  # a fault ends by time
            await asyncio.sleep(POLL_S)

    def _deliver(self) -> None:
        now = self.now()
        for sequence in self.engine.finish_step():
            stream = self.streams.get(sequence.key)
            if stream is None:
                continue
            self._observe(stream, sequence.generated, now)
            stream.items.put_nowait(sequence.generated - 1)
            if sequence.generated >= sequence.output_tokens:
                self._release(stream, sequence.prompt_tokens + sequence.generated, now)
        self._refresh()

    def _observe(self, stream: Stream, generated: int, now: float) -> None:
        if stream.last_at is None:
            self.statistics.ttft.observe(now - stream.arrived_at)
        else:
            self.statistics.inter_token.observe(now - stream.last_at)
        stream.last_at = now
        stream.generated = generated

    def _release(self, stream: Stream, length: int, now: float) -> None:
        statistics = self.statistics
        if stream.is_cut:
            statistics.cut += 1
        else:
            statistics.stopped += 1
        statistics.end_to_end.observe(now - stream.arrived_at)
        statistics.per_token.observe((now - stream.arrived_at) / stream.generated)
        statistics.released_tokens += stream.generated
        statistics.longest = max(statistics.longest, length)
        self.streams.pop(stream.key, None)

    def _seat(self) -> None:
        """Give a slot number to what began to run in this step."""
        taken = set(self.slots())
        free = (index for index in range(self.engine.spec.seats) if index not in taken)
        now = self.now()
        for sequence in self.engine.running:
            stream = self.streams.get(sequence.key)
            if stream is not None and stream.slot is None:
                stream.slot = next(free, None)
                self.statistics.queue.observe(now - stream.arrived_at)

    def _refresh(self) -> None:
        engine = self.engine
        preempted = engine.counters.preemptions
        if preempted != self._preemptions[-1][1]:
            self._preemptions.append((self.now(), preempted))
        self.gauges = Gauges(len(engine.running), len(engine.waiting), engine.kv_ratio)
        ended, self._step_ended = self._step_ended, asyncio.Event()
        ended.set()

    def _lose_all(self, signal: Signal) -> None:
        self.engine.crash()
        lost, self.streams = self.streams, {}
        for stream in lost.values():
            stream.items.put_nowait(signal)
        self._preemptions = deque([(0.0, 0)])
        self.statistics = Statistics(started_at=time.time())
        self._refresh()
