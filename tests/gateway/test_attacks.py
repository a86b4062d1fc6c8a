"""What a hostile caller, backend or neighbour in Valkey would try, on the real gateway. Each was a hole once."""

import asyncio
import gzip
import json
import time

import msgspec
import pytest

from gateway.contract.snapshot import FallbackSpec, Snapshot
from gateway.core.events import Override, OverridesReceived, QuotaDenied, QuotaGranted
from gateway.core.policy import BackendPolicy
from gateway.core.vocabulary import Outcome, OverrideKind, ShedReason
from gateway.sse import HOLD_LIMIT
from tests.fakes.backend import DONE, FakeBackend, Json, Line, Raw, Sse, chat_chunk, event
from tests.fakes.caller import chat
from tests.fakes.gateway import ScriptedQuotas, Settings, a_pool, a_world, running
from tests.fakes.waiting import until

pytestmark = pytest.mark.loop
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def with_quota(world: Snapshot) -> Snapshot:
    grants = tuple(msgspec.structs.replace(g, tokens_per_min=1_000_000) for g in world.grants)
    return msgspec.structs.replace(world, grants=grants)


class Endless:
    """A stream that begins with `start` and then repeats `more` until the peer leaves; `sent` counts."""

    def __init__(self, start: bytes, more: bytes, most: int = 64 << 20) -> None:
        self.start, self.more, self.most, self.sent = start, more, most, 0

    async def __call__(self, line: Line) -> None:
        await line.write(EVENTS + self.start)
        while self.sent < self.most:
            await line.write(self.more)
            self.sent += len(self.more)
            await asyncio.sleep(0)  # let the peer's leaving be noticed
        line.fin()


# --- backends ---------------------------------------------------------------------------------------------------------


async def test_comments_without_end_before_the_first_event_are_not_gathered():
    flood = Endless(b"", b": filling\n\n" * 1000)
    async with FakeBackend(flood) as backend, running(a_world(backend)) as gateway:
        answer = await gateway.caller().send(chat(stream=True))
        assert answer.status == 502
        assert flood.sent < 4 << 20  # socket buffers included
        await gateway.rest()


async def test_one_event_without_end_is_passed_on_not_gathered():
    """A first event may be large (echo, logprobs): it is relayed as it comes once it is too large to be held."""
    flood = Endless(b"data: ", b"x" * 65536)
    async with FakeBackend(flood) as backend, running(a_world(backend)) as gateway:
        talk = await gateway.caller().open(chat(stream=True))
        await talk.head()
        assert talk.status == 200
        assert len(await talk.piece()) <= 2 * HOLD_LIMIT
        await talk.reset()
        await gateway.rest()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "payload",
    [
        b'{"choices":[],"usage":' + b"[" * 50_000,
        b'{"choices":[],"x":' + b"[" * 50_000 + b',"error":1',
        b'{"choices":[],"x":' + b"[" * 60_000,
    ],
)
async def test_a_pit_of_brackets_from_a_backend_is_no_crash(payload, stream):
    async with (
        FakeBackend(Raw((EVENTS + b"data: " + payload + b"\n\n" + DONE,), end="fin")) as backend,
        running(a_world(backend)) as gateway,
    ):
        answer = await gateway.caller().send(chat(stream=stream))
        assert answer.status == (200 if stream else 502)
        await gateway.rest()
        assert 500 not in {e.status for e in gateway.told}


async def test_a_hundred_thousand_indexed_parts_do_not_stop_this_process():
    """Looked up one by one they took the square of their number: minutes in which nobody is served."""
    parts = [{"index": n, "function": {"arguments": "x"}} for n in range(100_000)]
    body = EVENTS + chat_chunk({"tool_calls": parts}) + chat_chunk({"tool_calls": parts}, "stop") + DONE
    async with FakeBackend(Raw((body,), end="fin")) as backend, running(a_world(backend)) as gateway:
        async with asyncio.timeout(20):
            answer = await gateway.caller().send(chat())
        assert answer.status == 200
        calls = answer.json["choices"][0]["message"]["tool_calls"]
        assert len(calls) == 100_000
        assert calls[7]["function"]["arguments"] == "xx"
        await gateway.rest()


