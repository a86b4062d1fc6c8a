"""The edge on real sockets: time, order, early answers, slow callers, crashes and the drain. Framing is in tests/wire."""

import asyncio
import json
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.departure import EXTENSION
from gateway.edge import Limits, Listener, Plan, framing, run
from gateway.edge.deadlines import Deadline, Wait
from tests.fakes.wire import Loopback, parse_answers, talk

pytestmark = pytest.mark.loop

GET = b"GET /g HTTP/1.1\r\nHost: gw\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nHost: gw\r\nContent-Length: 5\r\n\r\nhello"
CLOSING = b"GET /g HTTP/1.1\r\nHost: gw\r\nConnection: close\r\n\r\n"
QUICK = Limits(head_s=0.1, idle_s=0.05, body_grace_s=0.1, stall_s=0.2, linger_s=0.2, body_bytes=1 << 20)


async def until(condition, timeout_s=3.0):
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  # any condition
            await asyncio.sleep(0.002)


async def answer(send, status=200, body=b"ok", headers=()):
    start = {
        "type": "http.response.start",
        "status": status,
        "headers": [(b"content-length", b"%d" % len(body)), *headers],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body})


async def body_of(receive):
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message["body"]
        if not message["more_body"]:
            return body


async def echo(scope, receive, send):
    body = await body_of(receive)
    if body is not None:
        await answer(send, body=body)


class Serve:
    """A listener with an application of the test."""

    def __init__(self, app, limits=QUICK, **options):
        self.listener = Listener(app, limits, **options)

    async def __aenter__(self):
        await self.listener.open(Loopback())
        return self.listener

    async def __aexit__(self, *_):
        await self.listener.end()
        assert self.listener.connections == self.listener.requests == 0


# time


async def test_a_head_that_drips_is_answered_408_at_an_absolute_time():
    async with Serve(echo) as listener:
        loop = asyncio.get_running_loop()
        began = loop.time()
        drip = [piece for byte in GET * 4 for piece in (bytes([byte]), 0.02)]
        result = await talk(listener.port, *drip[:20], timeout_s=1)
        assert result.statuses == [408]
        assert result.answers[0].json["error"]["code"] == "request_timeout"
        assert loop.time() - began < 0.8
        assert listener.serving.refused == {"request_timeout": 1}


async def test_a_connection_that_never_sends_is_closed_without_a_word():
    async with Serve(echo) as listener:
        result = await talk(listener.port, timeout_s=2)
        assert (result.answers, result.ended) == ([], True)


async def test_a_body_that_drips_is_answered_408():
    async with Serve(echo) as listener:
        head = b"POST /p HTTP/1.1\r\nHost: gw\r\nContent-Length: 50\r\n\r\n"
        result = await talk(
            listener.port, head, *[piece for _ in range(15) for piece in (b"x", 0.02)], timeout_s=1
        )
        assert result.statuses == [408]


async def test_a_body_that_comes_fast_enough_may_take_longer_than_the_grace():
    async with Serve(echo) as listener:
        head = b"POST /p HTTP/1.1\r\nHost: gw\r\nConnection: close\r\nContent-Length: 30000\r\n\r\n"
        result = await talk(listener.port, head, *[piece for _ in range(30) for piece in (b"x" * 1000, 0.01)])
        assert result.statuses == [200]
        assert len(result.answers[0].body) == 30000


async def test_a_slow_application_is_not_the_callers_fault():
    async def slow(scope, receive, send):
        await asyncio.sleep(0.4)
        await echo(scope, receive, send)

    async with Serve(slow) as listener:
        head = b"POST /p HTTP/1.1\r\nHost: gw\r\nConnection: close\r\nContent-Length: 200000\r\n\r\n"
        result = await talk(listener.port, head, b"x" * 200_000)
        assert result.statuses == [200]


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not():
    async def slow(scope, receive, send):
        await asyncio.sleep(0.3)
        await answer(send)

    async with Serve(slow) as listener:
        result = await talk(listener.port, GET, timeout_s=2)
        assert (result.statuses, result.ended) == ([200], True)


async def test_a_kept_connection_serves_many_requests():
    async with Serve(echo, Limits()) as listener:
        result = await talk(listener.port, *[piece for _ in range(30) for piece in (POST, 0.002)], CLOSING)
        assert result.statuses == [200] * 31


async def test_a_partial_second_head_has_its_own_deadline():
    async with Serve(echo) as listener:
        result = await talk(listener.port, GET + b"GET /", timeout_s=2)
        assert result.statuses == [200, 408]


