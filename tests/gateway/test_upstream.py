"""Contract of the backends' client, on real sockets: what it reads, how it fails, and that nothing is left behind."""

import asyncio
import gzip
import random
import socket
import ssl
import zlib

import pytest

from gateway.core.vocabulary import Fault
from gateway.upstream import (
    AbortedError,
    ConnectError,
    FirstByteTimeout,
    IdleTimeout,
    MidstreamDeath,
    ProtocolError,
    Target,
    Timeouts,
    TotalTimeout,
    Upstream,
    UpstreamError,
)
from tests.fakes.backend import (
    CloseAtOnce,
    FakeBackend,
    Fin,
    Flood,
    HdrDelay,
    Hold,
    Json,
    Line,
    Raw,
    Rst,
    Sse,
    Status,
)
from tests.fakes.certificate import server_context, trusting_context

pytestmark = pytest.mark.loop

QUICK = Timeouts(connect_s=1.0, first_byte_s=0.1, idle_s=0.1, total_s=5.0)
PATIENT = Timeouts(connect_s=2.0, first_byte_s=10.0, idle_s=10.0, total_s=20.0)
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
async def backend():
    async with FakeBackend() as backend:
        yield backend


@pytest.fixture
async def upstream():
    upstream = Upstream(asyncio.get_running_loop().time)
    yield upstream
    upstream.close()
    await until(lambda: upstream.open_connections == 0)


async def until(condition, timeout_s=3.0):
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  # any condition
            await asyncio.sleep(0.002)


def target(backend, timeouts=PATIENT, **options):
    return Target.parse(backend.url, timeouts=timeouts, **options)


async def ask(upstream, backend, timeouts=PATIENT, body=b"{}", **options):
    exchange = await upstream.open(target(backend, timeouts, **options), "POST", "/v1/x", [], body)
    try:
        return exchange, await exchange.read_all(1 << 20)
    finally:
        exchange.abort()


# what it sends


async def test_a_request_has_one_framing_one_host_and_the_credential(upstream, backend):
    to = target(backend, credential=(b"authorization", b"Bearer s3cret"))
    exchange = await upstream.open(
        to, "POST", "/v1/x?a=b", [(b"content-type", b"application/json")], b"hello"
    )
    await exchange.read_all(1000)
    seen = backend.requests[0]
    assert (seen.method, seen.path, seen.body) == ("POST", "/v1/x?a=b", b"hello")
    assert seen.headers == [
        ("host", f"127.0.0.1:{backend.port}"),
        ("accept-encoding", "identity"),
        ("content-length", "5"),
        ("content-type", "application/json"),
        ("authorization", "Bearer s3cret"),
    ]
    assert "s3cret" not in repr(to)


async def test_a_base_path_comes_before_the_path(upstream, backend):
    exchange = await upstream.open(Target.parse(backend.url + "/engine/"), "GET", "/v1/models", [], b"")
    await exchange.read_all(1000)
    assert backend.requests[0].path == "/engine/v1/models"
    assert backend.requests[0].header("content-length") == []


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "x", []),
        ("GET", "/a b", []),
        ("GET", "/a\r\nX: y", []),
        ("GET", "/\u00fc", []),
        ("GET /", "/", []),
        ("HEAD", "/", []),
        ("GET", "/", [(b"x", b"a\r\nb: c")]),
        ("GET", "/", [(b"x", b"a\nb")]),
        ("GET", "/", [(b"x", b"\0")]),
        ("GET", "/", [(b"x y", b"a")]),
        ("GET", "/", [(b"x:", b"a")]),
        ("GET", "/", [(b"", b"a")]),
        ("GET", "/", [(b"Host", b"evil")]),
        ("GET", "/", [(b"content-length", b"7")]),
        ("GET", "/", [(b"transfer-encoding", b"chunked")]),
        ("GET", "/", [(b"connection", b"close")]),
    ],
)
async def test_what_could_change_the_framing_is_never_sent(upstream, backend, method, path, headers):
    with pytest.raises(ValueError, match="cannot be sent"):
        await upstream.open(target(backend), method, path, headers, b"")
    assert backend.connections == 0


# how it reads


