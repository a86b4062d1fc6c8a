"""What a request costs in the gateway: `python -m benchmarks.gateway [--quick] [--json PATH]`, also `make bench`.

The full path (authentication, quotas, gate, metrics, access log, upstream) of a real gateway process on one core of its
own, against nginx as a plain reverse proxy on the same core, in turn, in every round. Figures are medians of the rounds
(5, or 1 short one with `--quick`); exit code 1 where one is below its must.

Requests/s are what one core can do: 1 / (CPU time per request), because load and backend share the other core and are
the slower side for nginx. CPU times and ratios within one run stand also on a machine that has other work; the latency
is the one figure that does not.
"""

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.load import Plan, Seen, Streams
from benchmarks.rig import Missing, Rig, running

ROUNDS = 5
STREAMS = 200
IDLE_STREAMS = 1000
MICRO = 1e6


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure, its must and its aim. `at_least`: the more the better."""

    name: str
    unit: str
    must: float | None = None
    aim: float | None = None
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """A measure with its value: the median of all rounds."""

    measure: Measure
    rounds: tuple[float, ...]

    @property
    def value(self) -> float:
        """The median."""
        return median(self.rounds)

    @property
    def is_missed(self) -> bool:
        """Whether it is below its must."""
        must = self.measure.must
        return must is not None and (self.value < must if self.measure.at_least else self.value > must)

    def __str__(self) -> str:
        sign = ">=" if self.measure.at_least else "<="
        bounds = [
            f"{sign} {bound:g}" if bound is not None else ""
            for bound in (self.measure.must, self.measure.aim)
        ]
        mark = "  MISSED" if self.is_missed else ""
        return f"{self.measure.name:<62} {bounds[0]:>8} {bounds[1]:>8} {self.value:>9.4g} {self.measure.unit}{mark}"


JSON = Measure("JSON requests/s relative to nginx", "", 0.18, 0.27, at_least=True)
REFUSALS = Measure("refusals/s relative to nginx limit_conn", "", 0.10, 0.16, at_least=True)
EVENTS = Measure(f"CPU per SSE event, 20 ms spacing, {STREAMS} streams, rel. to nginx", "x", 2.5, 1.9)
LATENCY = Measure("added latency p50 at 500 requests/s relative to nginx", "x", 3.0, 1.3)
MEMORY = Measure("memory per idle stream", "KB", 64.0, 30.0)
BUSY = Measure("CPU: 2,000 refusals/s + 30 streams at 50 tokens/s", "%", 20.0, 13.0)
AWAITLESS = Measure("requests decided without an await", "%", 95.0, at_least=True)


class Bench:
    """The measurements; each is one round of one measure."""

    def __init__(self, rig: Rig, *, is_quick: bool) -> None:
        self.rig = rig
        self.seconds = 1.0 if is_quick else 3.0
        self.details: dict[str, list[float]] = {}
        self.decisions = {"awaited": 0.0, "all": 0.0}

    def count(self, before: dict[str, float], after: dict[str, float]) -> None:
        """Quota decisions of one run: how many waited for Valkey."""
        made = {how: value - before.get(how, 0.0) for how, value in after.items()}
        self.decisions["awaited"] += made.get("valkey", 0.0)
        self.decisions["all"] += sum(made.values())

    def note(self, name: str, unit: str, value: float) -> float:
        """Remember a figure that is shown only."""
        self.details.setdefault(f"{name} [{unit}]", []).append(value)
        return value

    def pair(
        self, run: Callable[[int, int, str], Seen], per: Callable[[Seen], float], name: str
    ) -> tuple[float, float]:
        """CPU microseconds per unit of nginx and of the gateway, one right after the other."""
        rig, costs = self.rig, []
        for who, port, pid in (
            ("nginx", rig.nginx_port, rig.nginx_pid),
            ("gateway", rig.gateway_port, rig.gateway_pid),
        ):
            seen = run(port, pid, who)
            costs.append(self.note(f"{name}, {who}: CPU", "us", MICRO * seen.cpu_s / max(1.0, per(seen))))
        return costs[0], costs[1]

    def _prefix(self, who: str, pool: str) -> str:
        return f"/{pool}" if who == "nginx" else ""

    def json(self, path: str = "/v1/chat/completions") -> float:
        """Whole answers, 32 connections that send again at once."""

        def run(port: int, pid: int, who: str) -> Seen:
            request = self.rig.request("fast", path=path, of=self._prefix(who, "fast"))
            before = self.rig.decisions()
            seen = self.rig.run(Plan(port, pid, 0.5, self.seconds, request=request))
            if who == "gateway":
                self.count(before, self.rig.decisions())
            _expect(seen, "200", who)
            self.note(f"JSON {path}, {who}: seen", "requests/s", seen.answers / seen.window_s)
            return seen

        nginx, gateway = self.pair(run, lambda seen: seen.answers, f"JSON {path}")
        return nginx / gateway

    def refusals(self) -> float:
        """One stream holds the only seat; everybody else is refused."""

        def run(port: int, pid: int, who: str) -> Seen:
            of = self._prefix(who, "full")
            held = (Streams(1, self.rig.request("full", stream=True, of=of)),)
            request = self.rig.request("full", of=of)
            seen = self.rig.run(Plan(port, pid, 0.5, self.seconds, held, request))
            _expect(seen, "429", who)
            return seen

        nginx, gateway = self.pair(run, lambda seen: seen.answers, "refusal")
        return nginx / gateway

    def events(self) -> float:
        """Streams at 50 events a second each."""

        def run(port: int, pid: int, who: str) -> Seen:
            streams = Streams(STREAMS, self.rig.request("paced", stream=True, of=self._prefix(who, "paced")))
            seen = self.rig.run(Plan(port, pid, 0.5, self.seconds, (streams,)))
            if seen.streams != STREAMS or seen.events < 0.5 * STREAMS * 50 * seen.window_s:
                raise RuntimeError(f"{who}: {seen.streams} streams, {seen.events} events")
            return seen

        nginx, gateway = self.pair(run, lambda seen: seen.events, "SSE event")
        return gateway / nginx

    def latency(self) -> float:
        """500 requests a second: to the backend itself, through nginx, through the gateway."""
        rig = self.rig
        p50: dict[str, float] = {}
        for who, port in (
            ("backend", rig.upstream["fast"]),
            ("nginx", rig.nginx_port),
            ("gateway", rig.gateway_port),
        ):
            request = rig.request("fast", of=self._prefix(who, "fast"))
            seen = rig.run(Plan(port, rig.gateway_pid, 0.5, self.seconds, request=request, per_s=500))
            p50[who] = self.note(f"latency at 500/s, {who}: p50", "ms", seen.p50_ms)
        return (p50["gateway"] - p50["backend"]) / max(0.001, p50["nginx"] - p50["backend"])

    def memory(self) -> float:
        """Resident memory that open, silent streams add."""
        request = self.rig.request("idle", stream=True)
        groups = (Streams(100, request), Streams(IDLE_STREAMS, request))
        seen = self.rig.run(Plan(self.rig.gateway_port, self.rig.gateway_pid, 0.1, 0.2, groups))
        return (seen.rss_kb[1] - seen.rss_kb[0]) / IDLE_STREAMS

    def busy(self) -> float:
        """The share of a core that the gateway takes in a storm of refusals, while streams run."""
        rig = self.rig
        streams = (
            Streams(1, rig.request("full", stream=True)),
            Streams(30, rig.request("paced", stream=True)),
        )
        plan = Plan(
            rig.gateway_port, rig.gateway_pid, 0.5, self.seconds, streams, rig.request("full"), per_s=2000
        )
        seen = rig.run(plan)
        _expect(seen, "429", "gateway")
        self.note("storm: refusals", "1/s", seen.answers / seen.window_s)
        self.note("storm: events", "1/s", seen.events / seen.window_s)
        return 100 * seen.cpu_s / seen.window_s


def _expect(seen: Seen, status: str, who: str) -> None:
    """Nearly all answers must be what the measure is about, else it measures something else."""
    if seen.statuses.get(status, 0) < 0.99 * max(1, seen.answers):
        raise RuntimeError(f"{who}: {seen.statuses}, {status} was expected")


def figures(bench: Bench, rounds: int) -> Iterator[Figure]:
    """Everything that is measured. Rounds are the outer loop, so that a slow minute hits every measure."""
    measures: dict[Measure, Callable[[], float]] = {
        JSON: bench.json,
        REFUSALS: bench.refusals,
        EVENTS: bench.events,
        LATENCY: bench.latency,
        BUSY: bench.busy,
    }
    values: dict[Measure, list[float]] = {measure: [] for measure in measures}
    memory = bench.memory()  # once, and first: later the allocator has memory to give away
    for _ in range(rounds):
        for measure, run in measures.items():
            values[measure].append(run())
        bench.json("/v1/embeddings")
    for measure, found in values.items():
        yield Figure(measure, tuple(found))
    yield Figure(MEMORY, (memory,))
    made = bench.decisions
    yield Figure(AWAITLESS, (100 * (1 - made["awaited"] / max(1.0, made["all"])),))


def conditions() -> dict[str, str]:
    """What the figures depend on besides the code."""
    nginx = subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=True).stderr  # noqa: S607
    return {
        "python": f"{platform.python_version()}, {platform.python_compiler()}",
        "nginx": nginx.strip().rpartition("/")[2],
        "cores": str(len(os.sched_getaffinity(0))),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def table(found: list[Figure], details: dict[str, list[float]]) -> Iterator[str]:
    """What is printed."""
    yield f"{'':<62} {'must':>8} {'aim':>8} {'value':>9}"
    yield from map(str, found)
    yield ""
    for name, values in details.items():
        yield f"  {name:<60} {median(values):>10.2f}"


def document(found: list[Figure], details: dict[str, list[float]], around: dict[str, str]) -> bytes:
    """The same for machines."""
    measures = [
        {
            "name": figure.measure.name,
            "unit": figure.measure.unit,
            "must": figure.measure.must,
            "aim": figure.measure.aim,
            "at_least": figure.measure.at_least,
            "value": figure.value,
            "rounds": figure.rounds,
            "missed": figure.is_missed,
        }
        for figure in found
    ]
    return msgspec.json.format(
        msgspec.json.encode({"conditions": around, "measures": measures, "details": details})
    )


def main(arguments: list[str]) -> int:
    """Measure, print, write; 1 where a must is missed, 2 where something is not installed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args(arguments)
    try:
        with running() as rig:
            bench = Bench(rig, is_quick=options.quick)
            found = list(figures(bench, 1 if options.quick else ROUNDS))
    except Missing as missing:
        sys.stderr.write(f"{missing}\n")
        return 2
    around = conditions()
    sys.stdout.write(", ".join(f"{name} {value}" for name, value in around.items()) + "\n")
    for line in table(found, bench.details):
        sys.stdout.write(f"{line}\n")
    if options.json is not None:
        options.json.write_bytes(document(found, bench.details, around))
    return 1 if any(figure.is_missed for figure in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
