"""Ready `openai` clients: what they retry, and that the package stands alone."""

import asyncio
import subprocess
import sys

import openai
import pytest

from gateway.client import (
    AsyncRetryTransport,
    RetryBudget,
    RetryPolicy,
    RetryTransport,
    async_openai_client,
    openai_client,
)
from tests.fakes.backend import FakeBackend, Json, Sse, Status
from tests.fakes.caller import chat
from tests.fakes.gateway import a_world, key_of, running

QUICK = RetryPolicy(base_s=0.02, min_wait_s=0.01, max_named_wait_s=5)


async def test_the_async_client_retries_below_the_sdk_and_the_sdk_does_not():
    async with (
        FakeBackend(Json(always=True)) as backend,
        async_openai_client(backend.url, "k", policy=QUICK) as client,
    ):
        backend.then(Status(429), Status(503))
        answer = await client.chat.completions.create(**chat())
        assert answer.choices[0].message.content
        assert [r.header("x-stainless-retry-count") for r in backend.requests] == [["0"], ["1"], ["2"]]
        backend.then(*[Status(503)] * 9)
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(**chat())
        assert len(backend.requests) - 3 <= 1 + QUICK.max_retries


async def test_the_sync_client_does_the_same():
    async with FakeBackend(Sse(3)) as backend:
        backend.then(Status(429))

        def ask() -> str:
            with openai_client(backend.url, "k", policy=QUICK) as client:
                stream = client.chat.completions.create(**chat(stream=True))
                return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)

        assert await asyncio.to_thread(ask) == "t0 t1 t2 "
        assert len(backend.requests) == 2


async def test_a_refusal_without_retry_reaches_the_caller_with_its_value():
    async with FakeBackend(Status(429, (("Retry-After", "999999"),))) as backend:
        async with async_openai_client(backend.url, "k") as client:
            with pytest.raises(openai.RateLimitError) as refusal:
                await client.chat.completions.create(**chat())
        assert refusal.value.response.headers["retry-after"] == "999999"


async def test_a_deadline_per_call_reaches_the_gateway():
    async with FakeBackend(Json(always=True)) as backend, async_openai_client(backend.url, "k") as client:
        await client.chat.completions.create(**chat(), extra_headers={"x-request-timeout-ms": "4000"})
        assert 3000 < int(backend.requests[0].header("x-request-timeout-ms")[0]) <= 4000


@pytest.mark.parametrize("make", [openai_client, async_openai_client])
def test_the_sdks_own_retries_are_off(make):
    assert make("http://gateway.test/v1", "k").max_retries == 0


@pytest.mark.parametrize("make", [openai_client, async_openai_client])
def test_options_that_would_undo_it_are_refused(make):
    with pytest.raises(TypeError, match="max_retries"):
        make("http://gateway.test/v1", "k", max_retries=5)
    with pytest.raises(TypeError, match="http_client"):
        make("http://gateway.test/v1", "k", http_client=None)
    transport = RetryTransport() if make is openai_client else AsyncRetryTransport()
    with pytest.raises(TypeError, match="policy"):
        make("http://gateway.test/v1", "k", policy=RetryPolicy(), transport=transport)


def test_a_missing_sdk_is_said_clearly(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ImportError, match="pip install openai"):
        openai_client("http://gateway.test/v1", "k")


def test_the_package_loads_nothing_else_of_the_gateway():
    program = (
        "import gateway.client, sys;"
        "print(sorted(m for m in sys.modules if m.startswith('gateway.') and not m.startswith('gateway.client')),"
        "sorted({m.split('.')[0] for m in sys.modules} & {'openai', 'django', 'msgspec', 'redis', 'uvicorn'}))"
    )
    run = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "[] []\n"


# -- through the real gateway ------------------------------------------------------------------------------------------


def product(answers: list[BaseException]) -> None:
    assert all(isinstance(answer, openai.APIStatusError) for answer in answers), answers


async def test_retries_do_not_multiply_one_after_another():
    """A23: 20 calls, the backend always 503; it names a short wait, so that the gateway may ask again soon."""
    busy = Status(503, (("Retry-After", "0.02"),))
    async with FakeBackend(busy) as backend, running(a_world(backend)) as gateway:
        url = f"http://127.0.0.1:{gateway.port}/v1"
        async with async_openai_client(url, key_of("t0").key, policy=QUICK) as client:
            calls = [client.chat.completions.create(**chat()) for _ in range(20)]
            product([await _refused(call) for call in calls])
        await gateway.rest()
        assert 20 < len(gateway.told) <= 20 + 4  # a fifth of the calls is retried
        assert len(backend.requests) <= 2 * len(
            gateway.told
        )  # pushed back, a ticket returns to its queue once


async def test_retries_do_not_multiply_in_parallel():
    """A23: 100 calls at once see at most 1.2 attempts per call at the backend."""
    async with FakeBackend(Status(503)) as backend, running(a_world(backend)) as gateway:
        url = f"http://127.0.0.1:{gateway.port}/v1"
        budget = RetryBudget()
        transport = AsyncRetryTransport(policy=QUICK, budget=budget)
        async with async_openai_client(url, key_of("t0").key, transport=transport) as client:
            calls = [client.chat.completions.create(**chat()) for _ in range(100)]
            product(await asyncio.gather(*calls, return_exceptions=True))
        await gateway.rest()
        assert 1 <= len(backend.requests) <= 120
        retries = sum(told.is_retry for told in gateway.told)
        assert 1 <= retries <= 20
        assert len(gateway.told) == 100 + retries


async def _refused(call) -> BaseException:
    with pytest.raises(openai.APIStatusError) as refusal:
        await call
    return refusal.value