@pytest.mark.parametrize("lie", [10**30, 10**12, -5, 0, None, "7", 1.5, [], True])
async def test_a_lie_about_usage_is_not_charged_to_a_tenant(lie):
    quotas = ScriptedQuotas()
    usage = event({"choices": [], "usage": {"prompt_tokens": lie, "completion_tokens": lie}})
    stream = EVENTS + chat_chunk({"content": "a"}) + chat_chunk({"content": "b"}, "stop") + usage + DONE
    async with (
        FakeBackend(Raw((stream,), end="fin")) as backend,
        running(with_quota(a_world(backend)), quotas=quotas) as gateway,
    ):
        assert (await gateway.caller().send(chat(stream=True))).status == 200
        await gateway.rest()
        told = gateway.told[0]
        assert 1 <= told.prompt_tokens < 20
        assert told.output_tokens == 2
        assert list(quotas.settled.values()) == [told.prompt_tokens + 2]


async def test_what_a_backend_says_after_the_end_of_its_coding_is_not_kept():
    packed = gzip.compress(b'{"object":"chat.completion"}')
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n\r\n"
    junk = b"x" * 65536
    async with (
        FakeBackend(Raw((head + packed, 0.05, *[junk] * 200), end="fin")) as backend,
        running(a_world(backend)) as gateway,
    ):
        assert (await gateway.caller().send(chat())).status == 502
        await gateway.rest()


@pytest.mark.parametrize("status", [204, 205, 206, 226, 299])
async def test_a_success_without_a_whole_answer_is_none(status):
    """A 205 with a body, passed on, would be read as two answers by whatever stands in front."""
    raw = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}" % status
    async with FakeBackend(Raw((raw,), end="fin")) as backend, running(a_world(backend)) as gateway:
        assert (await gateway.caller().send(chat())).status == 502
        await gateway.rest()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_page_of_something_else_is_no_answer(stream):
    page = b"<html><script>alert(1)</script></html>"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(page)
    async with FakeBackend(Raw((head + page,))) as backend, running(a_world(backend)) as gateway:
        answer = await gateway.caller().send(chat(stream=stream))
        assert answer.status == 502
        assert b"script" not in answer.body
        await gateway.rest()
        assert gateway.told[0].outcome == Outcome.FAILED


# --- memory -----------------------------------------------------------------------------------------------------------


async def test_bodies_that_are_still_being_sent_count_against_the_memory_for_bodies():
    """Otherwise a thousand callers that announce nothing and never end hold a thousand times the largest body."""
    settings = Settings(buffer_budget_bytes=400_000)
    chunked = {"content-length": None, "transfer-encoding": "chunked"}
    part = b"%x\r\n%s\r\n" % (60_000, b" " * 60_000)
    async with FakeBackend() as backend, running(a_world(backend), settings=settings) as gateway:
        talks = []
        for _ in range(6):
            talks.append(await gateway.caller().open(part, headers=chunked))
            await until(lambda: gateway.app.bodies.held_bytes == 60_000 * len(talks))
        one_more = await gateway.caller().send(part, headers=chunked)
        assert one_more.status == 503
        assert one_more.error["reason"] == "gateway_overload"
        assert one_more.header("connection") == "close"
        for talk in talks:
            await talk.reset()
        await gateway.rest()
        assert (await gateway.caller().send(chat())).status == 200


# --- quota ------------------------------------------------------------------------------------------------------------


async def test_superseding_again_and_again_costs_what_it_made_the_engine_do():
    """The same Idempotency-Key sent anew just before each answer ends would be any number of answers for one."""
    quotas = ScriptedQuotas()
    async with (
        FakeBackend(Sse(20, gap_s=0.01)) as backend,
        running(with_quota(a_world(backend, pool=a_pool(limit=1))), quotas=quotas) as gateway,
    ):
        key = {"idempotency-key": "k"}
        talks = []
        for number in range(3):
            talks.append(await gateway.caller().open(chat(stream=True), headers=key))
            await backend.until(lambda n=number: len(backend.requests) == n + 1)
            await talks[-1].head()
            for _ in range(8):  # the role, then content
                await talks[-1].piece()
        answer = await gateway.caller().send(chat(stream=True), headers=key)
        assert answer.events[-1] == "[DONE]"
        await gateway.rest()
        (charged,) = quotas.settled.values()
        assert charged >= 4 * 5 + 3 * 7 + 20  # four prompts, three parts, one whole
        for talk in talks:
            await talk.close()


