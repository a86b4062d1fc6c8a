"""The load of the benchmark: prebuilt requests on asyncio.Protocol; reads a plan from stdin, prints what it saw.

    python -m benchmarks.load < plan.json

Bounded in time and number by its plan, and to loopback. First the streams are opened, then requests are sent for
`warm_s`, then counters, latencies and the CPU time of the watched process are taken over `seconds`.
"""

import asyncio
import os
import sys
from collections import Counter, deque
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import cast

import msgspec
import uvloop

TICKS = os.sysconf("SC_CLK_TCK")
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
MOST_CONNECTIONS = 512
START_TIMEOUT_S = 30.0


class Streams(msgspec.Struct, frozen=True):
    """So many streams, open all the time."""

    count: int
    request: str


class Plan(msgspec.Struct, frozen=True):
    """What to do to the process that listens on `port`.

    With `request`: sent `per_s` times a second, or (None) again and again on each of `connections`.
    """

    port: int
    watch: int
    warm_s: float
    seconds: float
    streams: tuple[Streams, ...] = ()
    request: str = ""
    connections: int = 32
    per_s: int | None = None


class Seen(msgspec.Struct):
    """What came of it, within the window; `rss_kb` after each group of streams was open."""

    window_s: float = 0.0
    cpu_s: float = 0.0
    statuses: dict[str, int] = {}
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    events: int = 0
    streams: int = 0
    rss_kb: list[int] = []
    unsent: int = 0

    @property
    def answers(self) -> int:
        """All answers, whatever they say."""
        return sum(self.statuses.values())


def cpu_s(pid: int) -> float:
    """User and system time of a process with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_kb(pid: int) -> int:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_KB


class Connection(asyncio.Protocol):
    """Sends one request at a time."""

    def __init__(self, load: "Load", request: bytes) -> None:
        self.load = load
        self.request = request
        self.head = b""
        self.missing = -1  # bytes of the body still to come; -1: the head is not there yet, -2: chunks
        self.sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready."""
        self.transport = cast("asyncio.Transport", transport)
        self.load.ready(self)

    def send(self) -> None:
        """Once more."""
        self.head, self.missing = b"", -1
        self.sent_at = perf_counter()  # the loop's clock has milliseconds only
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        """Find the end of the answer."""
        if self.missing == -1:
            self.head += data
            end = self.head.find(b"\r\n\r\n")
            if end < 0:
                return
            at = self.head.lower().find(b"content-length: ", 0, end)
            data = self.head[end + 4 :]
            self.missing = int(self.head[at + 16 : self.head.find(b"\r", at)]) if at >= 0 else -2
        if self.missing == -2:
            self.load.events += data.count(b"data: ")
            if not data.endswith(b"0\r\n\r\n"):
                return
        else:
            self.missing -= len(data)
            if self.missing > 0:
                return
        self.load.answered(self, self.head[9:12].decode())

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # whatever ended it
        """A server may close after an answer; another connection takes over."""
        self.load.lost(self)


class Stream(Connection):
    """Sends its request when it is connected, and counts events for ever."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask at once."""
        self.transport = cast("asyncio.Transport", transport)
        self.send()

    def data_received(self, data: bytes) -> None:
        """Count."""
        if self.missing == -1:
            self.missing = -2
            self.load.began(data)
        self.load.events += data.count(b"data: ")

    def connection_lost(self, exc: Exception | None) -> None:
        """Only at the end."""


