import asyncio
import time

import msgspec
import pytest

from dashboard.stream.hub import Hub
from dashboard.stream.relay import StreamPolicy, TooManyStreams, Viewer, admit, event, relay
from tests.fakes.scenes import frame

pytestmark = pytest.mark.anyio

QUICK = StreamPolicy(lifetime_s=30.0, recheck_s=30.0, idle_s=0.02, per_user=2)


def push(hub, at):
    """Hand the hub a frame as if it had read it."""
    body = msgspec.json.encode(frame(at=at))
    hub._take([(f"{int(at * 1000)}-0".encode(), {b"f": body})])
    return body


def viewer(user="d.reyes", may_go_on=None, page=lambda: b"<p>markup</p>"):
    async def always():
        return True

    return Viewer(user, may_go_on or always, ("overview",), page)


def started(hub, viewer, policy):
    """A stream as the view starts it."""
    return relay(hub, viewer, policy, admit(hub, viewer, policy))


def parsed(chunks):
    """(event, id, data) of everything that was sent."""
    found = []
    for block in b"".join(chunks).decode().split("\n\n"):
        lines = [line.partition(": ") for line in block.split("\n") if line]
        kind = next((v for k, _, v in lines if k == "event"), None)
        if kind:
            found.append(
                (
                    kind,
                    next((v for k, _, v in lines if k == "id"), ""),
                    "\n".join(v for k, _, v in lines if k == "data"),
                )
            )
    return found


async def take(stream, until, within_s=5.0):
    chunks = []
    async with asyncio.timeout(within_s):
        async for chunk in stream:
            chunks.append(chunk)
            if until(parsed(chunks)):
                break
    return parsed(chunks)


def kinds(found):
    return [kind for kind, _, _ in found]


@pytest.fixture
def hub():
    return Hub("unix:///nowhere")


async def test_a_frame_is_sent_as_it_is_with_its_id_and_the_page_after_it(hub):
    body = push(hub, time.time())
    found = await take(started(hub, viewer(), QUICK), lambda f: "page" in kinds(f))
    assert kinds(found) == ["frame", "page"]
    assert found[0][2].encode() == body
    assert found[0][1] == hub.recent.frame_id
    assert found[1][2] == "<p>markup</p>"


async def test_a_slow_reader_gets_the_newest_frame_and_no_queue(hub):
    push(hub, 1000.0)
    stream = started(hub, viewer(), QUICK)
    first = [await anext(stream), await anext(stream)]
    for at in range(1001, 1010):
        push(hub, float(at))
    newest = parsed([await anext(stream)])
    assert kinds(parsed(first)) == ["frame", "page"]
    assert msgspec.json.decode(newest[0][2])["at"] == 1009.0
    await stream.aclose()


async def test_a_page_is_made_once_for_all_who_see_the_same(hub):
    made = []
    push(hub, 1000.0)
    viewers = [viewer(f"u{i}", page=lambda: made.append(1) or b"x") for i in range(5)]
    for each in viewers:
        await take(started(hub, each, QUICK), lambda f: "page" in kinds(f))
    assert len(made) == 1


async def test_without_a_new_frame_it_says_how_old_the_last_is(hub):
    push(hub, time.time() - 7)
    found = await take(started(hub, viewer(), QUICK), lambda f: "idle" in kinds(f))
    said = msgspec.json.decode(next(data for kind, _, data in found if kind == "idle"))
    assert said["is_up"] is True
    assert 7.0 <= said["age_s"] < 9.0


async def test_the_last_known_frame_of_a_lost_valkey_is_never_sent_alone(hub):
    push(hub, time.time())
    hub._set_source(is_up=False, why="test")
    found = await take(started(hub, viewer(), QUICK), bool)
    assert kinds(found) == ["frame", "page", "idle"]


async def test_valkey_away_is_said_with_since_when(hub):
    hub._set_source(is_up=False, why="test")
    found = await take(started(hub, viewer(), QUICK), lambda f: "idle" in kinds(f))
    said = msgspec.json.decode(found[0][2])
    assert said == {"at": None, "age_s": None, "is_up": False, "since": hub.source.since}


async def test_it_ends_when_the_viewer_may_no_longer_see_it(hub):
    answers = iter([True, False])

    async def may_go_on():
        return next(answers)

    mine = viewer(may_go_on=may_go_on)
    policy = StreamPolicy(recheck_s=0.02, idle_s=0.01)
    found = await take(started(hub, mine, policy), lambda f: False)
    assert found[-1] == ("bye", "", "signed-out")
    assert hub.streams == {}


async def test_it_ends_after_its_lifetime(hub):
    policy = StreamPolicy(lifetime_s=0.05, idle_s=0.01)
    found = await take(started(hub, viewer(), policy), lambda f: False)
    assert found[-1] == ("bye", "", "lifetime")


async def test_it_ends_within_a_second_when_the_process_closes(hub):
    policy = StreamPolicy(idle_s=30.0, recheck_s=30.0)
    stream = started(hub, viewer(), policy)
    reading = asyncio.create_task(take(stream, lambda f: "bye" in kinds(f)))
    await asyncio.sleep(0.05)
    before = time.monotonic()
    hub.close()
    assert (await reading)[-1] == ("bye", "", "closing")
    assert time.monotonic() - before < 1.0


async def test_a_user_has_so_many_streams_and_gets_one_back_by_closing_one(hub):
    mine, other = viewer(), viewer("m.okafor")
    held = [started(hub, mine, QUICK) for _ in range(QUICK.per_user)]
    with pytest.raises(TooManyStreams):
        admit(hub, mine, QUICK)
    admit(hub, other, QUICK).leave()
    await anext(held[0])
    await held[0].aclose()
    admit(hub, mine, QUICK).leave()


async def test_a_stream_that_is_dropped_before_it_began_gives_its_place_back(hub):
    stream = started(hub, viewer(), QUICK)
    assert hub.streams == {"d.reyes": 1}
    del stream
    assert hub.streams == {}


def test_a_place_is_given_back_once(hub):
    first, second = admit(hub, viewer(), QUICK), admit(hub, viewer(), QUICK)
    first.leave()
    first.leave()
    assert hub.streams == {"d.reyes": 1}
    second.leave()


async def test_a_cancelled_reader_gives_its_place_back(hub):
    reading = asyncio.create_task(take(started(hub, viewer(), QUICK), lambda f: False))
    await asyncio.sleep(0.05)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await asyncio.sleep(0)
    assert hub.streams == {}


def test_line_feeds_in_data_cannot_end_an_event():
    assert event("page", b"<p>\r\n\nx</p>", "7") == b"event: page\nid: 7\ndata: <p>\ndata: \ndata: x</p>\n\n"