async def test_a_deadline_moved_later_fires_once_at_the_later_time():
    loop = asyncio.get_running_loop()
    fired = []
    deadline = Deadline(loop, lambda wait: fired.append((wait, loop.time())))
    began = loop.time()
    deadline.expect(Wait.HEAD, 0.02)
    deadline.expect(Wait.BODY, 0.06)
    await asyncio.sleep(0.03)
    assert fired == []
    await asyncio.sleep(0.06)
    assert [wait for wait, _ in fired] == [Wait.BODY]
    assert fired[0][1] - began >= 0.059
    deadline.expect(Wait.IDLE, 0.5)
    deadline.expect(Wait.HEAD, 0.01)
    await asyncio.sleep(0.03)
    assert [wait for wait, _ in fired] == [Wait.BODY, Wait.HEAD]


# answers


async def test_an_application_may_refuse_before_the_body_and_the_rest_is_never_read():
    """A47: 401 before the body, and nothing of the body is taken for a request."""

    async def early(scope, receive, send):
        await answer(send, 401, b"no")

    async with Serve(early) as listener:
        evil = GET * 200
        head = b"POST /p HTTP/1.1\r\nHost: gw\r\nContent-Length: %d\r\n\r\n" % (len(evil) + 10)
        result = await talk(listener.port, head, 0.02, evil)
        assert result.statuses == [401]
        assert result.answers[0].closes
        huge = await talk(
            listener.port, b"POST /p HTTP/1.1\r\nHost: gw\r\nContent-Length: 1073741824\r\n\r\n"
        )
        assert huge.statuses == [401]


async def test_a_chunked_body_without_end_is_refused_after_the_limit():
    """A47."""
    async with Serve(echo) as listener:
        head = b"POST /p HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        result = await talk(listener.port, head, *[chunk] * 64, timeout_s=3)
        assert result.statuses in (
            [413],
            [],
        )  # a caller that does not stop may lose the answer to its own writes
        assert result.ended
        assert listener.serving.refused == {"request_too_large": 1}


async def test_a_crash_is_a_500_in_the_api_shape_and_ends_the_connection(caplog):
    async def crash(scope, receive, send):
        raise RuntimeError("secret detail")

    async with Serve(crash, new_id=lambda: "req-1") as listener:
        result = await talk(listener.port, GET + GET)
        assert result.statuses == [500]
        assert result.answers[0].closes
        assert result.answers[0].header("x-request-id") == ["req-1"]
        assert result.answers[0].json["error"]["request_id"] == "req-1"
        assert b"secret" not in result.answers[0].body
    assert "the application failed" in caplog.text


async def test_a_crash_inside_an_answer_leaves_it_recognisably_incomplete(caplog):
    """A16."""

    async def crash(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
        raise RuntimeError

    async with Serve(crash) as listener:
        result = await talk(listener.port, GET)
        assert result.answers == []
        assert result.rest.endswith(b"4\r\npart\r\n")
        assert result.ended


@pytest.mark.parametrize(
    "message",
    [
        {"type": "http.response.start", "status": 200, "headers": [(b"x", b"a\r\nb: c")]},
        {"type": "http.response.start", "status": 200, "headers": [(b"x\n", b"a")]},
        {"type": "http.response.start", "status": 200, "headers": [(b"transfer-encoding", b"chunked")]},
        {"type": "http.response.body", "body": b""},
    ],
)
async def test_an_answer_that_would_break_the_framing_is_not_sent(message, caplog):
    async def wrong(scope, receive, send):
        await send(message)

    async with Serve(wrong) as listener:
        assert (await talk(listener.port, GET)).statuses == [500]


@pytest.mark.parametrize(
    ("length", "statuses"),
    [(5, []), (3, [500])],
    ids=["too short: incomplete", "too long: nothing was sent yet"],
)
async def test_an_answer_of_another_length_than_announced_ends_the_connection(length, statuses, caplog):
    async def wrong(scope, receive, send):
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % length)]}
        )
        await send({"type": "http.response.body", "body": b"four"})

    async with Serve(wrong) as listener:
        result = await talk(listener.port, GET + GET)
        assert result.statuses == statuses
        assert result.ended


async def test_an_application_that_says_nothing_is_a_500(caplog):
    async def silent(scope, receive, send):
        await receive()

    async with Serve(silent) as listener:
        assert (await talk(listener.port, GET)).statuses == [500]


