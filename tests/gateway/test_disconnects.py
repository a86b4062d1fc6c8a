"""Whoever leaves, whenever: nothing stays held. Seats, quota, tokens, tasks and sockets are counted afterwards."""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from gateway.app import App
from gateway.core.events import QuotaGranted
from gateway.departure import EXTENSION, Departure
from tests.fakes.backend import FakeBackend, Hold, Json, Sse, Status
from tests.fakes.caller import chat
from tests.fakes.gateway import RunningGateway, a_pool, a_world, key_of, running, some_tiers
from tests.fakes.waiting import until

pytestmark = pytest.mark.loop

WITH_QUOTA = {"requests_per_min": 1000}


def quota_world(*backends: FakeBackend, **changes: Any) -> Any:
    """The baseline, with a quota for everybody: what is reserved has to be given back too."""
    world = a_world(*backends, **changes)
    grants = tuple(msgspec.structs.replace(g, **WITH_QUOTA) for g in world.grants)
    return msgspec.structs.replace(world, grants=grants)


def tasks() -> int:
    return len(asyncio.all_tasks())


async def assert_nothing_is_left(gateway: RunningGateway, backend: FakeBackend, tasks_before: int) -> None:
    await gateway.rest()
    await backend.until(lambda: backend.in_flight == 0)
    await until(lambda: not gateway.listener.requests)
    await until(lambda: gateway.upstream.open_connections <= backend.open_connections)
    await until(lambda: tasks() <= tasks_before + backend.open_connections)
    for ticket in gateway.quotas.held:
        raise AssertionError(ticket)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_caller_that_leaves_before_the_headers_frees_its_seat(stream: bool, how: str):
    """A04 Client leaves before the response headers. A19 Non-streaming client leaves."""
    async with FakeBackend(Hold()) as backend, running(quota_world(backend, pool=a_pool(limit=1))) as gateway:
        before = tasks()
        for turn in range(1, 21):
            conversation = await gateway.caller().open(chat(stream=stream))
            await backend.until(lambda turn=turn: len(backend.requests) == turn)
            left_at = time.monotonic()
            await getattr(conversation, how)()
            await backend.until(lambda: backend.in_flight == 0)
            closed_at = backend.requests[-1].peer_closed_at
            assert closed_at is not None
            assert closed_at - left_at < 0.5
        await assert_nothing_is_left(gateway, backend, before)
        assert backend.max_in_flight == 1
        assert [e.outcome for e in gateway.told] == ["abandoned"] * 20
        assert {e.status for e in gateway.told} == {499}
        backend.default = Json()
        assert (await gateway.caller().send()).status == 200


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_stream_that_is_left_frees_its_seat(how: str):
    """A01 Mid-stream abort keeps the slot."""
    endless = Sse(200, gap_s=0.02)
    async with (
        FakeBackend(endless) as backend,
        running(quota_world(backend, pool=a_pool(limit=1))) as gateway,
    ):
        before = tasks()
        for _ in range(20):
            conversation = await gateway.caller().open(chat(stream=True))
            await conversation.head()
            for _ in range(4):  # the role, then three tokens
                await conversation.piece()
            await getattr(conversation, how)()
            await backend.until(lambda: backend.in_flight == 0, 1.0)
        await assert_nothing_is_left(gateway, backend, before)
        assert backend.max_in_flight == 1
        assert {e.outcome for e in gateway.told} == {"abandoned"}
        assert all(2 <= e.output_tokens <= 10 for e in gateway.told)
        backend.default = Sse(2)
        assert (await gateway.caller().send(chat(stream=True))).text == "t0 t1 "


async def test_a_waiter_who_left_is_never_dispatched():
    """A10 A waiter who left is never dispatched."""
    async with FakeBackend() as backend:
        world = quota_world(backend, pool=a_pool(limit=1))
        world = msgspec.structs.replace(world, tiers=some_tiers(max_size=10, timeout_s=30.0))
        async with running(world) as gateway:
            backend.then(Hold())
            first = await gateway.caller().open(chat(stream=True))
            await backend.until(lambda: backend.in_flight == 1)
            waiters = [await gateway.caller().open(chat(user=f"gone{n}")) for n in range(5)]
            await until(lambda: gateway.keeper.view().queues[0].waiting == 5)
            for waiter in waiters:
                await waiter.close()
            await until(lambda: gateway.keeper.view().queues[0].waiting == 0, 1.0)
            last = await gateway.caller().open(chat(user="stays"))
            await until(lambda: gateway.keeper.view().queues[0].waiting == 1)
            backend.release()
            assert (await (await last.head()).rest()).status == 200
            assert (await (await first.head()).rest()).status == 200
            assert [r.json.get("user") for r in backend.requests] == [None, "stays"]
            await gateway.rest()


async def test_a_caller_that_leaves_while_its_quota_is_asked_gets_it_back():
    async with FakeBackend() as backend, running(quota_world(backend)) as gateway:
        asked: list[str] = []
        gateway.quotas.answer = lambda ticket, *_: asked.append(ticket)
        leaving = await gateway.caller().open()
        await until(lambda: len(asked) == 1)
        await leaving.close()
        await until(lambda: len(gateway.told) == 1)
        gateway.quotas.held[asked[0]] = 7  # the answer comes late: it was granted meanwhile
        gateway.keeper.feed(QuotaGranted(asked[0]))
        assert gateway.quotas.refunded == asked
        assert not backend.requests
        await gateway.rest()


