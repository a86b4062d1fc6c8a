"""What a decision costs: `python -m benchmarks.core` prints microseconds and bytes, and fails below a must.

What is timed is `Gate.handle` alone, in CPU time of this process: one gate is driven and its events are written down,
then gates alike play them again and again. A figure is the sum over short slices of the script, each at the least that it
took in any replay: the work of a slice is the same every time, and a neighbour on the machine (its caches, its clock
rate, the other half of the core) only ever adds. Beside it stand the best and the median replay as a whole, and what a
fixed piece of plain Python cost meanwhile: how many times slower than when quiet the machine was. Nothing is divided by
that.
The gate under test has 3 tiers, 200 tenants, 4 backends behind token valves, and 1,000 tickets that wait.
"""

import gc
import math
import platform
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from gateway.core.commands import Command, Dispatch, Refuse
from gateway.core.events import (
    Abandoned,
    Arrived,
    BackendBounds,
    BoundsReceived,
    Event,
    Finished,
    Progress,
    Ticked,
)
from gateway.core.gate import Gate
from gateway.core.policy import (
    BackendPolicy,
    GatePolicy,
    LimitPolicy,
    PoolPolicy,
    QueuePolicy,
    default_tiers,
)
from gateway.core.vocabulary import DropPolicy

TENANTS = 200
BACKENDS = 4
WAITING = 1_000
REPLAYS = 30
SLICE = 26  # events: about a third of a millisecond
MICRO = 1e6
REFERENCE_LOOPS = 5_000
REFERENCE_US = 0.349  # per loop: the least ever seen on the machine of docs/benchmarks.md