@pytest.mark.parametrize(
    ("raw", "end", "body"),
    [
        (OK + b"Content-Length: 5\r\n\r\nhello", "", b"hello"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n", "", b"hello"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", "", b"hello"),
        (OK + b"\r\nhello", "fin", b"hello"),
        (b"HTTP/1.0 200 OK\r\n\r\nhello", "fin", b"hello"),
        (OK + b"Connection: close\r\n\r\nhello", "fin", b"hello"),
        (OK + b"Content-Length: 0\r\n\r\n", "", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nhello", "", b"hello"),
        (
            b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 102 P\r\n\r\n"
            + OK
            + b"Content-Length: 2\r\n\r\nok",
            "",
            b"ok",
        ),
    ],
    ids=[
        "length",
        "chunked",
        "trailer",
        "close",
        "HTTP/1.0",
        "close named",
        "empty",
        "204",
        "100",
        "103 and 102",
    ],
)
async def test_every_framing_is_read_whole_and_cut_at_every_byte(upstream, backend, raw, end, body):
    for cut in range(0, len(raw), max(1, len(raw) // 25)):
        backend.then(Raw((raw[:cut], 0.001, raw[cut:]), end=end))
        exchange, got = await ask(upstream, backend)
        assert got == body
        assert exchange.status in (200, 204)
        assert exchange.ended
        assert not any(name == b"link" for name, _ in exchange.headers)
    assert backend.malformed == []


async def test_a_body_is_passed_on_as_it_comes(upstream, backend):
    backend.then(
        Raw(
            (
                OK + b"Transfer-Encoding: chunked\r\n\r\n",
                b"1\r\na\r\n",
                0.03,
                b"1\r\nb\r\n",
                0.03,
                b"0\r\n\r\n",
            )
        )
    )
    exchange = await upstream.open(target(backend), "POST", "/", [], b"")
    assert [piece async for piece in exchange] == [b"a", b"b"]


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        OK + b"Content-Encoding: br\r\nContent-Length: 5\r\n\r\nhello",
        OK + b"Content-Encoding: gzip\r\nContent-Length: 50\r\n\r\nhello",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        OK + b"X: " + b"y" * 200_000 + b"\r\n\r\n",
        OK + b"".join(b"X-%d: y\r\n" % i for i in range(300)) + b"Content-Length: 0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000,
        OK + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"x" * 200_000,
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: " + b"y" * 200_000,
        OK + b"Na me: x\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
    ],
)
async def test_a_malformed_or_boundless_answer_is_a_protocol_error_and_ends_the_connection(
    upstream, backend, raw
):
    backend.then(Raw((raw, 1.0)))
    with pytest.raises(ProtocolError) as failure:
        await ask(upstream, backend)
    assert failure.value.fault is Fault.SERVER_ERROR
    assert upstream.open_connections == 0 or await settled(upstream)


async def settled(upstream):
    await until(lambda: upstream.open_connections == 0)
    return True


@pytest.mark.parametrize("coding", [b"gzip", b"x-gzip", b"deflate"])
async def test_a_compressed_answer_is_decoded_although_nobody_asked_for_it(upstream, backend, coding):
    """A45."""
    body = b"data: x\n\n" * 1000
    packed = zlib.compress(body) if coding == b"deflate" else gzip.compress(body)
    raw = OK + b"Content-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (coding, len(packed)) + packed
    backend.then(Raw((raw[:70], 0.005, raw[70:])))
    exchange, got = await ask(upstream, backend)
    assert got == body
    assert {name for name, _ in exchange.headers}.isdisjoint({b"content-encoding", b"content-length"})


async def test_a_compressed_bomb_is_decoded_piece_by_piece(upstream, backend):
    packed = gzip.compress(b"\0" * (64 << 20))
    backend.then(Raw((OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed,)))
    exchange = await upstream.open(target(backend), "POST", "/", [], b"")
    first = await anext(exchange)
    assert len(first) <= 64 * 1024
    with pytest.raises(ProtocolError, match="too large"):
        await exchange.read_all(1 << 20)


async def test_a_compressed_answer_cut_short_is_not_complete(upstream, backend):
    packed = gzip.compress(random.Random(1).randbytes(5000))[:-20]  # noqa: S311  # a seed
    backend.then(Raw((OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed,)))
    with pytest.raises(MidstreamDeath):
        await ask(upstream, backend)


async def test_an_answer_beyond_the_callers_limit_is_refused_and_aborted(upstream, backend):
    backend.then(Flood(10 << 20))
    exchange = await upstream.open(target(backend), "POST", "/", [], b"")
    with pytest.raises(ProtocolError, match="too large"):
        await exchange.read_all(100_000)
    await backend.until(lambda: backend.in_flight == 0)


# keep-alive


async def test_a_connection_serves_one_request_after_the_other(upstream, backend):
    for _ in range(20):
        await ask(upstream, backend)
    assert (backend.connections, len(backend.requests)) == (1, 20)


async def test_nothing_queues_behind_a_busy_connection(upstream, backend):
    backend.default = Hold()
    asking = [asyncio.ensure_future(ask(upstream, backend)) for _ in range(50)]
    await backend.until(lambda: backend.in_flight == 50)
    backend.release()
    await asyncio.gather(*asking)
    assert backend.connections == 50


async def test_an_idle_connection_that_the_backend_closed_is_not_used_again(upstream, backend):
    await ask(upstream, backend)
    for line in list(backend._lines):
        line.close()
    await until(lambda: upstream.open_connections == 0)
    await ask(upstream, backend)
    assert backend.connections == 2


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a_stale_connection_is_tried_again_once_on_a_fresh_one(upstream, backend, how):
    await ask(upstream, backend)
    backend.then(CloseAtOnce(how), Json(always=True))
    exchange, _ = await ask(upstream, backend)
    assert exchange.status == 200
    assert backend.connections == 2


async def test_a_fresh_connection_that_is_closed_without_an_answer_is_not_tried_again(upstream, backend):
    backend.then(CloseAtOnce(), Json(always=True))
    with pytest.raises(ConnectError) as failure:
        await ask(upstream, backend)
    assert failure.value.request_sent
    assert len(backend.requests) == 1


async def test_a_stale_connection_is_tried_again_only_once(upstream, backend):
    await ask(upstream, backend)
    backend.then(CloseAtOnce(), CloseAtOnce(), Json(always=True))
    with pytest.raises(ConnectError):
        await ask(upstream, backend)
    assert len(backend.requests) == 3


@pytest.mark.parametrize("first", [b"H", OK, OK + b"Content-Length: 5\r\n\r\nhe"])
async def test_once_a_byte_of_the_answer_came_nothing_is_sent_twice(upstream, backend, first):
    """A16."""
    await ask(upstream, backend)
    backend.then(Raw((first,), end="fin"))
    with pytest.raises(MidstreamDeath):
        await ask(upstream, backend)
    assert len(backend.requests) == 2


async def test_a_backend_that_dies_at_work_is_not_given_the_request_again(backend):
    now = 0.0
    upstream = Upstream(lambda: now)
    await ask(upstream, backend)

    async def die_late(line: Line) -> None:
        nonlocal now
        now += 2.0
        line.rst()

    backend.then(die_late)
    with pytest.raises(ConnectError):
        await ask(upstream, backend)
    assert len(backend.requests) == 2
    upstream.close()


async def test_bytes_beyond_an_answer_never_become_another_answer(upstream, backend):
    raw = OK + b"Content-Length: 2\r\n\r\nok"
    backend.then(Raw((raw + OK + b"Content-Length: 4\r\n\r\nevil",)), Json(always=True))
    _, body = await ask(upstream, backend)
    assert body == b"ok"
    _, body = await ask(upstream, backend)
    assert b"chatcmpl" in body
    assert backend.connections == 2


async def test_bytes_on_an_idle_connection_end_it(upstream, backend):
    backend.then(Raw((OK + b"Content-Length: 2\r\n\r\nok", 0.02, OK + b"Content-Length: 4\r\n\r\nevil", 1.0)))
    await ask(upstream, backend)
    await until(lambda: upstream.open_connections == 0)


async def test_idle_connections_are_closed_after_a_while(backend):
    upstream = Upstream(asyncio.get_running_loop().time, keep_idle_s=0.03)
    await ask(upstream, backend)
    assert upstream.open_connections == 1
    await until(lambda: upstream.open_connections == 0)
    assert repr(upstream) == "<Upstream connections=0 idle=0>"


async def test_only_so_many_idle_connections_are_kept(backend):
    upstream = Upstream(asyncio.get_running_loop().time, most_idle=2)
    backend.default = Hold()
    asking = [asyncio.ensure_future(ask(upstream, backend)) for _ in range(6)]
    await backend.until(lambda: backend.in_flight == 6)
    backend.release()
    await asyncio.gather(*asking)
    await until(lambda: upstream.open_connections == 2)
    upstream.close()


async def test_an_answer_before_the_whole_body_was_taken_ends_the_connection(upstream, backend):
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        opening = asyncio.ensure_future(upstream.open(Target.parse(url), "POST", "/", [], b"x" * (32 << 20)))
        line, _ = await loop.sock_accept(server)
        with line:
            await loop.sock_recv(line, 1000)
            await loop.sock_sendall(line, b"HTTP/1.1 413 X\r\nContent-Length: 2\r\n\r\nno")
            exchange = await opening
            assert exchange.status == 413
            assert await exchange.read_all(10) == b"no"
            await until(lambda: upstream.open_connections == 0)


# faults


async def test_a_refused_connection_is_told_apart_from_a_lost_one(upstream, backend):
    await backend.refuse()
    with pytest.raises(ConnectError) as failure:
        await ask(upstream, backend)
    assert not failure.value.request_sent
    assert failure.value.fault is Fault.CONNECTION


@pytest.mark.parametrize(
    ("script", "kind", "fault"),
    [
        (Hold(), FirstByteTimeout, Fault.FIRST_BYTE_TIMEOUT),
        (HdrDelay(1.0), FirstByteTimeout, Fault.FIRST_BYTE_TIMEOUT),
        (Sse(first_s=1.0), FirstByteTimeout, Fault.FIRST_BYTE_TIMEOUT),
        (Sse(2, gap_s=1.0), IdleTimeout, Fault.IDLE_TIMEOUT),
        (Rst(3), MidstreamDeath, Fault.MIDSTREAM),
        (Fin(3), MidstreamDeath, Fault.MIDSTREAM),
        (CloseAtOnce(), ConnectError, Fault.CONNECTION),
        (CloseAtOnce("rst"), ConnectError, Fault.CONNECTION),
        (Raw((OK + b"Content-Length: 5\r\n\r\nhe",), end="fin"), MidstreamDeath, Fault.MIDSTREAM),
        (Raw((OK + b"\r\nhel", 0.01), end="rst"), MidstreamDeath, Fault.MIDSTREAM),
    ],
    ids=str,
)
async def test_each_fault_has_its_name_and_closes_the_connection(upstream, backend, script, kind, fault):
    """A02, A16."""
    backend.then(script)
    with pytest.raises(UpstreamError) as failure:
        await ask(upstream, backend, QUICK)
    assert type(failure.value) is kind
    assert failure.value.fault is fault
    await backend.until(lambda: backend.in_flight == 0 and backend.open_connections == 0)


async def test_the_whole_exchange_has_an_end_even_while_bytes_keep_coming(upstream, backend):
    backend.then(Sse(1000, gap_s=0.02))
    with pytest.raises(TotalTimeout):
        await ask(upstream, backend, Timeouts(1.0, 1.0, 1.0, 0.2))
    await backend.until(lambda: backend.in_flight == 0)


async def test_a_stream_that_keeps_coming_outlives_its_first_byte_and_idle_times(upstream, backend):
    backend.then(Sse(15, gap_s=0.03))
    _, body = await ask(upstream, backend, QUICK)
    assert body.endswith(b"[DONE]\n\n")


async def test_a_reader_that_does_not_read_is_not_the_backends_fault(upstream, backend):
    backend.then(Flood(4 << 20))
    exchange = await upstream.open(target(backend, QUICK), "POST", "/", [], b"")
    await anext(exchange)
    await asyncio.sleep(0.35)
    assert await exchange.read_all(8 << 20)


async def test_what_came_before_a_fault_is_still_given_out(upstream, backend):
    """A16."""
    backend.then(Rst(3))
    exchange = await upstream.open(target(backend), "POST", "/", [], b'{"stream": true}')
    await asyncio.sleep(0.1)
    got = await anext(exchange)
    with pytest.raises(MidstreamDeath):
        await anext(exchange)
    assert got.count(b'"content":"t') == 3


async def test_an_unanswered_connection_attempt_ends_in_time(upstream):
    """A listener whose queue is full does not answer: 198.51.100.0/24 is for documentation, nothing is there."""
    to = Target.parse("http://127.0.0.1:9", timeouts=Timeouts(0.05, 1, 1, 1))
    with pytest.raises(ConnectError) as failure:
        await upstream.open(to, "GET", "/", [], b"")
    assert not failure.value.request_sent


# backpressure


async def test_a_slow_reader_stops_the_backend_and_bounds_the_memory(upstream, backend):
    """A20."""
    backend.then(Flood(64 << 20))
    exchange = await upstream.open(target(backend), "POST", "/", [], b"")
    await anext(exchange)
    await asyncio.sleep(0.1)
    before = backend.flooded
    await asyncio.sleep(0.2)
    assert backend.flooded == before < 32 << 20
    assert exchange._buffered <= 128 * 1024
    exchange.abort()
    await backend.until(lambda: backend.in_flight == 0)


async def test_a_paused_backend_goes_on_when_its_answer_is_read(upstream, backend):
    backend.then(Flood(8 << 20))
    exchange = await upstream.open(target(backend), "POST", "/", [], b"")
    size = 0
    async for piece in exchange:
        size += len(piece)
        if size % 7 == 0:
            await asyncio.sleep(0)
    assert size >= 8 << 20
    assert upstream.open_connections == 1


# abort


@pytest.mark.parametrize(
    "script", [Hold(), Sse(1000, gap_s=0.005), Flood(64 << 20)], ids=["held", "stream", "flood"]
)
async def test_an_abort_reaches_the_backend_at_once(upstream, backend, script):
    """A01, A04, A19."""
    backend.default = script
    loop = asyncio.get_running_loop()
    delays = []
    for _ in range(20):
        opening = asyncio.ensure_future(upstream.open(target(backend), "POST", "/", [], b'{"stream": true}'))
        await backend.until(lambda: backend.in_flight == 1)
        await asyncio.sleep(0.01)
        began = loop.time()
        if opening.done():
            opening.result().abort()
        else:
            opening.cancel()
        await backend.until(lambda: backend.in_flight == 0)
        delays.append(loop.time() - began)
        await asyncio.gather(opening, return_exceptions=True)
    assert sorted(delays)[-2] < 0.5
    assert upstream.open_connections == 0


async def test_an_abort_wakes_whoever_waits_and_may_be_repeated(upstream, backend):
    backend.then(Sse(5, gap_s=5.0))
    exchange = await upstream.open(target(backend), "POST", "/", [], b'{"stream": true}')
    await anext(exchange)
    waiting = asyncio.ensure_future(anext(exchange))
    await asyncio.sleep(0.01)
    exchange.abort()
    exchange.abort()
    with pytest.raises(AbortedError):
        await waiting
    with pytest.raises(AbortedError):
        await anext(exchange)
    assert "failed" in repr(exchange)


async def test_an_abort_after_the_end_leaves_the_connection_alone(upstream, backend):
    exchange, _ = await ask(upstream, backend)
    exchange.abort()
    await ask(upstream, backend)
    assert backend.connections == 1
    assert "ended" in repr(exchange)


async def test_an_abort_after_the_end_cannot_hit_the_next_user_of_the_connection(upstream, backend):
    first = await upstream.open(target(backend), "POST", "/", [], b"{}")
    await until(lambda: first.ended)
    backend.then(Sse(3, gap_s=0.01))
    second = await upstream.open(target(backend), "POST", "/", [], b'{"stream": true}')
    first.abort()
    assert (await second.read_all(1 << 20)).endswith(b"[DONE]\n\n")
    assert backend.connections == 1


async def test_closing_everything_ends_every_exchange(backend):
    upstream = Upstream(asyncio.get_running_loop().time)
    backend.default = Hold()
    asking = [asyncio.ensure_future(ask(upstream, backend)) for _ in range(5)]
    await backend.until(lambda: backend.in_flight == 5)
    upstream.close()
    await backend.until(lambda: backend.open_connections == 0)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)


