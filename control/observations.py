"""Fetch the pages of every engine, and what changed between two scrapes. The only place that asks an engine anything.

Each backend has at most one scrape in progress, bounded in time and size; one that hangs delays only itself. A failed
scrape keeps the last telemetry: it grows old, and from `max(3 s, 2 intervals)` on it counts as absent.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import httpx2
from django.conf import settings

from control.addresses import CheckedTransport
from control.engines.base import MAX_PAGE_BYTES, Dialect, Telemetry, Total, finite
from control.engines.registry import dialect
from gateway.contract.snapshot import BackendSpec

TIMEOUT_S: Final = 3.0
ABSENT_AFTER_S: Final = 3.0
AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class Rates:
    """What happened between two scrapes; None where it is not told or the counters started anew."""

    restarted: bool = False
    preemptions_per_s: float | None = None
    output_tokens_per_s: float | None = None
    rejections_per_s: float | None = None
    ttft_mean_s: float | None = None
    tpot_mean_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The newest that is known of one backend. `scraped_at`: epoch seconds at the start of the last good scrape."""

    backend: str
    telemetry: Telemetry = field(default_factory=Telemetry)
    rates: Rates = field(default_factory=Rates)
    scraped_at: float | None = None
    absent_after_s: float = ABSENT_AFTER_S
    error: str | None = None

    def age_s(self, now: float) -> float | None:
        """Seconds since the last good scrape; None before the first."""
        return None if self.scraped_at is None else max(0.0, now - self.scraped_at)

    def is_fresh(self, now: float) -> bool:
        """Whether it may be acted upon. What is not fresh is absent: neither saturated nor idle."""
        age = self.age_s(now)
        return age is not None and age <= self.absent_after_s


def difference(before: Telemetry, after: Telemetry, elapsed_s: float) -> Rates:
    """Rates between two scrapes. Any counter that went back, or a new start time, is a restart: no sample."""
    if elapsed_s <= 0:
        return Rates()
    if _restarted(before, after):
        return Rates(restarted=True)
    return Rates(
        preemptions_per_s=_per_s(before.preemptions_total, after.preemptions_total, elapsed_s),
        output_tokens_per_s=_per_s(before.output_tokens_total, after.output_tokens_total, elapsed_s),
        rejections_per_s=_per_s(before.rejections_total, after.rejections_total, elapsed_s),
        ttft_mean_s=_mean(before.ttft, after.ttft),
        tpot_mean_s=_mean(before.tpot, after.tpot),
    )


def _restarted(before: Telemetry, after: Telemetry) -> bool:
    if before.started_at and after.started_at and after.started_at != before.started_at:
        return True
    counters = [
        (before.preemptions_total, after.preemptions_total),
        (before.output_tokens_total, after.output_tokens_total),
        (before.rejections_total, after.rejections_total),
        *((b.count, a.count) for b, a in ((before.ttft, after.ttft), (before.tpot, after.tpot)) if b and a),
        *((b.sum_s, a.sum_s) for b, a in ((before.ttft, after.ttft), (before.tpot, after.tpot)) if b and a),
    ]
    return any(old is not None and new is not None and new < old for old, new in counters)


def _per_s(before: float | None, after: float | None, elapsed_s: float) -> float | None:
    return None if before is None or after is None else finite((after - before) / elapsed_s)


def _mean(before: Total | None, after: Total | None) -> float | None:
    if before is None or after is None or after.count <= before.count:
        return None
    return finite((after.sum_s - before.sum_s) / (after.count - before.count))


@dataclass(slots=True)
class _Watch:
    """What the scraper remembers of one backend."""

    spec: BackendSpec
    known: Observation
    due_at: float = 0.0
    facts: dict[str, bytes] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None


class Scraper:
    """Keeps one observation per backend up to date. One event loop; `clock` gives epoch seconds."""

    def __init__(self, clock: Callable[[], float], client: httpx2.AsyncClient | None = None) -> None:
        self._clock = clock
        self._client = client or httpx2.AsyncClient(
            timeout=httpx2.Timeout(TIMEOUT_S),
            follow_redirects=False,
            trust_env=False,
            transport=CheckedTransport(
                allow_private=settings.ALLOW_PRIVATE_BACKENDS,
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=256),
            ),
        )
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._watched: dict[str, _Watch] = {}

    async def observe(self, backends: Iterable[BackendSpec], wait_s: float) -> Mapping[str, Observation]:
        """Start what is due, give it `wait_s`, and return the newest observation of every backend.

        A scrape that takes longer goes on and is seen by a later call.
        """
        self._follow(backends)
        now = self._clock()
        for watch in self._watched.values():
            if watch.task is None and now >= watch.due_at:
                self._begin(watch, now)
        running = [watch.task for watch in self._watched.values() if watch.task]
        if running:
            await asyncio.wait(running, timeout=wait_s)
        return {name: watch.known for name, watch in self._watched.items()}

    async def close(self) -> None:
        """End all scrapes and connections."""
        tasks = [watch.task for watch in self._watched.values() if watch.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.aclose()

    def _follow(self, backends: Iterable[BackendSpec]) -> None:
        wanted = {spec.policy.name: spec for spec in backends}
        for name in self._watched.keys() - wanted.keys():
            if task := self._watched.pop(name).task:
                task.cancel()
        for name, spec in wanted.items():
            watch = self._watched.get(name)
            if watch is None or _source(watch.spec) != _source(spec):
                if watch is not None and watch.task:
                    watch.task.cancel()
                self._watched[name] = _Watch(spec, _unknown(spec))

    def _begin(self, watch: _Watch, now: float) -> None:
        speaks = dialect(watch.spec.engine)
        if not speaks.paths:
            return
        watch.due_at = now + speaks.interval_s * 0.95  # the tick's own jitter must not skip every other one
        watch.task = asyncio.create_task(self._scrape(watch, speaks))
        watch.task.add_done_callback(lambda _: setattr(watch, "task", None))

    async def _scrape(self, watch: _Watch, speaks: Dialect) -> None:
        began = self._clock()
        try:
            async with asyncio.timeout(TIMEOUT_S), self._gate:
                pages = {path: await self._fetch(watch.spec, path) for path in speaks.paths}
                await self._learn_facts(watch, speaks)
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError) as error:
            watch.known = _failed(watch.known, error)
            watch.facts = {}
            return
        told = speaks.read({**watch.facts, **pages})
        if told.is_empty:
            watch.known = _failed(watch.known, ValueError("the page has no metric of this engine"))
            return
        watch.known = _next(watch.known, told, began)
        if watch.known.rates.restarted:
            watch.facts = {}

    async def _learn_facts(self, watch: _Watch, speaks: Dialect) -> None:
        for path in speaks.facts_paths:
            if path not in watch.facts:
                watch.facts[path] = await self._fetch(watch.spec, path)

    async def _fetch(self, spec: BackendSpec, path: str) -> bytes:
        """One page, at most MAX_PAGE_BYTES of it.

        Raises:
            ValueError: the answer is not 200.
        """
        base = (spec.metrics_url or spec.url).rstrip("/")
        url = base if spec.metrics_url and base.endswith(path) else base + path
        page = bytearray()
        async with self._client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as answer:
            if answer.status_code != httpx2.codes.OK:
                raise ValueError(f"HTTP {answer.status_code}")
            async for chunk in answer.aiter_raw():
                page += chunk
                if len(page) > MAX_PAGE_BYTES:
                    break
        return bytes(page[:MAX_PAGE_BYTES])


def _source(spec: BackendSpec) -> tuple[str, str | None, str]:
    return (spec.url, spec.metrics_url, spec.engine)


def _unknown(spec: BackendSpec) -> Observation:
    interval = dialect(spec.engine).interval_s
    return Observation(backend=spec.policy.name, absent_after_s=max(ABSENT_AFTER_S, 2 * interval))


def _failed(known: Observation, error: Exception) -> Observation:
    return Observation(
        backend=known.backend,
        telemetry=known.telemetry,
        scraped_at=known.scraped_at,
        absent_after_s=known.absent_after_s,
        error=f"{type(error).__name__}: {error}"[:200],
    )


def _next(known: Observation, told: Telemetry, scraped_at: float) -> Observation:
    rates = Rates()
    if known.scraped_at is not None:
        rates = difference(known.telemetry, told, scraped_at - known.scraped_at)
    return Observation(
        backend=known.backend,
        telemetry=told,
        rates=rates,
        scraped_at=scraped_at,
        absent_after_s=known.absent_after_s,
    )