class Stepper:
    """Drives an application by hand, so that a test can cancel it, or leave, at each of its awaits."""

    def __init__(self, app: App, body: bytes, tenant: str = "t0") -> None:
        self.app = app
        self.body = body
        self.departure = Departure()
        self.sent: list[dict[str, Any]] = []
        self.gave_body = False
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/chat/completions",
            "headers": [(b"authorization", b"Bearer " + key_of(tenant).key.encode())],
            "extensions": {EXTENSION: self.departure},
        }

    async def receive(self) -> dict[str, Any]:
        await asyncio.sleep(0)
        if self.gave_body:
            await asyncio.get_running_loop().create_future()
        self.gave_body = True
        return {"type": "http.request", "body": self.body, "more_body": False}

    async def send(self, message: dict[str, Any]) -> None:
        await asyncio.sleep(0)  # every write may wait
        self.sent.append(message)

    def run(self) -> Awaitable[None]:
        return self.app(self.scope, self.receive, self.send)


class Counting:
    """Wraps a coroutine: acts before its n-th step, and counts the steps."""

    def __init__(self, inner: Any, at: int, act: Callable[[], None]) -> None:
        self.inner = inner.__await__()
        self.at = at
        self.act = act
        self.steps = 0

    def __await__(self) -> Any:
        value: Any = None
        while True:
            if self.steps == self.at:
                self.act()
            self.steps += 1
            try:
                future = self.inner.send(value)
            except StopIteration:
                return None
            try:
                value = yield future
            except BaseException as thrown:  # noqa: BLE001  # a cancellation goes in where the application waits
                try:
                    future = self.inner.throw(thrown)
                except StopIteration:
                    return None
                value = yield future


async def play(app: App, body: bytes, at: int, how: str) -> int:
    """Run one request, cancelled (or left) at its n-th step; returns how many steps it took."""
    stepper = Stepper(app, body)
    task: asyncio.Task[None] | None = None

    def act() -> None:
        if how == "cancel":
            assert task is not None
            task.cancel()
        else:
            stepper.departure.left()

    counting = Counting(stepper.run(), at, act)

    async def drive() -> None:
        await counting

    task = asyncio.get_running_loop().create_task(drive())
    await asyncio.wait((task,), timeout=5)
    assert task.done()
    if not task.cancelled():
        task.result()
    return counting.steps


SCRIPTS = {
    "stream": (chat(stream=True), lambda: Sse(6, gap_s=0.001)),
    "whole": (chat(), lambda: Sse(6, gap_s=0.001)),
    "json": (chat(best_of=2), lambda: Json(delay_s=0.002)),
    "busy": (chat(stream=True), lambda: Status(503, (("Retry-After", "0"),))),
    "broken": (chat(), lambda: Status(500)),
}


@pytest.mark.parametrize("how", ["cancel", "leave"])
@pytest.mark.parametrize("script", list(SCRIPTS))
async def test_a_cancel_at_any_await_leaves_nothing_behind(script: str, how: str):
    body, make = SCRIPTS[script]
    raw = json.dumps(body).encode()
    async with FakeBackend(make()) as backend, running(quota_world(backend)) as gateway:
        before = tasks()
        at = 0
        while await play(gateway.app, raw, at, how) > at:  # until a run ends before its turn comes
            await assert_nothing_is_left(gateway, backend, before)
            at += 1
        assert at >= 4
        at += 1
        assert len(gateway.told) == at
        assert all(e.outcome or e.status == 499 or not e.pool for e in gateway.told)


@pytest.mark.parametrize("stream", [True, False])
async def test_two_hundred_departures_spread_over_a_requests_life_leave_nothing_behind(stream: bool):
    dice = random.Random(11)  # noqa: S311  # repeatable
    async with FakeBackend(Sse(10, gap_s=0.004)) as backend, running(quota_world(backend)) as gateway:
        before = tasks()

        async def one(number: int) -> None:
            conversation = await gateway.caller(f"t{number % 3}").open(chat(stream=stream))
            await asyncio.sleep(0.06 * number / 200)
            await (conversation.reset() if dice.random() < 0.5 else conversation.close())

        for begin in range(0, 200, 5):
            await asyncio.gather(*(one(n) for n in range(begin, begin + 5)))
        await assert_nothing_is_left(gateway, backend, before)
        assert backend.max_in_flight <= 3  # it may see the next request a moment before the last one's close
        assert not gateway.quotas.held
        answers = [await gateway.caller().send(chat(stream=stream)) for _ in range(2)]
        assert [a.status for a in answers] == [200, 200]


async def test_the_backend_sees_the_close_within_milliseconds():
    """The p99 bound of a quiet machine is 20 ms; three times that is asserted, for the machine may be busy."""
    delays = []
    async with FakeBackend(Sse(1000, gap_s=0.005)) as backend, running(a_world(backend)) as gateway:
        for _ in range(50):
            conversation = await gateway.caller().open(chat(stream=True))
            await conversation.head()
            await conversation.piece()
            left_at = time.monotonic()
            await conversation.close()
            await backend.until(lambda: backend.in_flight == 0)
            closed_at = backend.requests[-1].peer_closed_at
            assert closed_at is not None
            delays.append(closed_at - left_at)
    assert sorted(delays)[int(len(delays) * 0.99)] < 0.06, sorted(delays)[-5:]
