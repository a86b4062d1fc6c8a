import asyncio
import time

import msgspec
import pytest

from dashboard.stream.hub import Hub
from gateway.contract import keys
from tests.fakes.frames import backfill, frame_at, publish
from tests.fakes.scenes import frame
from tests.fakes.valkey import running_valkey

pytestmark = [pytest.mark.loop, pytest.mark.anyio]


@pytest.fixture(scope="module")
def server():
    with running_valkey() as started:
        yield started


@pytest.fixture
def client(server):
    with server.client() as made:
        made.flushall()
        yield made


@pytest.fixture
async def hub(server, client):
    made = Hub(server.url)
    yield made
    await stop(made)


async def stop(hub):
    hub.close()
    if hub._task is not None:
        await asyncio.wait_for(hub._task, 2)


async def until(condition, within_s=5.0):
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "did not happen"
        await asyncio.sleep(0.01)


async def test_the_past_is_read_first_and_the_newest_frame_follows_without_a_seam(hub, client):
    now = time.time()
    backfill(client, 300, 500.0, now)
    await hub.ready()
    assert len(hub.recent.samples) == 300
    seen = hub.version
    publish(client, frame_at(500.0, now))
    assert await hub.changed(seen, 2.0) == seen + 1
    gaps = {round(b.at - a.at, 3) for a, b in zip(hub.recent.samples, hub.recent.samples[1:], strict=False)}
    assert gaps == {1.0}


async def test_the_bytes_are_those_that_were_written(hub, client):
    told = frame_at(10.0, time.time())
    entry = publish(client, told)
    await hub.ready()
    assert hub.recent.body == msgspec.json.encode(told)
    assert hub.recent.frame_id == entry.decode()


async def test_only_fifteen_minutes_of_an_hour_are_read(hub, client):
    backfill(client, 1200, 500.0, time.time())
    await hub.ready()
    assert 895 <= len(hub.recent.samples) <= 901


async def test_a_body_that_is_no_frame_is_counted_and_left_out(hub, client):
    client.xadd(keys.FRAMES, {"f": b"{}"})
    client.xadd(keys.FRAMES, {"g": b"nothing"})
    client.xadd(keys.FRAMES, {"f": b'{"x":' + b"[" * 100_000})
    publish(client, frame())
    await hub.ready()
    assert (hub.refused_frames, len(hub.recent.samples)) == (3, 1)


async def test_an_added_field_of_a_newer_loop_is_ignored(hub, client):
    body = msgspec.json.decode(msgspec.json.encode(frame()))
    client.xadd(keys.FRAMES, {"f": msgspec.json.encode(body | {"moon": "full"})})
    await hub.ready()
    assert hub.refused_frames == 0
    assert hub.recent is not None


async def test_a_cancelled_reader_ends_at_once_wherever_it_is(server, client):
    for pause_s in (0.0, 0.001, 0.01, 0.05):
        hub = Hub(server.url)
        await hub.ready()
        await asyncio.sleep(pause_s)
        hub._task.cancel()
        await asyncio.wait([hub._task], timeout=1.0)
        assert hub._task.done()


async def test_without_any_frame_it_is_ready_and_empty(hub):
    await hub.ready()
    assert hub.recent is None
    assert hub.source.is_up


async def test_what_was_made_of_a_frame_is_made_once_until_the_next(hub, client):
    publish(client, frame_at(1.0, time.time()))
    await hub.ready()
    made = []
    for _ in range(3):
        hub.part(("x",), lambda: made.append(1) or b"markup")
    assert len(made) == 1
    seen = hub.version
    publish(client, frame_at(2.0, time.time() + 1))
    await hub.changed(seen, 2.0)
    hub.part(("x",), lambda: made.append(1) or b"markup")
    assert len(made) == 2


async def test_emptied_while_it_is_read_frames_go_on(hub, client):
    now = time.time()
    publish(client, frame_at(1.0, now))
    await hub.ready()
    client.flushall()
    publish(client, frame_at(2.0, now + 1))
    await until(lambda: hub.recent.frame.at == now + 1)


async def test_closing_wakes_whoever_waits_at_once(hub, client):
    await hub.ready()
    waiting = asyncio.create_task(hub.changed(hub.version, 30.0))
    await asyncio.sleep(0.05)
    before = time.monotonic()
    hub.close()
    await waiting
    assert time.monotonic() - before < 0.5


async def test_a_frozen_valkey_is_down_within_two_seconds_and_comes_back_by_itself(server, hub, client):
    now = time.time()
    publish(client, frame_at(1.0, now))
    await hub.ready()
    server.freeze()
    try:
        before = time.monotonic()
        await until(lambda: not hub.source.is_up)
        assert time.monotonic() - before < 2.0
        assert hub.recent.frame.at == now, "what is known stays known"
        await asyncio.wait_for(hub.ready(), 1.5)
    finally:
        server.thaw()
    await until(lambda: hub.source.is_up)
    publish(client, frame_at(2.0, now + 1))
    await until(lambda: hub.recent.frame.at == now + 1)


async def test_frames_written_while_it_was_away_are_not_lost(server, hub, client):
    now = time.time() - 10
    publish(client, frame_at(1.0, now))
    await hub.ready()
    client.client_kill_filter(_type="normal", skipme=True)
    for k in range(1, 6):
        publish(client, frame_at(1.0 + k, now + k))
    await until(lambda: hub.recent.frame.at == now + 5)
    assert [round(s.at - now) for s in hub.recent.samples] == [0, 1, 2, 3, 4, 5]


async def test_an_empty_server_in_place_of_the_old_one_is_followed_from_its_start(tmp_path):
    with running_valkey() as first:
        hub = Hub(first.url)
        with first.client() as client:
            client.xadd(
                keys.FRAMES, {"f": msgspec.json.encode(frame_at(1.0, time.time() - 5))}, id="9999999999999-0"
            )
        await hub.ready()
        first.kill()
        await until(lambda: not hub.source.is_up)
        first.start()
        later = time.time()
        with first.client() as client:
            publish(client, frame_at(2.0, later))
        await until(lambda: hub.recent.frame.at == later)
        await stop(hub)


async def test_nobody_there_is_known_within_the_time_that_a_page_waits(tmp_path):
    hub = Hub(f"unix://{tmp_path}/nobody.sock")
    await asyncio.wait_for(hub.ready(), 1.5)
    await until(lambda: not hub.source.is_up, 2.0)
    assert hub.recent is None
    await stop(hub)