@dataclass(frozen=True, slots=True)
class Timing:
    """CPU time per event: by the least of each slice, best and median replay; and how slow the machine was."""

    least_us: float
    best_us: float
    median_us: float
    slowness: float  # by the best reference
    median_slowness: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number and its bound. `must` None: shown only."""

    name: str
    value: float
    unit: str
    must: float | None = None
    timing: Timing | None = None

    @property
    def is_missed(self) -> bool:
        """Whether it is above its bound."""
        return self.must is not None and self.value > self.must

    def __str__(self) -> str:
        parts = [f"{self.name:<58} {self.value:>9.2f} {self.unit:<6}"]
        if self.timing is not None:
            replay = self.timing
            parts.append(
                f"replay {replay.best_us:>6.2f}, median {replay.median_us:>6.2f},"
                f" machine x{replay.slowness:.2f} (median x{replay.median_slowness:.2f})"
            )
        if self.must is not None:
            parts.append(f"must <= {self.must:g}{'  MISSED' if self.is_missed else ''}")
        return "  ".join(parts)


def policy(size: int = 1_000_000) -> GatePolicy:
    """Queues of almost any size, so that what waits is set by the benchmark."""
    queue = QueuePolicy(max_size=size, timeout_s=100_000.0, drop=DropPolicy.TAIL)
    return GatePolicy(
        tiers=tuple(replace(tier, queue=queue) for tier in default_tiers()),
        pools=(PoolPolicy(name="chat", limit=LimitPolicy(initial_limit=64, max_limit=64)),),
        backends=tuple(
            BackendPolicy(name=f"b{index}", pool="chat", max_seqs=64, kv_capacity_tokens=60_000)
            for index in range(BACKENDS)
        ),
    )


Script = list[tuple[Event, float]]


def new_gate(size: int) -> Gate:
    """Empty, and alike every time."""
    return Gate(policy(size), now=0.0, dice=random.Random(1).random)  # noqa: S311  # jitter


class Bench:
    """A gate under load, a clock that the benchmark moves, and everything that the gate was told."""

    def __init__(self, waiting: int = 0, *, size: int = 1_000_000) -> None:
        self.size = size
        self.gate = new_gate(size)
        self.now = 0.0
        self.count = 0
        self.script: Script = []
        self.in_flight: dict[str, list[str]] = {f"b{index}": [] for index in range(BACKENDS)}
        if waiting:
            self._load(waiting)

    def _load(self, waiting: int) -> None:
        """Fill every backend, then let so many tickets wait."""
        for _ in range(400):
            self._warm()
        for _ in range(waiting - self.waiting):
            self.tell(self.arrival())

    def _warm(self) -> None:
        """One arrival and one engine step: first tokens make room for more."""
        self.tell(self.arrival())
        self.now += 0.03
        for backend, tickets in self.in_flight.items():
            self.tell(step(backend, tickets))

    @property
    def waiting(self) -> int:
        """How many tickets wait."""
        return sum(queue.waiting for queue in self.gate.view(self.now).queues)

    def arrival(self, tier: int | None = None) -> Arrived:
        """The next request."""
        self.count += 1
        return Arrived(
            ticket=f"t{self.count}",
            pool="chat",
            tier=self.count % 3 if tier is None else tier,
            tenant=f"tenant-{self.count % TENANTS}",
            prompt_tokens=400,
            max_output_tokens=120,
        )

    def tell(self, event: Event) -> list[Command]:
        """Feed one event, keep in mind what is in flight then."""
        self.script.append((event, self.now))
        commands = self.gate.handle(event, self.now)
        for command in commands:
            if isinstance(command, Dispatch):
                self.in_flight[command.backend].append(command.ticket)
        return commands


def step(backend: str, tickets: Sequence[str]) -> Progress:
    """One token for each ticket of a backend."""
    return Progress(backend, tuple((ticket, 1) for ticket in tickets))


class Cell:
    """Something small to make and to read."""

    __slots__ = ("key", "value")

    def __init__(self, key: int, value: float) -> None:
        self.key = key
        self.value = value


def reference() -> float:
    """CPU microseconds per loop of a fixed workload: small objects, a dictionary, attributes, floats, a call."""
    table: dict[int, Cell] = {}
    total = 0.0
    start = time.process_time()
    for index in range(REFERENCE_LOOPS):
        key = index % 997
        known = table.get(key)
        if known is None or known.value < total:
            table[key] = known = Cell(key, total + 0.5)
        total = max(total, known.value) + 0.25 * known.key
    return (time.process_time() - start) / REFERENCE_LOOPS * MICRO


def timed(
    bench: Bench, play: Callable[[], None], *, events: int | None = None, replays: int = REPLAYS
) -> Timing:
    """Time `play`, which tells `bench` what happens: per event, or by a number of `events` of its own."""
    loaded = len(bench.script)
    play()
    before, told = bench.script[:loaded], bench.script[loaded:]
    slices = [told[start : start + SLICE] for start in range(0, len(told), SLICE)]
    least = [math.inf] * len(slices)
    totals, references = [], []
    for _ in range(replays):
        references.append(reference() / REFERENCE_US)
        spent = replayed(bench.size, before, slices)
        totals.append(sum(spent))
        least = list(map(min, least, spent))
    scale = MICRO / (events or len(told))
    return Timing(
        sum(least) * scale, min(totals) * scale, median(totals) * scale, min(references), median(references)
    )


def replayed(size: int, before: Script, slices: list[Script]) -> list[float]:
    """CPU seconds of each slice on a new gate."""
    gate = new_gate(size)
    for event, now in before:
        gate.handle(event, now)
    gc.collect()
    gc.disable()
    try:
        return [seconds(gate, part) for part in slices]
    finally:
        gc.enable()


def seconds(gate: Gate, script: Script) -> float:
    """CPU time in which a gate takes all events of a script."""
    handle = gate.handle
    start = time.process_time()
    for event, now in script:
        handle(event, now)
    return time.process_time() - start


def mixed_events(bench: Bench, *, replays: int = REPLAYS) -> Timing:
    """A steady mix: arrivals that wait, answers that end and hand their seats on, engine steps, ticks."""

    def play() -> None:
        for _ in range(100):
            for backend, tickets in bench.in_flight.items():
                bench.now += 0.002
                done = tickets.pop(0)
                bench.tell(bench.arrival())
                bench.tell(Finished(done, 400, 120))
                bench.tell(step(backend, tickets[-2:]))
            bench.tell(Ticked())

    return timed(bench, play, replays=replays)


def ticket_in_progress() -> float:
    """Microseconds per ticket in a Progress, from two sizes of it."""
    few, many = 2, min(map(len, Bench(WAITING).in_flight.values()))
    return (steps_of(many).least_us - steps_of(few).least_us) / (many - few)


def steps_of(size: int) -> Timing:
    """Engine steps with so many tickets each."""
    bench = Bench(WAITING)
    events = [step(backend, tickets[:size]) for backend, tickets in bench.in_flight.items()]

    def play() -> None:
        for _ in range(200):
            bench.now += 0.001
            for event in events:
                bench.tell(event)

    return timed(bench, play)


def refused_arrival() -> Timing:
    """An arrival that a full queue sheds."""
    bench = Bench(WAITING, size=WAITING // 3 + 1)
    told = refused = 0

    def play() -> None:
        nonlocal told, refused
        for _ in range(2_000):
            bench.now += 0.0001
            told += 1
            refused += any(isinstance(command, Refuse) for command in bench.tell(bench.arrival()))

    timing = timed(bench, play)
    if refused < told * 0.95:
        raise RuntimeError(f"only {refused} of {told} arrivals were refused")
    return timing


def whole_life() -> Timing:
    """Arrival, dispatch, first token and finish of one ticket on a calm gate."""
    bench = Bench()

    def play() -> None:
        for _ in range(500):
            bench.now += 0.01
            event = bench.arrival()
            [dispatch, *_] = bench.tell(event)
            bench.tell(Progress(dispatch.backend, ((event.ticket, 1),)))  # type: ignore[union-attr]
            bench.tell(Finished(event.ticket, 400, 1))

    return timed(bench, play, events=500)


def bytes_per_waiting_ticket() -> float:
    """Memory that 10,000 more waiting tickets take, each with strings of its own as from the wire."""
    bench = Bench(10)
    arrivals = 10_000
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(arrivals):
        bench.gate.handle(bench.arrival(tier=1), bench.now)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / arrivals


def with_waiting(waiting: int) -> Timing:
    """The mix with so many waiting."""
    return mixed_events(Bench(waiting), replays=4 if waiting > WAITING else REPLAYS)


def with_idle_tenants(idle: int) -> Timing:
    """The mix after so many tenants came and went."""
    bench = Bench(100)
    for index in range(idle):
        name = f"idle-{index}"
        bench.tell(
            Arrived(ticket=name, pool="chat", tier=1, tenant=name, prompt_tokens=1, max_output_tokens=0)
        )
        bench.tell(Abandoned(name))
    return mixed_events(bench, replays=4 if idle else REPLAYS)


def bounds() -> Timing:
    """Fresh bounds for all backends."""
    bench = Bench(WAITING)
    event = BoundsReceived(
        share=1.0, backends=tuple(BackendBounds(backend=f"b{index}") for index in range(BACKENDS))
    )

    def play() -> None:
        for _ in range(500):
            bench.tell(event)

    return timed(bench, play)


def cost(name: str, timing: Timing, must: float | None = None) -> Figure:
    """What something costs."""
    return Figure(name, timing.least_us, "us", must, timing)


def figures() -> Iterator[Figure]:
    """Everything that is measured."""
    mix = "event (3 tiers, 200 tenants, 4 backends, 1,000 waiting)"
    yield cost(mix, mixed_events(Bench(WAITING)), 12.0)
    yield Figure("ticket in a Progress", ticket_in_progress(), "us", 0.5)
    yield cost("refused arrival", refused_arrival(), 6.0)
    yield cost("arrival + dispatch + first token + finish", whole_life(), 30.0)
    yield Figure("memory per waiting ticket", bytes_per_waiting_ticket(), "bytes", 2048.0)
    few, many, most = with_waiting(10), with_waiting(1_000), with_waiting(100_000)
    yield cost("event, 10 waiting", few)
    yield cost("event, 1,000 waiting", many)
    yield cost("event, 100,000 waiting", most)
    yield Figure("100,000 waiting / 10 waiting (logarithms: 5)", most.least_us / few.least_us, "x", 3.0)
    none, idle = with_idle_tenants(0), with_idle_tenants(20_000)
    yield cost("event, no idle tenants", none)
    yield cost("event, 20,000 idle tenants", idle)
    yield Figure("20,000 idle tenants / none", idle.least_us / none.least_us, "x", 1.25)
    yield cost("bounds for all backends", bounds())


def interpreter() -> str:
    """Which Python: one that was built without profile-guided optimisation takes half as much time again."""
    return f"Python {platform.python_version()}, {platform.python_compiler()}"


def main() -> int:
    """Print every figure; 1 where a must is missed."""
    print(interpreter(), flush=True)  # noqa: T201  # this is its purpose
    missed = 0
    for figure in figures():
        print(figure, flush=True)  # noqa: T201  # this is its purpose
        missed += figure.is_missed
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