class Load:
    """One run of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.loop = asyncio.get_running_loop()
        self.idle: deque[Connection] = deque()
        self.open = 0
        self.events = self.streams = self.unsent = 0
        self.refused = b""
        self.statuses: Counter[str] = Counter()
        self.latencies: list[float] = []
        self.is_over = False
        self.connections: list[Connection] = []

    # -- told by connections ---------------------------------------------------------------------------------------

    def ready(self, connection: Connection) -> None:
        """A connection is there."""
        if self.plan.per_s is None:
            connection.send()
        else:
            self.idle.append(connection)

    def answered(self, connection: Connection, status: str) -> None:
        """An answer is whole."""
        self.statuses[status] += 1
        self.latencies.append(perf_counter() - connection.sent_at)
        if not self.is_over and not connection.transport.is_closing():
            self.ready(connection)

    def began(self, data: bytes) -> None:
        """A stream has begun, or was refused."""
        if data[9:12] == b"200":
            self.streams += 1
        else:
            self.refused = data

    def lost(self, connection: Connection) -> None:
        """Replace it."""
        self.open -= 1
        if connection in self.idle:
            self.idle.remove(connection)
        if not self.is_over:
            self._spawn(self._connect())

    # -- running ---------------------------------------------------------------------------------------------------

    def _spawn(self, coroutine: object) -> None:
        task = self.loop.create_task(coroutine)  # type: ignore[arg-type]
        self._tasks = {*getattr(self, "_tasks", set()), task}

    async def _connect(self, kind: type[Connection] = Connection, request: str = "") -> None:
        self.open += kind is Connection
        payload = (request or self.plan.request).encode()
        _, connection = await self.loop.create_connection(
            lambda: kind(self, payload), "127.0.0.1", self.plan.port
        )
        self.connections.append(connection)

    async def run(self) -> Seen:
        """Open, warm, measure, close."""
        plan, seen = self.plan, Seen()
        for group in plan.streams:
            await self._open_streams(group)
            seen.rss_kb.append(rss_kb(plan.watch))
        pacing: asyncio.Task[None] | None = None
        if plan.request:
            await asyncio.gather(*[self._connect() for _ in range(plan.connections)])
            if plan.per_s is not None:
                pacing = self.loop.create_task(self._pace(plan.per_s))
        await asyncio.sleep(plan.warm_s)
        await self._measure(seen)
        self.is_over = True
        if pacing is not None:
            pacing.cancel()
        for connection in self.connections:
            connection.transport.abort()
        await asyncio.sleep(0.05)
        return seen

    async def _open_streams(self, group: Streams) -> None:
        wanted = self.streams + group.count
        for first in range(0, group.count, 50):
            await asyncio.gather(
                *[self._connect(Stream, group.request) for _ in range(min(50, group.count - first))]
            )
        async with asyncio.timeout(START_TIMEOUT_S):
            while self.streams < wanted:
                if self.refused:
                    raise RuntimeError(f"a stream was refused: {self.refused!r}")
                await asyncio.sleep(0.01)

    async def _measure(self, seen: Seen) -> None:
        self.statuses.clear()
        self.latencies.clear()
        events, cpu, began = self.events, cpu_s(self.plan.watch), self.loop.time()
        self.unsent = 0
        await asyncio.sleep(self.plan.seconds)
        seen.window_s = self.loop.time() - began
        seen.cpu_s = cpu_s(self.plan.watch) - cpu
        seen.statuses, seen.events, seen.streams = dict(self.statuses), self.events - events, self.streams
        seen.unsent = self.unsent
        if self.latencies:
            ordered = sorted(self.latencies)
            seen.p50_ms, seen.p99_ms = median(ordered) * 1000, ordered[int(0.99 * len(ordered))] * 1000

    async def _pace(self, per_s: int) -> None:
        """Send what is due, each millisecond; what finds no connection free opens one, up to a bound."""
        began, sent = self.loop.time(), 0
        while True:
            await asyncio.sleep(0.001)
            due = int((self.loop.time() - began) * per_s)
            for _ in range(due - sent):
                self._send_one()
            sent = due

    def _send_one(self) -> None:
        if self.idle:
            self.idle.popleft().send()
        else:
            self.unsent += 1
            if self.open < MOST_CONNECTIONS:
                self._spawn(self._connect())


async def main() -> None:
    """Plan in, what was seen out."""
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    async with asyncio.timeout(2 * START_TIMEOUT_S + plan.warm_s + plan.seconds):
        seen = await Load(plan).run()
    sys.stdout.buffer.write(msgspec.json.encode(seen) + b"\n")


if __name__ == "__main__":
    uvloop.run(main())