async def test_a_204_has_no_framing():
    async def nothing(scope, receive, send):
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with Serve(nothing) as listener:
        result = await talk(listener.port, GET)
        assert (result.statuses, result.rest) == ([204], b"")
        assert (
            result.answers[0].header("transfer-encoding") == result.answers[0].header("content-length") == []
        )


async def test_the_date_is_on_every_answer():
    async with Serve(echo) as listener:
        result = await talk(listener.port, GET + b"noise\r\n\r\n")
        assert [len(one.header("date")) for one in result.answers] == [1, 1]


# departures


@pytest.mark.parametrize("reset", [False, True])
async def test_a_caller_that_leaves_is_told_of_at_once(reset):
    """A04, A19."""
    left = asyncio.Event()
    got = []

    async def wait(scope, receive, send):
        scope["extensions"][EXTENSION].watch(left.set)
        await body_of(receive)
        got.append(await receive())

    async with Serve(wait) as listener:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(POST)
        await until(lambda: listener.requests == 1)
        loop = asyncio.get_running_loop()
        began = loop.time()
        if reset:
            writer.transport.abort()
        else:
            writer.close()
        await asyncio.wait_for(left.wait(), 1)
        assert loop.time() - began < 0.2
        await until(lambda: listener.requests == 0)
        assert got == [{"type": "http.disconnect"}]


async def test_pipelined_requests_of_a_caller_that_left_are_never_started():
    """A10."""
    started = []
    left = asyncio.Event()

    async def wait(scope, receive, send):
        started.append(scope["path"])
        scope["extensions"][EXTENSION].watch(left.set)
        await left.wait()

    async with Serve(wait) as listener:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(GET * 5)
        await until(lambda: bool(started))
        writer.transport.abort()
        await asyncio.wait_for(left.wait(), 1)
        await asyncio.sleep(0.02)
        assert started == ["/g"]


async def test_a_large_pipelined_body_is_not_kept_in_memory_and_not_started():
    started = []

    async def slow(scope, receive, send):
        started.append(scope["path"])
        await asyncio.sleep(0.2)
        await echo(scope, receive, send)

    async with Serve(slow) as listener:
        large = b"POST /large HTTP/1.1\r\nHost: gw\r\nContent-Length: 900000\r\n\r\n" + b"x" * 900_000
        result = await talk(listener.port, GET + GET + large + GET)
        assert started == ["/g", "/g"]
        assert result.statuses == [200, 200]
        assert result.answers[1].closes
        assert result.ended


async def test_a_caller_that_stays_is_never_reported_as_gone():
    departures = []

    async def app(scope, receive, send):
        departures.append(scope["extensions"][EXTENSION])
        await echo(scope, receive, send)

    async with Serve(app) as listener:
        await talk(listener.port, POST + GET)
    assert [departure.has_left for departure in departures] == [False, False]


# slow readers


