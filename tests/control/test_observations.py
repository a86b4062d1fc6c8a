import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable

import pytest

from control.engines.base import Telemetry, Total
from control.observations import Observation, Rates, Scraper, difference
from gateway.contract.snapshot import BackendSpec
from gateway.core.policy import BackendPolicy

PAGE = b"vllm:num_requests_running 3\nvllm:num_requests_waiting 1\nvllm:kv_cache_usage_perc 0.5\n"


def spec(name: str, url: str, engine: str = "vllm", metrics_url: str | None = None) -> BackendSpec:
    return BackendSpec(
        policy=BackendPolicy(name=name, pool="m"), url=url, engine=engine, metrics_url=metrics_url
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (Telemetry(preemptions_total=2), Telemetry(preemptions_total=6), Rates(preemptions_per_s=2.0)),
        (Telemetry(ttft=Total(50, 100)), Telemetry(ttft=Total(54, 102)), Rates(ttft_mean_s=0.5)),
        (Telemetry(ttft=Total(50, 100)), Telemetry(ttft=Total(4, 2)), Rates(restarted=True)),
        (Telemetry(preemptions_total=5), Telemetry(preemptions_total=0), Rates(restarted=True)),
        (Telemetry(started_at=1.0), Telemetry(started_at=2.0), Rates(restarted=True)),
        (Telemetry(ttft=Total(5, 1)), Telemetry(ttft=Total(5, 1)), Rates()),
        (Telemetry(), Telemetry(preemptions_total=6), Rates()),
    ],
)
def test_rates_come_from_differences_and_a_counter_that_went_back_is_a_restart(
    before: Telemetry, after: Telemetry, expected: Rates
) -> None:
    """A28."""
    assert difference(before, after, 2.0) == expected


def test_no_time_between_two_scrapes_tells_nothing() -> None:
    assert difference(Telemetry(preemptions_total=1), Telemetry(preemptions_total=2), 0.0) == Rates()


def test_an_observation_grows_old_and_is_then_absent() -> None:
    seen = Observation(backend="b", scraped_at=10.0)
    assert (seen.age_s(12.0), seen.is_fresh(13.0), seen.is_fresh(13.1)) == (2.0, True, False)
    assert (Observation(backend="b").age_s(1.0), Observation(backend="b").is_fresh(1.0)) == (None, False)


