"""A thousand slow callers of each kind: everybody else is served, memory is bounded, and the slow ones go.

The bound for memory is per connection: what an idle one, and a stream with a full buffer, may cost at most.
"""

import asyncio
import gc
import logging
import os
import resource
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gateway.edge import Limits
from gateway.upstream import Timeouts
from tests.fakes.backend import FakeBackend, Flood, Json
from tests.fakes.wire import Wire, parse_answers

pytestmark = pytest.mark.loop
_LOG = logging.getLogger(__name__)

CALLERS = 1000
REQUESTS = 100
LIMITS = Limits(head_s=4.0, body_grace_s=3.0, stall_s=8.0, linger_s=0.2)
GET = b"GET /fast HTTP/1.1\r\nHost: gw\r\n\r\n"


@pytest.fixture(autouse=True)
def enough_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CALLERS * 5
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"needs {wanted} file descriptors, may have {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def connect(port: int) -> socket.socket:
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
    return raw


async def drip(raw: socket.socket, head: bytes, byte: bytes) -> None:
    """Send something, then a byte now and then, until the gateway has had enough."""
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_sendall(raw, head)
        while True:
            await asyncio.sleep(0.3)
            await loop.sock_sendall(raw, byte)
    except OSError:
        pass


async def drip_head(raw: socket.socket) -> None:
    await drip(raw, b"GET /slow HTTP/1.1\r\nHost: gw\r\nX: ", b"y")


async def drip_body(raw: socket.socket) -> None:
    await drip(raw, b"POST /slow HTTP/1.1\r\nHost: gw\r\nContent-Length: 5000\r\n\r\n", b"y")


async def read_nothing(raw: socket.socket) -> None:
    await asyncio.get_running_loop().sock_sendall(
        raw, b"POST /slow HTTP/1.1\r\nHost: gw\r\nContent-Length: 0\r\n\r\n"
    )


async def fast(port: int) -> list[float]:
    """One caller with a kept connection; every request must succeed. Returns the times."""
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    times = []
    for _ in range(REQUESTS):
        began = loop.time()
        writer.write(GET)
        received = b""
        while not (answers := parse_answers(received)[0]):
            piece = await reader.read(65536)
            assert piece, "a fast caller was cut"
            received += piece
        times.append(loop.time() - began)
        assert answers[0].status == 200
        await asyncio.sleep(0.005)
    writer.close()
    return times


class ByPath(FakeBackend):
    """Fast answers on /fast, endless ones elsewhere."""

    def next_script(self) -> object:
        return Json(always=True) if self.requests[-1].path == "/fast" else Flood(1 << 30)


async def settled(wire: Wire) -> None:
    """Wait until all slow callers are there and every buffer on their way is full."""
    async with asyncio.timeout(20):
        while wire.listener.connections < CALLERS:  # noqa: ASYNC110  # the gateway's own doing
            await asyncio.sleep(0.02)
    before = -1
    while before != wire.backend.flooded:
        before = wire.backend.flooded
        await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    ("kind", "bytes_each"),
    # both ends of each connection are in this process; a flooding backend is too
    [(drip_head, 32 * 1024), (drip_body, 40 * 1024), (read_nothing, 320 * 1024)],
    ids=["head", "body", "reader"],
)
async def test_a_thousand_slow_callers_do_not_hurt_anybody_else(
    kind: Callable[[socket.socket], Awaitable[None]], bytes_each: int
) -> None:
    """A20: bounded memory and untouched neighbours, for slow heads, slow bodies and slow readers alike."""
    async with Wire(LIMITS, Timeouts(10, 30, 30, 60), ByPath()) as wire:
        alone = await fast(wire.port)
        before = resident()
        sockets = [await connect(wire.port) for _ in range(CALLERS)]
        slow = [asyncio.ensure_future(kind(raw)) for raw in sockets]
        await settled(wire)
        beside = await fast(wire.port)
        grown = resident() - before
        _LOG.info(
            "p99 alone %.1f ms, beside %d slow callers %.1f ms; %d KiB for each of them",
            *(sorted(alone)[-2] * 1000, CALLERS, sorted(beside)[-2] * 1000, grown // CALLERS // 1024),
        )
        assert grown <= CALLERS * bytes_each
        async with asyncio.timeout(20):
            while wire.listener.connections > 10:  # noqa: ASYNC110  # the gateway's own doing
                await asyncio.sleep(0.05)
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        for raw in sockets:
            raw.close()
        await wire.backend.until(lambda: wire.backend.in_flight == 0)
        assert wire.relay.crashes == []
