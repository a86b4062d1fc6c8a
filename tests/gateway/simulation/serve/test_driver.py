"""The engine in real time: histograms, late counters, who holds which slot."""

import asyncio
import json
import random
from dataclasses import replace

import msgspec
import pytest

from gateway.simulation.profiles import GPU
from gateway.simulation.serve import driver as driver_module
from gateway.simulation.serve import wire
from gateway.simulation.serve.driver import Driver, Histogram, Signal
from gateway.simulation.serve.faults import FaultOrder

DICE = random.Random
FAST = replace(GPU.engine, base_s=0.001, per_seq_s=0.0, jitter_sigma=0.0, seats=2)


def asked(tokens):
    body = {"prompt": "hello", "max_tokens": tokens}
    return wire.read(json.dumps(body).encode(), is_chat=False, dice=DICE(1))


def order(**fields):
    return msgspec.convert(fields, FaultOrder)


@pytest.fixture
async def driver():
    made = Driver(FAST, seed=1)
    loop = asyncio.create_task(made.run())
    yield made
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop


async def take(stream, count):
    return [await asyncio.wait_for(stream.items.get(), 5) for _ in range(count)]


async def test_a_stream_gets_its_tokens_in_order(driver):
    stream = driver.submit("a", asked(4))
    assert await take(stream, 4) == [0, 1, 2, 3]
    assert driver.statistics.cut == 1
    assert driver.statistics.ttft.counts != [0] * 23
    assert driver.streams == {}


async def test_seats_have_numbers_that_are_given_back(driver):
    streams = [driver.submit(key, asked(500)) for key in "abc"]
    await take(streams[0], 2)
    assert driver.slots() == {0: "a", 1: "b"}
    driver.leave(streams[0])
    await take(streams[2], 1)
    assert driver.slots() == {0: "c", 1: "b"}


async def test_a_caller_that_left_frees_its_seat_at_the_next_step(driver):
    stream = driver.submit("a", asked(10_000))
    await take(stream, 2)
    driver.leave(stream)
    driver.leave(stream)
    await asyncio.sleep(0.05)
    assert driver.engine.is_idle
    assert driver.engine.counters.aborted == 1


async def test_an_engine_that_notices_late_works_for_nobody(driver):
    stream = driver.submit("a", asked(10_000))
    await take(stream, 2)
    driver.leave(stream, notices_after_s=0.05)
    await asyncio.sleep(0.02)
    assert driver.engine.running
    await asyncio.sleep(0.2)
    assert driver.engine.is_idle
    assert driver.engine.counters.wasted_tokens > 5


async def test_reading_metrics_keeps_a_closed_request_running(driver):
    stream = driver.submit("a", asked(10_000))
    await take(stream, 2)
    driver.leave(stream, notices_after_s=0.1)
    for _ in range(4):
        driver.metrics_read_at = driver.now()
        await asyncio.sleep(0.05)
    assert driver.engine.running
    await asyncio.sleep(0.4)
    assert driver.engine.is_idle


async def test_a_hang_freezes_tokens_and_gauges(driver):
    stream = driver.submit("a", asked(10_000))
    await take(stream, 2)
    driver.order(order(fault="hang", seconds=0.2))
    await asyncio.sleep(0.05)
    before, gauges = driver.engine.counters.generated_tokens, driver.gauges
    await asyncio.sleep(0.1)
    assert driver.engine.counters.generated_tokens == before
    assert driver.gauges is gauges
    await asyncio.sleep(0.15)
    assert driver.engine.counters.generated_tokens > before


@pytest.mark.parametrize(("fault", "signal"), [("crash", Signal.CRASHED), ("cut", Signal.CUT)])
async def test_a_crash_tells_every_stream_and_starts_counting_again(driver, fault, signal):
    streams = [driver.submit(key, asked(10_000)) for key in "abc"]
    await take(streams[0], 2)
    driver.order(order(fault=fault, seconds=0.01))
    for stream in streams:
        while (item := (await take(stream, 1))[0]) is not signal:
            assert isinstance(item, int)
    assert driver.engine.counters.generated_tokens == 0
    assert driver.engine.is_idle


async def test_a_slow_down_makes_steps_longer(driver):
    stream = driver.submit("a", asked(10_000))
    await take(stream, 1)
    driver.order(order(fault="slow-down", factor=100))
    await asyncio.sleep(0.12)
    before = driver.engine.counters.steps
    await asyncio.sleep(0.25)
    assert driver.engine.counters.steps - before <= 4


async def test_a_full_engine_refuses():
    driver = Driver(replace(FAST, max_waiting=0), seed=1)
    assert driver.submit("a", asked(4)) is None


async def test_preemptions_are_told_late(monkeypatch):
    now = 100.0
    monkeypatch.setattr(driver_module.time, "monotonic", lambda: now)
    driver = Driver(FAST, seed=1)
    driver.engine.counters.preemptions = 3
    driver._refresh()
    assert driver.preemptions() == 0
    now = 105.0
    driver.engine.counters.preemptions = 4
    driver._refresh()
    now = 106.0
    assert driver.preemptions() == 3
    now = 111.0
    assert driver.preemptions() == 4


def test_a_histogram_counts_each_sample_once():
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(seconds)
    assert histogram.counts == [2, 1, 1]
    assert histogram.total_s == pytest.approx(7.65)