async def test_a_caller_that_leaves_before_the_usage_comes_pays_for_what_it_has_read():
    """Messages name one output token in their first event: that is no count of what follows."""
    quotas = ScriptedQuotas()
    start = event({"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}})
    delta = event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}})
    async with (
        FakeBackend(Raw((EVENTS + start + delta * 50, 5.0))) as backend,
        running(with_quota(a_world(backend)), quotas=quotas) as gateway,
    ):
        body = {
            "model": "m",
            "max_tokens": 99,
            "stream": True,
            "messages": [{"role": "user", "content": "x"}],
        }
        talk = await gateway.caller().open(body, path="/v1/messages")
        await talk.head()
        await until(lambda: sum(b.in_flight for b in gateway.keeper.view().backends) == 1)
        read = b""
        while read.count(b"text_delta") < 50:
            read += await talk.piece()
        await talk.reset()
        await gateway.rest()
        (charged,) = quotas.settled.values()
        assert charged >= 50


async def test_a_breaker_that_opens_lifts_nobodys_quota():
    """The fallback pool needs no grant: then the one for the main pool bounds what is taken there."""
    quotas = ScriptedQuotas()
    asked: list[str] = []

    def deny_the_second(ticket: str, _tenant: str, pool: str, _tokens: int) -> QuotaGranted | QuotaDenied:
        asked.append(pool)
        if len(asked) > 1:
            return QuotaDenied(ticket, ShedReason.RATE_LIMITED, time.monotonic() + 5)
        return QuotaGranted(ticket)

    quotas.answer = deny_the_second
    async with FakeBackend() as big, FakeBackend(Sse(2)) as small:
        main, little = a_pool(fallback=FallbackSpec(pool="small", tiers=(0,))), a_pool("small", "tiny")
        world = with_quota(a_world(big))
        extra = msgspec.structs.replace(
            world.backends[0], url=small.url, policy=BackendPolicy(name="be2", pool="small")
        )
        world = msgspec.structs.replace(world, pools=(main, little), backends=(*world.backends, extra))
        async with running(world, quotas=quotas) as gateway:
            forced = Override(
                kind=OverrideKind.BREAKER, target="be1", value="open", expires_at=time.monotonic() + 60
            )
            gateway.keeper.feed(OverridesReceived((forced,)))
            first, second = [await gateway.caller().send(chat()) for _ in range(2)]
            assert (first.status, first.header("x-sluicegate-fallback")) == (200, "pool")
            assert (second.status, second.error["reason"]) == (429, "rate_limited")
            assert asked == ["pool", "pool"]
            assert len(small.requests) == 1
            await gateway.rest()


@pytest.mark.parametrize(
    "lie", [{"max_completion_tokens": 1, "max_tokens": 4000}, {"max_tokens": 1, "n_predict": 4000}]
)
async def test_the_bound_that_is_reserved_is_the_largest_that_any_engine_obeys(lie):
    seen: list[int] = []
    quotas = ScriptedQuotas()
    grant = quotas.answer
    quotas.answer = lambda *asked: seen.append(asked[3]) or grant(*asked)
    async with FakeBackend() as backend, running(with_quota(a_world(backend)), quotas=quotas) as gateway:
        body = chat()
        del body["max_tokens"]
        await gateway.caller().send({**body, **lie})
        assert seen[0] > 16  # the prediction for a tenant that is not known yet, not the lie of one token
        await gateway.rest()


# --- what does not fit ------------------------------------------------------------------------------------------------


async def test_a_prompt_of_absurd_weight_stops_nobody_else():
    """A million empty documents, each read with a query of a megabyte: 10^12 bytes for the engine."""
    documents = ",".join(['""'] * 100_000)
    absurd = f'{{"model":"m","query":"{"q" * 1_000_000}","documents":[{documents}]}}'.encode()
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        talk = await gateway.caller().open(
            absurd, path="/v1/rerank", headers={"x-request-timeout-ms": "1500"}
        )
        await asyncio.sleep(0.3)
        for _ in range(3):
            assert (await gateway.caller("t1").send(chat())).status == 200
            assert (await gateway.caller("t0").send(chat())).status == 200
        await talk.reset()
        await gateway.rest(5)


@pytest.mark.parametrize("number", ["1e308", "9" * 400, "1e18"])
async def test_a_bound_beyond_all_numbers_is_only_large(number):
    body = chat()
    del body["max_tokens"]
    raw = json.dumps(body)[:-1] + f', "n": 3, "max_tokens": {number}}}'
    async with FakeBackend(Json()) as backend, running(with_quota(a_world(backend))) as gateway:
        assert (await gateway.caller().send(raw.encode())).status == 200
        await gateway.rest()
