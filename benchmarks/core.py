"""What a decision costs: `python -m benchmarks.core` prints microseconds and bytes, and fails below a must.

Every figure is the best of several rounds, in CPU time of this process: what the code costs, not what the machine was
doing besides.
The gate under test has 3 tiers, 200 tenants, 4 backends behind token valves, and 1,000 tickets that wait.
"""

import gc
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from gateway.core.commands import Dispatch, Refuse
from gateway.core.events import Abandoned, Arrived, BackendBounds, BoundsReceived, Finished, Progress, Ticked
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
ROUNDS = 7
MICRO = 1e6


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number and its bound. `must` None: shown only."""

    name: str
    value: float
    unit: str
    must: float | None = None

    @property
    def is_missed(self) -> bool:
        """Whether it is above its bound."""
        return self.must is not None and self.value > self.must

    def __str__(self) -> str:
        bound = "" if self.must is None else f"  must <= {self.must:g}"
        return (
            f"{self.name:<68} {self.value:>10.2f} {self.unit:<6}{bound}{'  MISSED' if self.is_missed else ''}"
        )


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


class Bench:
    """A gate under load, and a clock that the benchmark moves."""

    def __init__(self, waiting: int, *, tenants: int = TENANTS, size: int = 1_000_000) -> None:
        self.gate = Gate(policy(size), now=0.0, dice=random.Random(1).random)  # noqa: S311  # jitter
        self.now = 0.0
        self.tenants = tenants
        self.count = 0
        self.in_flight: dict[str, list[str]] = {f"b{index}": [] for index in range(BACKENDS)}
        self._load(waiting)

    def _load(self, waiting: int) -> None:
        """Fill every backend, then let so many tickets wait."""
        for _ in range(400):
            self._warm()
        for _ in range(waiting - self.waiting):
            self.obey(self.gate.handle(self.arrival(), self.now))

    def _warm(self) -> None:
        """One arrival and one engine step: first tokens make room for more."""
        self.obey(self.gate.handle(self.arrival(), self.now))
        self.now += 0.03
        for backend, tickets in self.in_flight.items():
            self.obey(self.gate.handle(step(backend, tickets), self.now))

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
            tenant=f"tenant-{self.count % self.tenants}",
            prompt_tokens=400,
            max_output_tokens=120,
        )

    def obey(self, commands: Sequence[object]) -> None:
        """Keep in mind what is in flight."""
        for command in commands:
            if isinstance(command, Dispatch):
                self.in_flight[command.backend].append(command.ticket)


def step(backend: str, tickets: Sequence[str]) -> Progress:
    """One token for each ticket of a backend."""
    return Progress(backend, tuple((ticket, 1) for ticket in tickets))


def timed(calls: Callable[[], int]) -> float:
    """Microseconds per event of the best round; `calls` does one round and returns its number of events."""
    best = float("inf")
    gc.collect()
    gc.disable()
    try:
        for _ in range(ROUNDS):
            start = time.process_time()
            count = calls()
            best = min(best, (time.process_time() - start) / count)
    finally:
        gc.enable()
    return best * MICRO


def mixed_events(bench: Bench) -> tuple[float, float]:
    """Microseconds per event of a steady mix, and per ticket in a Progress (from two sizes of it)."""
    handle = bench.gate.handle

    def lifecycle() -> int:
        """Arrivals that wait, answers that end and hand their seats on, ticks."""
        count = 0
        for _ in range(100):
            for backend, tickets in bench.in_flight.items():
                bench.now += 0.002
                done = tickets.pop(0)
                commands = handle(bench.arrival(), bench.now)
                more = handle(Finished(done, 400, 120), bench.now)
                bench.obey(commands)
                bench.obey(more)
                bench.obey(handle(step(backend, tickets[-2:]), bench.now))
                count += 3
            bench.obey(handle(Ticked(), bench.now))
            count += 1
        return count

    per_event = timed(lifecycle)

    def progress(size: int) -> float:
        events = [step(backend, tickets[:size]) for backend, tickets in bench.in_flight.items()]

        def calls() -> int:
            for _ in range(50):
                bench.now += 0.001
                for event in events:
                    bench.obey(handle(event, bench.now))
            return 50 * len(events)

        return timed(calls)

    size = min(map(len, bench.in_flight.values()))
    few = 2
    return per_event, (progress(size) - progress(few)) / (size - few)


def refused_arrival() -> float:
    """Microseconds per arrival that a full queue sheds."""
    bench = Bench(WAITING, size=WAITING // 3 + 1)
    arrivals = [bench.arrival() for _ in range(500 * ROUNDS)]
    position = 0
    refused = 0

    def calls() -> int:
        nonlocal position, refused
        for event in arrivals[position : position + 500]:
            bench.now += 0.0001
            commands = bench.gate.handle(event, bench.now)
            refused += any(isinstance(command, Refuse) for command in commands)
        position += 500
        return 500

    value = timed(calls)
    if refused < position * 0.95:
        raise RuntimeError(f"only {refused} of {position} arrivals were refused")
    return value


def whole_life() -> float:
    """Microseconds for arrival, dispatch, first token and finish of one ticket on a calm gate."""
    gate = Gate(policy(), now=0.0, dice=random.Random(1).random)  # noqa: S311  # jitter
    now = 0.0
    events = []
    for index in range(500 * ROUNDS):
        arrived = Arrived(
            ticket=f"t{index}", pool="chat", tier=index % 3, tenant=f"tenant-{index % TENANTS}",
            prompt_tokens=400, max_output_tokens=120,
        )  # fmt: skip
        events.append(arrived)
    position = 0

    def calls() -> int:
        nonlocal now, position
        for event in events[position : position + 500]:
            now += 0.01
            [dispatch, *_] = gate.handle(event, now)
            gate.handle(Progress(dispatch.backend, ((event.ticket, 1),)), now)  # type: ignore[union-attr]
            gate.handle(Finished(event.ticket, 400, 1), now)
        position += 500
        return 500

    return timed(calls)


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


def with_waiting(waiting: int) -> float:
    """Microseconds per event with so many waiting."""
    return mixed_events(Bench(waiting))[0]


def with_idle_tenants(idle: int) -> float:
    """Microseconds per event after so many tenants came and went."""
    bench = Bench(100)
    for index in range(idle):
        name = f"idle-{index}"
        event = Arrived(ticket=name, pool="chat", tier=1, tenant=name, prompt_tokens=1, max_output_tokens=0)
        bench.gate.handle(event, bench.now)
        bench.gate.handle(Abandoned(name), bench.now)
    return mixed_events(bench)[0]


def bounds() -> float:
    """Microseconds to take fresh bounds for all backends."""
    bench = Bench(WAITING)
    event = BoundsReceived(
        share=1.0, backends=tuple(BackendBounds(backend=f"b{index}") for index in range(BACKENDS))
    )

    def calls() -> int:
        for _ in range(100):
            bench.obey(bench.gate.handle(event, bench.now))
        return 100

    return timed(calls)


def figures() -> Iterator[Figure]:
    """Everything that is measured."""
    per_event, per_ticket = mixed_events(Bench(WAITING))
    yield Figure("event (3 tiers, 200 tenants, 4 backends, 1,000 waiting)", per_event, "us", 12.0)
    yield Figure("ticket in a Progress", per_ticket, "us", 0.5)
    yield Figure("refused arrival", refused_arrival(), "us", 6.0)
    yield Figure("arrival + dispatch + first token + finish", whole_life(), "us", 30.0)
    yield Figure("memory per waiting ticket", bytes_per_waiting_ticket(), "bytes", 2048.0)
    few, many, most = with_waiting(10), with_waiting(1_000), with_waiting(100_000)
    yield Figure("event, 10 waiting", few, "us")
    yield Figure("event, 1,000 waiting", many, "us")
    yield Figure("event, 100,000 waiting", most, "us")
    yield Figure("100,000 waiting / 10 waiting (logarithms: 5)", most / few, "x", 3.0)
    no_idle, idle = with_idle_tenants(0), with_idle_tenants(20_000)
    yield Figure("event, no idle tenants", no_idle, "us")
    yield Figure("event, 20,000 idle tenants", idle, "us")
    yield Figure("20,000 idle tenants / none", idle / no_idle, "x", 1.25)
    yield Figure("bounds for all backends", bounds(), "us")


def main() -> int:
    """Print every figure; 1 where a must is missed."""
    missed = 0
    for figure in figures():
        print(figure, flush=True)  # noqa: T201  # this is its purpose
        missed += figure.is_missed
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