# cancellation: a cancelled call leaves no socket, and the next call works


async def test_a_call_cancelled_at_every_await_leaves_nothing_behind(upstream, backend):
    """Cancels after 0, 1, 2, ... steps of the loop until the call gets through."""
    backend.default = Sse(2)
    before = len(asyncio.all_tasks())
    for fresh in (True, False):
        for steps in range(200):
            if fresh:
                upstream.close()
            task = asyncio.ensure_future(ask(upstream, backend, body=b'{"stream": true}'))
            for _ in range(steps):
                await asyncio.sleep(0)
            if task.done():
                break
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            pytest.fail("the call never got through")
        assert steps > 3
        await backend.until(lambda: backend.in_flight == 0)
    upstream.close()
    await until(lambda: upstream.open_connections == 0)
    await backend.until(lambda: backend.open_connections == 0)
    await until(lambda: len(asyncio.all_tasks()) == before)


async def test_ten_thousand_random_aborts_leak_no_socket_and_no_task(upstream, backend):
    dice = random.Random(11)  # noqa: S311  # a seed, not a secret
    backend.default = Sse(3)
    before = len(asyncio.all_tasks())

    async def one() -> None:
        exchange = await upstream.open(target(backend), "POST", "/", [], b'{"stream": true}')
        try:
            async for _ in exchange:
                if dice.random() < 0.2:
                    exchange.abort()
        finally:
            exchange.abort()

    loop = asyncio.get_running_loop()
    for _ in range(200):
        tasks = [loop.create_task(one()) for _ in range(50)]
        timers = [loop.call_later(dice.expovariate(100), task.cancel) for task in tasks]
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, asyncio.CancelledError | AbortedError)
        for timer in timers:
            timer.cancel()
    upstream.close()
    await until(lambda: upstream.open_connections == 0)
    await backend.until(lambda: backend.in_flight == 0 and backend.open_connections == 0)
    assert len(asyncio.all_tasks()) == before
    await ask(upstream, backend)


