"""Sixteen closed-loop callers on four slots: through the gateway, and, as a control, straight at the engine."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import httpx2
import pytest

from tests.e2e.conftest import SLOTS
from tests.fakes import callers
from tests.fakes.callers import Load, Tally, p95
from tests.fakes.llama_cpp import LlamaServer
from tests.fakes.system import System

pytestmark = [pytest.mark.e2e, pytest.mark.loop]

OVERLOAD_S, CONTROL_S = 30.0, 25.0
WATCH_S = 1.6  # llama.cpp must not be asked for its metrics more often than every 1.5 s


class Watch:
    """Looks at the engine and at the gateway while callers run."""

    def __init__(self, engine: LlamaServer, system: System) -> None:
        self._engine, self._system = engine, system
        self.deferred: list[float] = []
        self.processing: list[float] = []
        self.in_flight: list[float] = []
        self.limits: list[float] = []

    async def until_done(self, work: Awaitable[dict[str, Tally]]) -> dict[str, Tally]:
        running = asyncio.ensure_future(work)
        async with httpx2.AsyncClient(timeout=5) as client:
            while not running.done():
                await self._look(client)
                await asyncio.sleep(WATCH_S)
        return await running

    async def _look(self, client: httpx2.AsyncClient) -> None:
        page = (await client.get(f"{self._engine.url}/metrics")).text
        self.deferred.append(number(page, "llamacpp:requests_deferred"))
        self.processing.append(number(page, "llamacpp:requests_processing"))
        frame = await asyncio.to_thread(self._system.frame)
        assert frame is not None
        self.in_flight.append(frame.backends[0].in_flight)
        self.limits.append(frame.backends[0].limit)


def number(page: str, name: str) -> float:
    return next(float(line.split()[1]) for line in page.splitlines() if line.startswith(f"{name} "))


def loads(system: System) -> list[Load]:
    return [Load(tier, n, system.key(tier)) for tier, n in (("P0", 2), ("P1", 6), ("P2", 8))]


async def watched(watch: Watch, work: Callable[[], Awaitable[dict[str, Tally]]]) -> dict[str, Tally]:
    return await watch.until_done(work())


def test_the_engine_is_never_overrun_p0_is_served_and_p2_is_told_when_to_come_back(
    system: System, engine: LlamaServer, record_property: Callable[[str, object], None]
) -> None:
    guarded, bare = Watch(engine, system), Watch(engine, system)
    through = asyncio.run(watched(guarded, lambda: callers.run(system.base_url, loads(system), OVERLOAD_S)))
    time.sleep(2 * WATCH_S)
    straight = asyncio.run(watched(bare, lambda: callers.run(f"{engine.url}/v1", loads(system), CONTROL_S)))
    summary = {
        tier: f"answered {len(t.latencies_s)}, refused {len(t.refusals)}, retried and answered "
        f"{t.retried_and_answered}, p95 TTFT {p95(t.ttfts_s):.2f} s, p95 whole {p95(t.latencies_s):.2f} s; "
        f"straight {p95(straight[tier].ttfts_s):.2f} and {p95(straight[tier].latencies_s):.2f} s"
        for tier, t in through.items()
    }
    record_property("overload", summary)
    print(summary)  # noqa: T201  # the figures of this run, shown with -s

    assert not [e for t in through.values() for e in t.errors]
    assert max(guarded.in_flight) <= max(guarded.limits) <= SLOTS
    assert max(guarded.processing) <= SLOTS
    assert max(guarded.deferred) == 0
    assert through["P0"].latencies_s
    assert not through["P0"].refusals
    assert_told_when_to_come_back(through["P2"])
    assert system.metric("sluicegate_ledger_imbalance") == 0

    assert max(bare.deferred) > 0, (
        "the control run shows no overload: then the run above shows nothing either"
    )
    assert p95(straight["P0"].ttfts_s) >= 2 * p95(through["P0"].ttfts_s)


def assert_told_when_to_come_back(tally: Tally) -> None:
    assert tally.refusals
    assert tally.retried_and_answered > 0
    for refusal in tally.refusals:
        headers, error = refusal.response.headers, refusal.response.json()["error"]
        assert headers["retry-after"].isdecimal()
        assert 1 <= int(headers["retry-after"]) <= 5
        assert abs(int(headers["x-ratelimit-reset"]) - time.time()) < 120
        assert error["code"] == "CAPACITY_OVERLOAD"
        assert error["retry_after_seconds"] == int(headers["retry-after"])
