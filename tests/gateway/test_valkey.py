"""The connection to Valkey: every wait is bounded, every end is told, cancelling is always possible."""

import asyncio
import contextlib
import time
from collections.abc import Iterator

import pytest

from gateway.places import Place, read_place
from gateway.valkey import TIMEOUT_S, Link, ReplyError, ValkeyGone, open_connection
from tests.fakes.valkey import RealValkey, running_valkey, servers
from tests.fakes.waiting import until


@pytest.fixture(params=sorted(servers()))
def valkey(request) -> Iterator[RealValkey]:
    with running_valkey(servers()[request.param]) as server:
        yield server


@contextlib.asynccontextmanager
async def connected(server: RealValkey):
    connection = await open_connection(read_place(server.url + "?db=1"), name="test")
    try:
        yield connection
    finally:
        connection.close()


async def test_commands_and_batches_are_answered_in_order(valkey):
    async with connected(valkey) as connection:
        assert await connection.call("SET", "k", b"\x00\xff") == b"OK"
        assert await connection.batch([("GET", "k"), ("GET", "absent"), ("INCR", "n")]) == [
            b"\x00\xff",
            None,
            1,
        ]
        assert await connection.call("CLIENT", "GETNAME") == b"test"
        many = await asyncio.gather(*(connection.call("ECHO", str(n)) for n in range(100)))
        assert many == [str(n).encode() for n in range(100)]


async def test_a_refused_command_stands_in_its_place(valkey):
    async with connected(valkey) as connection:
        with pytest.raises(ReplyError, match="unknown command"):
            await connection.call("NONSENSE")
        first, second = await connection.batch([("NONSENSE",), ("PING",)])
        assert isinstance(first, ReplyError)
        assert second == b"PONG"


async def test_messages_reach_the_subscriber_between_answers(valkey):
    async with connected(valkey) as connection:
        heard: list[bytes] = []
        connection.on_message = heard.append
        await connection.call("SUBSCRIBE", "news")
        with valkey.client() as client:
            client.publish("news", "one")
            client.publish("news", "two")
        await until(lambda: heard == [b"one", b"two"])
        assert await connection.call("PING") == [b"pong", b""]
        connection.on_message = None
        with valkey.client() as client:
            client.publish("news", "to nobody")
        await connection.call("PING")


async def test_a_frozen_server_costs_no_more_than_the_time_out(valkey):
    async with connected(valkey) as connection:
        valkey.freeze()
        began = time.monotonic()
        with pytest.raises(ValkeyGone, match="no answer in time"):
            await connection.call("PING")
        assert time.monotonic() - began < TIMEOUT_S + 0.3
        with pytest.raises(ValkeyGone, match="not connected"):
            await connection.call("PING")
        valkey.thaw()


async def test_a_connection_that_is_cut_fails_what_waits_at_once(valkey):
    async with connected(valkey) as connection:
        lost = asyncio.Event()
        connection.on_lost = lost.set
        waiting = asyncio.create_task(connection.call("BLPOP", "nothing", 0))
        await asyncio.sleep(0.02)
        valkey.kill()
        with pytest.raises(ValkeyGone):
            await waiting
        await asyncio.wait_for(lost.wait(), 1)


async def test_cancelling_a_call_is_never_swallowed_and_leaves_the_connection_in_order(valkey):
    async with connected(valkey) as connection:
        for n in range(100):
            task = asyncio.create_task(connection.call("ECHO", "cancelled"))
            await asyncio.sleep(0.0002 * (n % 5))
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert await connection.call("ECHO", str(n)) == str(n).encode()


async def test_nobody_there_is_told_at_once():
    with pytest.raises(ValkeyGone, match="FileNotFoundError"):
        await open_connection(Place(path="/not/there.sock"), name="test")
    with pytest.raises(ValkeyGone):
        await open_connection(Place(host="127.0.0.1", port=1), name="test")


async def test_a_wrong_password_and_a_wrong_database_are_refused(valkey):
    with pytest.raises(ValkeyGone, match="refused"):
        await open_connection(read_place(valkey.url + "?db=99"), name="test")
    with valkey.client() as client:
        client.config_set("requirepass", "word")
    with pytest.raises(ValkeyGone, match="refused"):
        await open_connection(read_place(valkey.url), name="test")
    place = Place(path=str(valkey.socket), password="word")
    connection = await open_connection(place, name="test")
    assert await connection.call("PING") == b"PONG"
    connection.close()


async def test_something_that_is_not_valkey_is_noticed(tmp_path):
    async def nonsense(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(nonsense, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ValkeyGone):
            await open_connection(Place(host="127.0.0.1", port=port), name="test")


# -- links -------------------------------------------------------------------------------------------------------------


async def test_a_link_reconnects_after_every_end_and_tells_each_change_once(valkey, caplog):
    link = Link(read_place(valkey.url), name="job", dice=lambda: 0.0)
    told: list[bool] = []
    link.on_change.append(told.append)

    async def session(connection) -> None:
        await connection.call("PING")
        link.came_up()
        while True:
            await connection.call("PING")
            await asyncio.sleep(0.01)

    task = asyncio.create_task(link.run(session))
    await until(lambda: link.is_up)
    valkey.kill()
    await until(lambda: not link.is_up)
    await asyncio.sleep(0.2)  # several attempts fail meanwhile
    valkey.start()
    await until(lambda: link.is_up)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == [True, False, True]
    assert link.faults > 1
    assert caplog.text.count("Valkey does not answer") == 1


def test_waits_double_with_jitter_up_to_a_second():
    link = Link(Place(), name="job", dice=lambda: 1.0)
    assert [link._next_wait_s() for _ in range(7)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    link.came_up()
    assert link._next_wait_s() == 0.05
    eager = Link(Place(), name="job", dice=lambda: 0.0)
    assert eager._next_wait_s() == 0.0125


async def test_the_first_failure_is_told_too():
    link = Link(Place(path="/not/there.sock"), name="job", dice=lambda: 0.0)
    told: list[bool] = []
    link.on_change.append(told.append)

    async def session(_connection) -> None:
        raise AssertionError("never connected")

    task = asyncio.create_task(link.run(session))
    await until(lambda: link.faults > 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == [False]