# where it connects to


async def test_a_unix_socket_is_a_backend_too(upstream, tmp_path):
    async with FakeBackend(unix_path=str(tmp_path / "engine.sock")) as backend:
        exchange = await upstream.open(
            Target.parse(f"unix://{tmp_path}/engine.sock"), "POST", "/v1/x", [], b"{}"
        )
        assert b"chatcmpl" in await exchange.read_all(10_000)
        assert backend.requests[0].header("host") == ["localhost"]
    with pytest.raises(ConnectError):
        await upstream.open(Target.parse(f"unix://{tmp_path}/none.sock"), "POST", "/", [], b"")


async def test_tls_is_spoken_and_checked(tmp_path):
    context, authority = server_context(tmp_path)
    async with FakeBackend(Sse(3), tls=context) as backend:
        upstream = Upstream(asyncio.get_running_loop().time, tls=trusting_context(authority))
        url = f"https://localhost:{backend.port}"
        for _ in range(2):
            exchange = await upstream.open(Target.parse(url), "POST", "/", [], b'{"stream": true}')
            assert (await exchange.read_all(10_000)).endswith(b"[DONE]\n\n")
        assert backend.connections == 1
        backend.then(Hold())
        opening = asyncio.ensure_future(upstream.open(Target.parse(url), "POST", "/", [], b"{}"))
        await backend.until(lambda: backend.in_flight == 1)
        opening.cancel()
        await backend.until(lambda: backend.in_flight == 0)
        await asyncio.gather(opening, return_exceptions=True)
        upstream.close()
        distrusting = Upstream(asyncio.get_running_loop().time, tls=ssl.create_default_context())
        with pytest.raises(ConnectError) as failure:
            await distrusting.open(Target.parse(url), "POST", "/", [], b"{}")
        assert not failure.value.request_sent
        distrusting.close()
        await backend.until(lambda: backend.open_connections == 0)


