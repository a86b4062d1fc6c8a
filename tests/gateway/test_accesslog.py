"""Access lines: one per request, never in the way of one."""

import asyncio
import json
import os

from gateway import accesslog
from gateway.accesslog import AccessLog
from gateway.tally import Exchange
from tests.fakes.waiting import until


def an_exchange(n: int = 1, **facts) -> Exchange:
    return Exchange(at=1.0, request_id=f"r{n}", status=200, **facts)


async def test_every_exchange_is_one_json_line():
    reader, writer = os.pipe()
    log = AccessLog(writer, loop=asyncio.get_running_loop())
    for n in range(3):
        log.write(an_exchange(n, path="/v1/models", error='evil\r\n"name"'))
    await log.close()
    os.close(writer)
    with os.fdopen(reader) as lines:
        told = [json.loads(line) for line in lines]
    assert [line["request_id"] for line in told] == ["r0", "r1", "r2"]
    assert told[0]["error"] == 'evil\r\n"name"'


async def test_lines_are_written_soon_without_being_asked():
    reader, writer = os.pipe()
    log = AccessLog(writer, loop=asyncio.get_running_loop())
    log.write(an_exchange())
    assert b"r1" in await asyncio.to_thread(os.read, reader, 1000)
    await log.close()
    os.close(reader)
    os.close(writer)


async def test_a_reader_that_reads_nothing_loses_lines_and_holds_up_nothing(monkeypatch):
    monkeypatch.setattr(accesslog, "MAX_BYTES", 200_000)
    reader, writer = os.pipe()
    log = AccessLog(writer, loop=asyncio.get_running_loop())
    for n in range(5000):
        log.write(an_exchange(n))
    assert log.dropped > 0
    await asyncio.sleep(0.2)  # the thread is stuck in a full pipe by now; the loop is not
    os.set_blocking(reader, False)  # the standard library's signature
    received = 0

    def drain() -> bool:
        nonlocal received
        try:
            received += os.read(reader, 1 << 20).count(b"\n")
        except BlockingIOError:
            return log._bytes == 0
        return False

    await until(drain)
    assert received + log.dropped == 5000
    os.close(reader)
    os.close(writer)


async def test_a_reader_that_reads_nothing_does_not_hold_up_the_end(monkeypatch):
    monkeypatch.setattr(accesslog, "CLOSE_S", 0.1)
    reader, writer = os.pipe()
    log = AccessLog(writer, loop=asyncio.get_running_loop())
    for n in range(3000):
        log.write(an_exchange(n))
    began = asyncio.get_running_loop().time()
    await log.close()
    assert asyncio.get_running_loop().time() - began < 2
    os.close(reader)
    await until(lambda: log.dropped == 3000)  # the thread is let go by the broken pipe
    os.close(writer)


async def test_a_reader_that_has_gone_is_counted():
    reader, writer = os.pipe()
    os.close(reader)
    log = AccessLog(writer, loop=asyncio.get_running_loop())
    log.write(an_exchange())
    await log.close()
    assert log.dropped == 1
    os.close(writer)