class Engine:
    """A loopback HTTP server that answers each path with what a test says, or not at all."""

    def __init__(self, answer: Callable[[str], AsyncIterator[bytes]]) -> None:
        self._answer = answer
        self.asked: list[str] = []
        self.at_once = 0
        self.most_at_once = 0

    async def __aenter__(self) -> "Engine":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split(b" ")[1].decode()
        self.asked.append(path)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        sending = asyncio.create_task(self._send(path, writer))
        leaving = asyncio.create_task(reader.read())  # ends when the peer closes
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        for task in (sending, leaving):
            task.cancel()
        self.at_once -= 1
        writer.close()

    async def _send(self, path: str, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            async for part in self._answer(path):
                writer.write(part)
                await writer.drain()


def head(status: int = 200) -> bytes:
    return b"HTTP/1.1 %d X\r\nConnection: close\r\n\r\n" % status


async def says(page: bytes, status: int = 200) -> AsyncIterator[bytes]:
    yield head(status) + page


async def hangs() -> AsyncIterator[bytes]:
    yield head()
    await asyncio.sleep(30)


async def drips() -> AsyncIterator[bytes]:
    yield head()
    for byte in itertools.cycle(PAGE):
        yield bytes([byte])
        await asyncio.sleep(0.05)


async def floods() -> AsyncIterator[bytes]:
    yield head()
    line = b"vllm:num_requests_running 3\n" * 4000
    for _ in range(5000):
        yield line


class Clock:
    """Epoch seconds that move when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.loop
async def test_a_slow_dripping_or_endless_engine_delays_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A30."""
    monkeypatch.setattr("control.observations.TIMEOUT_S", 1.0)
    async with (
        Engine(lambda _: says(PAGE)) as good,
        Engine(lambda _: hangs()) as hung,
        Engine(lambda _: drips()) as dripping,
        Engine(lambda _: floods()) as endless,
    ):
        clock = Clock()
        scraper = Scraper(clock)
        engines = {"good": good, "hung": hung, "dripping": dripping, "endless": endless}
        specs = [spec(name, engine.url) for name, engine in engines.items()]
        try:
            for _ in range(6):
                seen = await scraper.observe(specs, 0.3)
                clock.now += 1.0
            assert len(good.asked) == 6
            assert hung.most_at_once == dripping.most_at_once == 1
            assert seen["good"].telemetry.running == 3
            assert seen["hung"].telemetry.is_empty
            assert seen["hung"].error is not None
            assert seen["dripping"].error is not None
        finally:
            await scraper.close()


@pytest.mark.loop
@pytest.mark.parametrize(
    "answer", [lambda _: says(b"", 500), lambda _: says(b"<html>it works</html>")], ids=["500", "html"]
)
async def test_a_failed_scrape_keeps_the_last_telemetry_which_grows_old(
    answer: Callable[[str], AsyncIterator[bytes]],
) -> None:
    """A29."""
    now: list[Callable[[str], AsyncIterator[bytes]]] = [lambda _: says(PAGE)]
    async with Engine(lambda path: now[0](path)) as engine:  # noqa: PLW0108  # looks at `now` anew
        clock = Clock()
        scraper = Scraper(clock)
        try:
            first = (await scraper.observe([spec("b", engine.url)], 2.0))["b"]
            now[0] = answer
            clock.now += 4.0
            second = (await scraper.observe([spec("b", engine.url)], 2.0))["b"]
        finally:
            await scraper.close()
    assert first.is_fresh(1000.0)
    assert second.telemetry == first.telemetry
    assert second.error is not None
    assert not second.is_fresh(clock.now)


@pytest.mark.loop
async def test_an_engine_is_asked_no_faster_than_its_interval_and_its_facts_once() -> None:
    def answer(path: str) -> AsyncIterator[bytes]:
        if path == "/slots":
            return says(b'[{"n_ctx":100,"is_processing":true,"n_prompt_tokens":50}]')
        if path == "/props":
            return says(b'{"total_slots":1,"default_generation_settings":{"n_ctx":100}}')
        return says(b"llamacpp:requests_processing 1\nllamacpp:requests_deferred 0\n")

    async with Engine(answer) as engine:
        clock = Clock()
        scraper = Scraper(clock)
        try:
            for _ in range(5):
                seen = await scraper.observe([spec("b", engine.url, "llama_cpp")], 2.0)
                clock.now += 1.0
        finally:
            await scraper.close()
    assert engine.asked.count("/metrics") == engine.asked.count("/slots") == 3
    assert engine.asked.count("/props") == 1
    assert seen["b"].telemetry.kv_ratio == 0.5
    assert seen["b"].absent_after_s == 4.0


@pytest.mark.loop
async def test_a_backend_that_is_gone_or_moved_is_forgotten() -> None:
    async with Engine(lambda _: says(PAGE)) as engine, Engine(lambda _: hangs()) as elsewhere:
        clock = Clock()
        scraper = Scraper(clock)
        try:
            await scraper.observe([spec("b", engine.url), spec("c", engine.url)], 2.0)
            moved = await scraper.observe([spec("b", elsewhere.url)], 0.05)
        finally:
            await scraper.close()
    assert set(moved) == {"b"}
    assert moved["b"].telemetry.is_empty


@pytest.mark.loop
async def test_a_metrics_url_that_names_the_page_is_asked_as_it_is() -> None:
    async with Engine(lambda _: says(PAGE)) as engine:
        scraper = Scraper(Clock())
        try:
            await scraper.observe([spec("b", "http://127.0.0.1:1", metrics_url=f"{engine.url}/metrics")], 2.0)
            await scraper.observe([spec("c", "http://127.0.0.1:1", metrics_url=engine.url)], 2.0)
        finally:
            await scraper.close()
    assert engine.asked == ["/metrics", "/metrics"]


@pytest.mark.loop
async def test_an_engine_without_telemetry_is_never_asked() -> None:
    scraper = Scraper(Clock())
    try:
        seen = await scraper.observe([spec("b", "http://127.0.0.1:1", "none")], 0.1)
    finally:
        await scraper.close()
    assert seen["b"] == Observation(backend="b")