async def test_a_name_is_checked_when_its_addresses_are_known(upstream, backend, monkeypatch):
    """A39: a name that resolves to a metadata address, and one that changes between two look-ups."""
    loop = asyncio.get_running_loop()
    answers = []

    async def getaddrinfo(host, port, **_):
        return [(2, 1, 6, "", (answers.pop(0), port))]

    monkeypatch.setattr("gateway.upstream.target._system_look_up", getaddrinfo)
    to = Target.parse(f"http://engine.test:{backend.port}")
    answers.append("169.254.169.254")
    with pytest.raises(ConnectError, match="may be connected to") as failure:
        await upstream.open(to, "GET", "/", [], b"")
    assert not failure.value.request_sent
    answers.append("127.0.0.1")
    exchange = await upstream.open(to, "GET", "/", [], b"")
    await exchange.read_all(10_000)
    assert (answers, backend.connections, loop.is_running()) == ([], 1, True)


async def test_private_addresses_need_the_setting(upstream, backend):
    to = Target(host="127.0.0.1", port=backend.port, allow_private=False)
    with pytest.raises(ConnectError, match="may be connected to"):
        await upstream.open(to, "GET", "/", [], b"")
    assert backend.connections == 0


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/",
        "http://[fe80::1]/",
        "http://[::ffff:169.254.169.254]/",
        "file:///etc/passwd",
        "gopher://h/",
        "http://user:pw@h/",
        "http://h/?q",
        "http://h/#f",
        "http:///path",
        "h:80",
        "http://h:99999",
        "http://h h/",
        "unix://host/path",
    ],
)
def test_a_url_that_cannot_be_a_backend_is_refused(url):
    """A39."""
    with pytest.raises(ValueError, match=r".+"):
        Target.parse(url)


def test_a_status_with_a_body_is_no_fault_of_the_transport():
    assert Status(503).code == 503