async def flood(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    piece = b"x" * 16384
    for _ in range(100_000):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        if scope["extensions"][EXTENSION].has_left:
            return


def slow_socket(port):
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect(("127.0.0.1", port))
    raw.sendall(GET)
    return raw


async def test_a_reader_that_takes_nothing_is_cut_and_its_work_ends():
    """A20."""
    async with Serve(flood) as listener:
        with slow_socket(listener.port):
            await until(lambda: listener.requests == 1)
            connection = next(iter(listener._state.connections))
            await until(lambda: connection.flow.write_paused)
            assert connection.transport.get_write_buffer_size() <= 2 * QUICK.high_water
            await until(lambda: listener.connections == 0)
            await until(lambda: listener.requests == 0)


async def test_a_reader_that_takes_a_little_now_and_then_is_not_cut():
    """A20."""
    limits = Limits(stall_s=0.3, high_water=16 * 1024, send_buffer=8 * 1024)
    async with Serve(flood, limits) as listener:
        with slow_socket(listener.port) as raw:
            raw.setblocking(False)
            loop = asyncio.get_running_loop()
            for _ in range(12):
                await asyncio.sleep(0.08)
                await loop.sock_recv(raw, 65536)
            assert listener.connections == 1


async def test_a_refusal_that_is_not_read_does_not_hold_the_connection():
    async with Serve(echo) as listener:
        with socket.create_connection(("127.0.0.1", listener.port)) as raw:
            raw.sendall(b"noise\r\n\r\n")
            await until(lambda: listener.connections == 1)
            await until(lambda: listener.connections == 0)


# drain


def plan(**options):
    ports = asyncio.get_running_loop().create_future()
    ready = lambda traffic, ops: ports.set_result((traffic, ops))  # noqa: E731  # one line of wiring
    base = {
        "listen": Loopback(),
        "ops_listen": Loopback(),
        "limits": Limits(),
        "drain_delay_s": 0.2,
        "drain_s": 2.0,
    }
    return Plan(**{**base, **options}, ready=ready), ports


async def stream(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(20):
        await asyncio.sleep(0.03)
        await send({"type": "http.response.body", "body": b"tick ", "more_body": True})
    await send({"type": "http.response.body", "body": b"end"})


async def choose(scope, receive, send):
    await (stream if scope["path"] == "/stream" else echo)(scope, receive, send)


STREAM = b"GET /stream HTTP/1.1\r\nHost: gw\r\n\r\n"


async def test_a_drain_serves_through_its_delay_then_refuses_and_finishes_streams():
    """A44."""
    stop = asyncio.Event()
    what, ports = plan()
    serving = asyncio.ensure_future(run(choose, echo, what, stop))
    port, ops = await ports
    streaming = asyncio.ensure_future(talk(port, STREAM))
    idle = asyncio.ensure_future(talk(port, GET))
    await asyncio.sleep(0.1)
    stop.set()
    await asyncio.sleep(0.05)
    served = await talk(port, GET)
    assert (served.statuses, served.answers[0].closes) == ([200], True)
    await asyncio.sleep(0.25)
    assert not serving.done()
    with pytest.raises(ConnectionRefusedError):
        await talk(port, GET)
    assert (await talk(ops, GET, timeout_s=0.2)).statuses == [200]
    await _ends_with_its_last_stream(serving, streaming, idle)


async def _ends_with_its_last_stream(serving, streaming, idle):
    loop = asyncio.get_running_loop()
    result = await streaming
    finished = loop.time()
    assert result.statuses == [200]
    assert result.answers[0].body == b"tick " * 20 + b"end"
    assert (await idle).ended
    await asyncio.wait_for(serving, 2)
    assert loop.time() - finished < 1.0


async def test_the_cap_ends_what_still_runs():
    """A44."""
    stop = asyncio.Event()
    left = []

    async def forever(scope, receive, send):
        scope["extensions"][EXTENSION].watch(lambda: left.append(True))
        while (await receive())["type"] != "http.disconnect":
            pass

    what, ports = plan(drain_delay_s=0.0, drain_s=0.2)
    serving = asyncio.ensure_future(run(forever, echo, what, stop))
    port, _ = await ports
    talking = asyncio.ensure_future(talk(port, GET))
    await asyncio.sleep(0.05)
    stop.set()
    await asyncio.wait_for(serving, 1.5)
    assert left == [True]
    assert (await talking).answers == []


async def test_a_second_signal_ends_at_once_and_work_that_ignores_it_is_cancelled():
    """A44."""
    stop, hurry = asyncio.Event(), asyncio.Event()
    cancelled = []

    async def deaf(scope, receive, send):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    what, ports = plan(drain_delay_s=30.0, drain_s=60.0)
    serving = asyncio.ensure_future(run(deaf, echo, what, stop, hurry))
    port, _ = await ports
    talking = asyncio.ensure_future(talk(port, GET))
    await asyncio.sleep(0.05)
    stop.set()
    await asyncio.sleep(0.05)
    hurry.set()
    await asyncio.wait_for(serving, 2)
    assert cancelled == [True]
    await talking


async def test_a_taken_port_is_one_clear_error_and_leaves_nothing_open():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        what, ports = plan(listen=Loopback(port=port))
        with pytest.raises(OSError, match="in use"):
            await run(echo, echo, what, asyncio.Event())
    assert not ports.done()


async def test_ipv6_is_listened_on_too():
    async with Serve(echo) as listener:
        assert "open" in repr(listener)
    listener = Listener(echo, QUICK)
    try:
        await listener.open(Loopback(host="::1"))
    except OSError:
        pytest.skip("no IPv6 here")
    reader, writer = await asyncio.open_connection("::1", listener.port)
    writer.write(GET)
    answers, _ = parse_answers(await reader.read(65536))
    assert answers[0].status == 200
    writer.close()
    await listener.end()


async def test_accepted_sockets_send_at_once_and_keep_little_in_the_kernel():
    async with Serve(echo, Limits()) as listener:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        await until(lambda: listener.connections == 1)
        raw = next(iter(listener._state.connections)).transport.get_extra_info("socket")
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 2 * 128 * 1024
        writer.close()


# heads, without a socket: the edge's own rules hold whatever the parser lets through

HOST = (b"host", b"gw")


def head(*fields, method=b"POST", version="1.1", target=b"/p", limits=None):
    return framing.read_head(method, version, target, list(fields), limits or Limits())


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ([HOST, (b"content-length", b"5"), (b"transfer-encoding", b"chunked")], framing.TWO_FRAMINGS),
        ([HOST, (b"content-length", b"5"), (b"content-length", b"5")], framing.BAD_LENGTH),
        ([HOST, (b"content-length", b"05")], framing.BAD_LENGTH),
        ([HOST, (b"content-length", b"+5")], framing.BAD_LENGTH),
        ([HOST, (b"content-length", b"5,5")], framing.BAD_LENGTH),
        ([HOST, (b"content-length", b"")], framing.BAD_LENGTH),
        ([HOST, (b"content-length", "\u0665".encode())], framing.BAD_LENGTH),
        ([HOST, (b"transfer-encoding", b"chunked"), (b"transfer-encoding", b"chunked")], framing.BAD_CODING),
        ([HOST, (b"transfer-encoding", b"gzip, chunked")], framing.BAD_CODING),
        ([HOST, (b"transfer-encoding", b"\x0bchunked")], framing.MALFORMED),
        ([HOST, (b"x_y", b"1")], framing.BAD_NAME),
        ([HOST, (b"x y", b"1")], framing.BAD_NAME),
        ([HOST, (b"x", b"a\rb")], framing.MALFORMED),
        ([HOST, (b"x", b"a\nb")], framing.MALFORMED),
        ([HOST, (b"x", b"a\0b")], framing.MALFORMED),
        ([], framing.BAD_HOST),
        ([HOST, HOST], framing.BAD_HOST),
        ([HOST, (b"upgrade", b"h2c")], framing.UPGRADE),
        ([HOST, (b"trailer", b"x")], framing.TRAILERS),
        ([HOST, (b"expect", b"x")], framing.EXPECTATION),
        ([HOST, (b"x", b"y" * 17_000)], framing.LARGE_HEAD),
        ([HOST] + [(b"x", b"y")] * 100, framing.LARGE_HEAD),
    ],
)
def test_a_head_is_refused_for_each_of_its_reasons(fields, refusal):
    assert head(*fields) is refusal


