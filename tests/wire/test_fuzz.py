"""Mutated byte streams: the gateway never takes a request that a strict reader of RFC 9112 does not read.

Differential: whatever the application saw on a connection must be the first requests that `tests.fakes.strict` reads in
the same bytes. SLUICEGATE_FUZZ_RUNS sets another number of streams, SLUICEGATE_FUZZ_SEED another seed.
"""

import asyncio
import gc
import os
import random
from pathlib import Path
from typing import Any

import pytest

from gateway.edge import Limits, Listener
from tests.fakes.strict import read_requests
from tests.fakes.wire import Loopback, parse_answers

pytestmark = pytest.mark.loop

RUNS = int(os.environ.get("SLUICEGATE_FUZZ_RUNS", "10000"))
SEED = int(os.environ.get("SLUICEGATE_FUZZ_SEED", "20260701"))
AT_ONCE = 64
BATCH = WARM_UP = 1000
LIMITS = Limits(head_s=0.05, idle_s=0.01, body_grace_s=0.05, body_rate_per_s=1e9, linger_s=0.02)
RSS_GROWTH = 10 << 20

SEEDS = [
    b"GET /g HTTP/1.1\r\nHost: gw\r\n\r\n",
    b"POST /p HTTP/1.1\r\nHost: gw\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /p HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n",
    b"POST /p HTTP/1.1\r\nHost: gw\r\nContent-Length: 37\r\n\r\nGET /evil HTTP/1.1\r\nHost: gw\r\n\r\nabcde",
    b"POST /p HTTP/1.1\r\nHost: gw\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
    b"GET http://gw/g?x=1 HTTP/1.1\r\nHost: gw\r\nConnection: close\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: gw\r\n\r\n",
    b"GET /g HTTP/1.0\r\n\r\n",
]
TOKENS = [
    *(b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b";", b",", b"_", b"\xff", b"\x0b"),
    *(
        b"Content-Length: 5\r\n",
        b"Content-Length: 0\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: x\r\n",
    ),
    *(b" chunked", b"Host: evil\r\n", b"Connection: close\r\n", b"Upgrade: h2c\r\n", b"Trailer: x\r\n"),
    *(b"HTTP/1.1", b"HTTP/1.0", SEEDS[0], b"5\r\n", b"+5", b"0x5", b"F" * 17, b"0\r\n\r\n"),
]


def mutated(dice: random.Random) -> bytes:
    data = bytearray(b"".join(dice.choice(SEEDS) for _ in range(dice.randint(1, 3))))
    for _ in range(dice.choice((0, 1, 1, 1, 2, 2, 3, 5, 8))):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(6):
            case 0:
                data[at:at] = dice.choice(TOKENS)
            case 1:
                del data[at : at + dice.randint(1, 4)]
            case 2:
                data[at : at + 1] = bytes([dice.randrange(256)])
            case 3:
                begin = dice.randrange(len(data) + 1)
                data[at:at] = data[begin : begin + dice.randint(1, 40)]
            case 4:
                data[at : at + dice.randint(1, 8)] = dice.choice(TOKENS)
            case _:
                end = data.find(b"\r\n", at)
                data[end : end + 2] = dice.choice((b"\n", b"\r", b"\r\n ", b"\r\n\r\n", b"\r\r\n"))
    return bytes(data)


class Recorder:
    """Answers every request and notes it by the caller's port."""

    def __init__(self) -> None:
        self.seen: dict[int, list[tuple[bytes, bytes]]] = {}
        self.taken = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            if not message["more_body"]:
                break
        self.taken += 1
        self.seen.setdefault(scope["client"][1], []).append((scope["method"].encode(), body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


async def one(port: int, data: bytes, recorder: Recorder, cut: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    me = writer.get_extra_info("sockname")[1]
    received = b""
    try:
        writer.write(data[:cut])
        await asyncio.sleep(0)
        writer.write(data[cut:])
        async with asyncio.timeout(5):
            while piece := await reader.read(65536):
                received += piece
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()
    seen = recorder.seen.pop(me, [])
    expected = [(request.method, request.body) for request in read_requests(data)]
    assert seen == expected[: len(seen)], f"took {seen!r} of {data!r}"
    answers, rest = parse_answers(received, tuple(method.decode() for method, _ in seen), ended=True)
    assert all(answer.status < 500 or answer.status == 505 for answer in answers), f"{answers!r} to {data!r}"
    assert rest == b"" or not received.startswith(b"HTTP/1.1"), f"{rest!r} after {answers!r} to {data!r}"
    refused = [answer for answer in answers if answer.status >= 400]
    assert len(refused) <= 1
    assert all(answer.closes for answer in refused)


async def batch(port: int, dice: random.Random, recorder: Recorder, size: int) -> None:
    gate = asyncio.Semaphore(AT_ONCE)

    async def run(data: bytes, cut: int) -> None:
        async with gate:
            await one(port, data, recorder, cut)

    async with asyncio.TaskGroup() as group:
        for _ in range(size):
            data = mutated(dice)
            group.create_task(run(data, dice.randrange(len(data) + 1)))


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_ten_thousand_mutated_streams_give_nothing_that_was_not_sent(caplog):
    dice = random.Random(SEED)  # noqa: S311  # a seed, not a secret
    recorder = Recorder()
    listener = Listener(recorder, LIMITS)
    await listener.open(Loopback())
    try:
        await batch(listener.port, dice, recorder, WARM_UP)
        before = resident()
        for begin in range(WARM_UP, RUNS, BATCH):
            await batch(listener.port, dice, recorder, min(BATCH, RUNS - begin))
        assert resident() - before <= RSS_GROWTH
    finally:
        await listener.end()
    assert recorder.taken > RUNS / 4, "the mutations are too wild to test anything"
    assert listener.connections == listener.requests == 0
    assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []
