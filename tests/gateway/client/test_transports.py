"""The transports over real sockets, against a scripted server: what it sees, and what the caller gets."""

import asyncio
import random
import time
from typing import Any

import httpx2
import pytest

from gateway.client import AsyncRetryTransport, RetryPolicy, RetryTransport, Surroundings
from tests.fakes.backend import CloseAtOnce, FakeBackend, Fin, Hold, Json, Rst, Sse, Status
from tests.fakes.caller import chat
from tests.fakes.waiting import until

MOST_RETRIES = 2


def refused(*values: str, status: int = 429, name: str = "Retry-After") -> Status:
    return Status(status, tuple((name, value) for value in values))


class Sleeps(list[float]):
    """Remembers instead of sleeping; both kinds of transport take it."""

    def sync(self, seconds: float) -> None:
        self.append(seconds)

    async def async_(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def sleeps() -> Sleeps:
    return Sleeps()


@pytest.fixture(params=["sync", "async"])
def call(request, sleeps):
    """Calls the server through a client of either kind and returns its answer, read."""
    around = Surroundings(dice=random.Random(5).random)  # noqa: S311  # repeatable

    def sync(url: str, policy: RetryPolicy, **how: Any) -> httpx2.Response:
        transport = RetryTransport(policy=policy, surroundings=around, sleep=sleeps.sync)
        with httpx2.Client(transport=transport, timeout=5) as client:
            return client.post(url, json=chat(), **how)

    async def either(backend: FakeBackend, policy: RetryPolicy | None = None, **how: Any) -> httpx2.Response:
        policy = policy or RetryPolicy(max_retries=MOST_RETRIES)
        url = f"{backend.url}/v1/chat/completions"
        if request.param == "sync":
            return await asyncio.to_thread(sync, url, policy, **how)
        transport = AsyncRetryTransport(policy=policy, surroundings=around, sleep=sleeps.async_)
        async with httpx2.AsyncClient(transport=transport, timeout=5) as client:
            return await client.post(url, json=chat(), **how)

    return either


def date_in(seconds: float) -> str:
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + seconds))


@pytest.mark.parametrize(
    ("script", "least", "most"),
    [
        (lambda: refused("2"), 2.0, 2.5),
        (lambda: refused("0"), 0.05, 0.5),
        (lambda: refused("-5"), 0.05, 0.5),
        (lambda: refused("120junk"), 0.05, 0.5),
        (lambda: refused("1.5"), 1.5, 2.0),
        (lambda: refused(""), 0.05, 0.5),
        (lambda: refused(date_in(2)), 0.9, 2.5),  # a date has whole seconds
        (lambda: refused(date_in(-60)), 0.05, 0.5),
        (lambda: Status(429), 0.05, 0.5),
        (lambda: refused("1", "3"), 3.0, 3.75),
        (lambda: refused("1500", name="retry-after-ms"), 1.5, 2.0),
    ],
    ids=[
        "seconds",
        "zero",
        "negative",
        "junk",
        "decimal",
        "empty",
        "date",
        "past date",
        "missing",
        "two lines",
        "milliseconds",
    ],
)
async def test_every_form_of_retry_after_then_200(call, sleeps, script, least, most):
    """A21: each form once, then the server answers."""
    async with FakeBackend(Json(always=True)) as backend:
        backend.then(script())
        answer = await call(backend)
        assert answer.status_code == 200
        assert answer.extensions["retries"] == 1
        assert len(backend.requests) == 2
        assert backend.requests[0].body == backend.requests[1].body
        assert backend.requests[1].header("x-stainless-retry-count") == ["1"]
    assert len(sleeps) == 1
    assert least <= sleeps[0] <= most


async def test_a_huge_value_ends_the_call_at_once_with_the_value(call, sleeps):
    """A21: 999999."""
    async with FakeBackend(refused("999999")) as backend:
        answer = await call(backend)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "999999")
        assert answer.json()["error"]["code"] == 429  # the body is there to be read
        assert len(backend.requests) == 1
    assert sleeps == []


async def test_never_more_than_max_retries(call, sleeps):
    """A21: the bound."""
    async with FakeBackend(Status(503)) as backend:
        answer = await call(backend)
        assert (answer.status_code, answer.extensions["retries"]) == (503, MOST_RETRIES)
        assert len(backend.requests) == 1 + MOST_RETRIES
        counts = [request.header("x-stainless-retry-count") for request in backend.requests]
        assert counts == [[], ["1"], ["2"]]
    assert len(sleeps) == MOST_RETRIES


@pytest.mark.parametrize("broken", [CloseAtOnce("fin"), CloseAtOnce("rst")])
async def test_a_connection_that_breaks_before_the_answer_is_tried_again(call, sleeps, broken):
    async with FakeBackend(Json(always=True)) as backend:
        backend.then(broken)
        assert (await call(backend)).status_code == 200
        assert len(backend.requests) == 2


async def test_nobody_listening_ends_with_the_error_after_the_retries(call, sleeps):
    backend = FakeBackend()
    async with backend:
        pass
    with pytest.raises(httpx2.ConnectError):
        await call(backend)
    assert len(sleeps) == MOST_RETRIES


@pytest.mark.parametrize("death", [Fin(2), Rst(2)])
async def test_a_stream_that_dies_after_its_first_byte_is_never_sent_again(call, sleeps, death):
    async with FakeBackend(death) as backend:
        with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
            await call(backend)
        assert len(backend.requests) == 1
    assert sleeps == []


async def test_an_answer_that_comes_too_late_is_not_asked_for_again(call, sleeps):
    async with FakeBackend(Hold()) as backend:
        with pytest.raises(httpx2.ReadTimeout):
            await call(backend, RetryPolicy(deadline_s=0.2))
        assert len(backend.requests) == 1
        assert 0 < int(backend.requests[0].header("x-request-timeout-ms")[0]) <= 200
        await backend.until(
            lambda: backend.in_flight == 0
        )  # the connection is closed: nobody waits for the work
    assert sleeps == []


async def test_what_the_server_says_is_pointless_is_not_tried_again(call, sleeps):
    async with FakeBackend(Status(429, (("Retry-After", "1"), ("x-should-retry", "false")))) as backend:
        assert (await call(backend)).status_code == 429
        assert len(backend.requests) == 1


async def test_a_stream_is_handed_over_as_it_comes():
    transport = AsyncRetryTransport(sleep=asyncio.sleep, policy=RetryPolicy(base_s=0.05, min_wait_s=0.01))
    async with FakeBackend(Sse(3)) as backend, httpx2.AsyncClient(transport=transport) as client:
        backend.then(Status(503))
        async with client.stream("POST", f"{backend.url}/", json=chat(stream=True)) as answer:
            assert answer.status_code == 200
            text = b"".join([part async for part in answer.aiter_raw()])
        assert text.endswith(b"data: [DONE]\n\n")
        assert len(backend.requests) == 2


async def test_a_caller_that_leaves_while_it_waits_sends_nothing_more():
    transport = AsyncRetryTransport()
    async with FakeBackend(refused("30")) as backend, httpx2.AsyncClient(transport=transport) as client:
        asking = asyncio.create_task(client.post(f"{backend.url}/", json=chat()))
        await backend.until(lambda: len(backend.requests) == 1)
        await backend.until(lambda: backend.open_connections == 0)  # nothing is held while it waits
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert len(backend.requests) == 1


async def test_with_the_real_clock_it_really_waits():
    transport = AsyncRetryTransport(policy=RetryPolicy(base_s=0.01, min_wait_s=0.01))
    async with FakeBackend(Json(always=True)) as backend, httpx2.AsyncClient(transport=transport) as client:
        backend.then(refused("120", name="retry-after-ms"))
        await client.post(f"{backend.url}/", json=chat())
        first, second = backend.requests
        assert second.at - first.at >= 0.12


async def test_a_client_that_closes_closes_its_connections():
    transport = AsyncRetryTransport()
    async with FakeBackend(Json(always=True)) as backend:
        async with httpx2.AsyncClient(transport=transport) as client:
            await client.post(f"{backend.url}/", json=chat())
            assert backend.open_connections == 1
        await until(lambda: backend.open_connections == 0)