def test_a_head_tells_its_length_and_where_it_goes():
    assert head(HOST, (b"content-length", b"5")) == framing.Head(b"/p", 5, expects_continue=False)
    assert head(HOST, (b"transfer-encoding", b"chunked")) == framing.Head(b"/p", -1, expects_continue=False)
    assert head(HOST, (b"expect", b"100-Continue")) == framing.Head(b"/p", 0, expects_continue=True)
    assert head(HOST, target=b"http://GW/x?y") == framing.Head(b"/x?y", 0, expects_continue=False)
    assert head(HOST, (b"transfer-encoding", b"chunked"), version="1.0") is framing.BAD_CODING
    assert head(version="1.0") == framing.Head(b"/p", 0, expects_continue=False)
    assert head(HOST, version="2.0") is framing.VERSION
    assert head(HOST, method=b"CONNECT") is framing.METHOD
    assert head(HOST, method=b"TRACE") is framing.METHOD


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [b"host", b"content-length", b"transfer-encoding", b"expect", b"x", b"X_Y", b"upgrade"]
            ),
            st.one_of(
                st.sampled_from([b"gw", b"5", b"05", b"chunked", b"x, chunked", b""]), st.binary(max_size=8)
            ),
        ),
        max_size=6,
    ),
    st.sampled_from(["1.0", "1.1", "2.0"]),
    st.one_of(st.sampled_from([b"/", b"*", b"http://gw/", b"//evil"]), st.binary(max_size=12)),
)
def test_a_taken_head_always_has_exactly_one_framing_and_one_path(fields, version, target):
    taken = framing.read_head(b"POST", version, target, fields, Limits())
    if isinstance(taken, framing.Refusal):
        assert json.loads(taken.body("id"))["error"]["code"] == taken.code
        return
    names = [name for name, _ in fields]
    assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1
    assert names.count(b"host") == 1 or (version == "1.0" and not names.count(b"host"))
    assert taken.target.startswith(b"/")
    assert taken.length >= -1
