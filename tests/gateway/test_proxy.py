import asyncio
import json
import time
from typing import Any

import msgspec
import pytest

from gateway.contract.snapshot import FallbackSpec, TierSpec
from gateway.core.events import Override, OverridesReceived
from gateway.core.vocabulary import OverrideKind
from gateway.proxy.attempt import RetryBudget
from gateway.proxy.wire import standing_headers
from gateway.quotas import Allowance, Standing
from tests.fakes.backend import (
    FakeBackend,
    Flood,
    HdrDelay,
    Hold,
    Json,
    Raw,
    Sse,
    Status,
    chat_chunk,
    event,
)
from tests.fakes.caller import chat
from tests.fakes.gateway import ScriptedQuotas, a_pool, a_world, key_of, running, some_tiers
from tests.fakes.waiting import until

pytestmark = pytest.mark.loop

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def stream_of(*parts: bytes | float) -> Raw:
    return Raw((STREAM_HEAD, *parts), "fin")


def json_of(value: Any) -> Raw:
    body = json.dumps(value).encode()
    return Raw(
        (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body), body)
    )


def named(*events: dict[str, Any]) -> bytes:
    return b"".join(f"event: {e['type']}\n".encode() + event(e) for e in events)


# --- the other endpoints ---------------------------------------------------------------------------------------------


async def test_completions_are_streamed_and_joined():
    def piece(text: str, finish: str | None = None) -> bytes:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        return event(
            {"id": "c1", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
        )

    usage = event(
        {
            "id": "c1",
            "object": "text_completion",
            "created": 1,
            "model": "m",
            "choices": [],
            "usage": {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4},
        }
    )
    script = stream_of(piece("one "), piece("two"), piece("", "stop"), usage, b"data: [DONE]\n\n")
    async with FakeBackend(script) as backend, running(a_world(backend)) as gateway:
        body = {"model": "m", "prompt": "count", "max_tokens": 4}
        answer = await gateway.caller().send(body, path="/v1/completions")
        assert answer.json["object"] == "text_completion"
        assert answer.json["choices"] == [
            {"index": 0, "finish_reason": "stop", "text": "one two", "logprobs": None}
        ]
        assert answer.json["usage"]["total_tokens"] == 4
        streamed = await gateway.caller().send({**body, "stream": True}, path="/v1/completions")
        assert b'"usage"' not in streamed.body
        assert streamed.body.endswith(b"data: [DONE]\n\n")
        assert [r.path for r in backend.requests] == ["/v1/completions"] * 2
        assert gateway.told[0].output_tokens == 2


@pytest.mark.parametrize(
    ("path", "body", "answer"),
    [
        ("/v1/embeddings", {"model": "m", "input": ["a", "b"]}, {"data": [], "usage": {"prompt_tokens": 2}}),
        ("/v1/embeddings", {"model": "m", "input": [[1, 2], [3]]}, {"object": "list", "data": []}),
        ("/v1/rerank", {"model": "m", "query": "q", "documents": ["a", {"text": "b"}]}, {"results": []}),
        ("/tokenize", {"model": "m", "prompt": "hello"}, {"tokens": [1, 2]}),
        ("/tokenize", {"content": "hello"}, {"tokens": [1, 2]}),
    ],
)
async def test_endpoints_without_a_stream_are_passed_on_as_they_are(path: str, body: Any, answer: Any):
    async with FakeBackend(json_of(answer)) as backend, running(a_world(backend)) as gateway:
        got = await gateway.caller().send(body, path=path)
        assert (got.status, got.json) == (200, answer)
        seen = backend.requests[0]
        assert "stream" not in seen.json
        assert seen.json["model"] == "m"
        assert gateway.told[0].outcome == "completed"
        await gateway.rest()


RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "output": [{"type": "message"}],
    "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
}


async def test_responses_end_with_their_whole_object():
    events = named(
        {"type": "response.created", "response": {"id": "resp_1", "usage": None}},
        {"type": "response.output_text.delta", "delta": "hi"},
        {"type": "response.completed", "response": RESPONSE},
    )
    async with FakeBackend(stream_of(events)) as backend, running(a_world(backend)) as gateway:
        body = {"model": "m", "input": "hello"}
        whole = await gateway.caller().send(body, path="/v1/responses")
        assert whole.json == RESPONSE
        streamed = await gateway.caller().send({**body, "stream": True}, path="/v1/responses")
        assert streamed.body == events
        assert "stream_options" not in backend.requests[0].json
        assert backend.requests[0].json["stream"] is True
        assert (gateway.told[0].prompt_tokens, gateway.told[0].output_tokens) == (3, 2)


async def test_messages_are_joined_and_their_errors_have_anthropics_shape():
    events = named(
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "content": [],
                "usage": {"input_tokens": 4, "output_tokens": 1},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    )
    async with FakeBackend(stream_of(events)) as backend, running(a_world(backend)) as gateway:
        body = {
            "model": "m",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
        }
        headers = {"authorization": None, "x-api-key": key_of("t0").key, "anthropic-version": "2023-06-01"}
        whole = await gateway.caller().send(body, path="/v1/messages", headers=headers)
        assert whole.json["content"] == [{"type": "text", "text": "Hello"}]
        assert whole.json["stop_reason"] == "end_turn"
        assert whole.json["usage"] == {"input_tokens": 4, "output_tokens": 2}
        assert backend.requests[0].header("anthropic-version") == ["2023-06-01"]
        assert not backend.requests[0].header("x-api-key")
        streamed = await gateway.caller().send({**body, "stream": True}, path="/v1/messages", headers=headers)
        assert streamed.body == events
        bad = await gateway.caller().send({"model": "m"}, path="/v1/messages", headers=headers)
        assert bad.json["type"] == "error"
        assert bad.json["error"]["type"] == "invalid_request_error"
        unknown = await gateway.caller().send(
            body, path="/v1/messages", headers={**headers, "x-api-key": "no"}
        )
        assert (unknown.status, unknown.json["error"]["type"]) == (401, "authentication_error")


async def test_options_that_cannot_be_streamed_are_sent_as_asked():
    async with FakeBackend(Json(always=True)) as backend, running(a_world(backend)) as gateway:
        for option in ({"prompt_logprobs": 1}, {"use_beam_search": True}, {"best_of": 2}):
            answer = await gateway.caller().send(chat(**option))
            assert answer.json["usage"]["total_tokens"] == 12
            assert "stream" not in backend.requests[-1].json
            assert "stream_options" not in backend.requests[-1].json
        assert gateway.told[-1].output_tokens == 7


# --- what a backend may do -------------------------------------------------------------------------------------------


async def test_a_request_that_was_never_sent_is_tried_once_on_another_backend():
    async with FakeBackend() as good:
        closed = FakeBackend()
        await closed.listen()
        url = closed.url
        await closed.refuse()
        async with running(a_world(url, good)) as gateway:
            answers = [await gateway.caller().send(chat(stream=n % 2 == 0)) for n in range(6)]
            assert 200 in [a.status for a in answers]
            assert {a.status for a in answers} <= {200, 502}
            twice = [e for e in gateway.told if e.attempts == 2]
            assert twice
            assert {e.outcome for e in twice} == {"completed"}
            assert len(good.requests) == sum(a.status == 200 for a in answers)
            assert sum(e.attempts for e in gateway.told) <= len(answers) + 4  # the budget
            await gateway.rest()


def test_repetitions_are_a_tenth_of_the_ordinary_dispatches_after_a_small_burst():
    budget = RetryBudget()
    assert [budget.spend() for _ in range(4)] == [True, True, True, False]
    for _ in range(25):
        budget.earn()
    assert [budget.spend() for _ in range(3)] == [True, True, False]
    for _ in range(1000):
        budget.earn()
    assert sum(budget.spend() for _ in range(100)) == 3


async def test_an_error_event_of_a_busy_engine_is_back_pressure():
    busy = stream_of(b'data: {"error":{"message":"queue full","code":503}}\n\ndata: [DONE]\n\n')
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        for stream in (True, False):
            backend.then(busy)
            answer = await gateway.caller().send(chat(stream=stream))
            assert answer.status == 200
            await asyncio.sleep(1.1)
        assert len(backend.requests) == 4


async def test_an_error_event_that_blames_the_caller_is_passed_on():
    payload = b'{"error":{"message":"too long","type":"BadRequestError","code":400}}'
    script = stream_of(b"data: " + payload + b"\n\n", b"data: [DONE]\n\n")
    async with FakeBackend(script) as backend, running(a_world(backend)) as gateway:
        for stream in (True, False):
            answer = await gateway.caller().send(chat(stream=stream))
            assert (answer.status, answer.body) == (400, payload)
        assert {e.reason for e in gateway.told} == {"caller_error"}


async def test_an_engine_that_crashes_mid_stream_is_told_without_its_done():
    token = chat_chunk({"content": "one"})
    crash = b'data: {"error":{"message":"EngineDeadError at 10.0.0.7","code":500}}\n\n'
    for parts in ((token, crash + b"data: [DONE]\n\n"), (token + crash + b"data: [DONE]\n\n",)):
        async with FakeBackend(stream_of(*parts)) as backend, running(a_world(backend)) as gateway:
            answer = await gateway.caller().send(chat(stream=True))
            assert answer.status == 200
            assert answer.body.startswith(token)
            assert b"[DONE]" not in answer.body
            assert b"10.0.0.7" not in answer.body
            assert len([e for e in answer.events if "error" in e]) == 1
            assert gateway.told[0].reason == "midstream"


async def test_an_error_after_a_committed_keep_alive_is_told_by_an_event():
    pool = a_pool(sse_keepalive_s=0.05)
    late = stream_of(0.2, b'data: {"error":{"message":"busy","code":503}}\n\ndata: [DONE]\n\n')
    async with FakeBackend(late) as backend, running(a_world(backend, pool=pool)) as gateway:
        answer = await gateway.caller().send(chat(stream=True))
        assert answer.status == 200
        assert answer.body.startswith(b": keep-alive\n\n")
        assert [set(e) for e in answer.events] == [{"error"}]
        backend.default = stream_of(0.2)
        answer = await gateway.caller().send(chat(stream=True))
        assert [set(e) for e in answer.events] == [{"error"}]
        await gateway.rest()


async def test_a_half_sent_event_is_followed_by_a_broken_transfer_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
):
    whole, half = chat_chunk({"content": "one"}), chat_chunk({"content": "two"})[:40]
    async with (
        FakeBackend(stream_of(whole, 0.05, half, 0.05)) as backend,
        running(a_world(backend)) as gateway,
    ):
        answer = await gateway.caller().send(chat(stream=True, stream_options={"include_usage": True}))
        assert not answer.is_whole
        assert answer.body == whole + half
        crash = b'{"error":{"message":"dead","code":500}}'
        backend.default = stream_of(
            whole, 0.05, b"data: " + crash[:20], 0.05, crash[20:] + b"\n\n" + b"data: [DONE]\n\n"
        )
        torn = await gateway.caller().send(chat(stream=True, stream_options={"include_usage": True}))
        assert not torn.is_whole
        assert torn.body == whole + b"data: " + crash[:20]
        assert not [r for r in caplog.records if r.levelname == "ERROR"]  # on purpose, not a crash
        held_back = await gateway.caller().send(chat(stream=True))
        assert held_back.body.startswith(whole + b'data: {"error"')
        await gateway.rest()


async def test_a_stream_that_is_superseded_is_cut():
    async with FakeBackend(Sse(1000, gap_s=0.01)) as backend, running(a_world(backend)) as gateway:
        older = await gateway.caller().open(chat(stream=True), headers=KEY)
        await older.head()
        await older.piece()
        backend.default = Sse(2)
        newer = await gateway.caller().send(chat(stream=True), headers=KEY)
        assert newer.text == "t0 t1 "
        assert not (await older.rest()).is_whole
        await gateway.rest()


async def test_a_pool_that_vanishes_while_it_is_asked_still_answers():
    async with FakeBackend(Hold()) as backend:
        world = a_world(backend, pool=a_pool(limit=1))
        async with running(world) as gateway:
            asked = await gateway.caller().open()
            await backend.until(lambda: backend.in_flight == 1)
            queued = await gateway.caller().open()
            await until(lambda: sum(q.waiting for q in gateway.keeper.view().queues) == 1)
            other = a_pool("other", "x")
            grants = tuple(msgspec.structs.replace(g, pool="other") for g in world.grants)
            url = msgspec.structs.replace(
                world.backends[0], policy=type(world.backends[0].policy)(name="be9", pool="other")
            )
            gateway.apply(
                msgspec.structs.replace(world, revision=2, pools=(other,), backends=(url,), grants=grants)
            )
            backend.release()
            assert (await (await asked.head()).rest()).status == 200
            assert (await (await queued.head()).rest()).status in (429, 503)
            assert (await gateway.caller().send()).status == 404
            backend.default = Json()
            assert (await gateway.caller().send(chat(model="x"))).status == 200
            await gateway.rest()


async def test_a_backend_that_moves_is_found_at_its_new_place():
    async with FakeBackend() as old, FakeBackend() as new, running(a_world(old)) as gateway:
        assert (await gateway.caller().send()).status == 200
        moved = msgspec.structs.replace(gateway.snapshot.backends[0], url=new.url)
        gateway.apply(msgspec.structs.replace(gateway.snapshot, revision=2, backends=(moved,)))
        assert (await gateway.caller().send()).status == 200
        assert (len(old.requests), len(new.requests)) == (1, 1)


async def test_a_backend_at_an_address_that_is_forbidden_is_a_fault_and_not_a_crash():
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        for url in ("http://169.254.169.254/", "ftp://h/", "http://user:pw@h/"):
            bad = msgspec.structs.replace(gateway.snapshot.backends[0], url=url)
            gateway.apply(msgspec.structs.replace(gateway.snapshot, backends=(bad,)))
            assert (await gateway.caller().send()).status == 502
        await gateway.rest()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, b"0ms"), (0.02, b"20ms"), (1.5, b"1.5s"), (59.0, b"59s"), (60.0, b"1m0s"), (366.2, b"6m6s")],
)
def test_how_openai_writes_a_duration(seconds: float, text: bytes):
    headers = dict(standing_headers(Standing(requests=Allowance(1, -3, seconds), tokens=None)))
    assert headers[b"x-ratelimit-reset-requests"] == text
    assert headers[b"x-ratelimit-remaining-requests"] == b"0"


async def test_headers_of_one_hop_do_not_reach_the_next():
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=utf-8\r\nx-secret: s\r\nset-cookie: a=b\r\n"
        b"connection: close, x-secret\r\nserver: engine\r\nretry-after: 9\r\ncontent-length: 2\r\n\r\n{}"
    )
    async with FakeBackend(Raw((head,), "fin")) as backend, running(a_world(backend)) as gateway:
        sent = {
            "cookie": "c=1",
            "x-forwarded-for": "1.2.3.4",
            "proxy-authorization": "Basic x",
            "accept-encoding": "gzip",
        }
        answer = await gateway.caller().send(chat(), headers=sent)
        names = {name for name, _ in answer.headers}
        assert not names & {"x-secret", "set-cookie", "server", "retry-after"}
        assert answer.header("content-type") == "application/json; charset=utf-8"
        seen = {name for name, _ in backend.requests[0].headers}
        assert not seen & {"cookie", "x-forwarded-for", "proxy-authorization", "authorization", "connection"}
        assert backend.requests[0].header("accept-encoding") == ["identity"]


async def test_a_slow_reader_slows_its_backend_and_nobody_else():
    """A20 Client reads slowly."""
    size = 64 << 20
    async with (
        FakeBackend(Flood(size)) as backend,
        running(a_world(backend, pool=a_pool(limit=8))) as gateway,
    ):
        slow = await gateway.caller().open(chat(stream=True))
        await slow.head()
        await asyncio.sleep(0.3)
        stuck_at = backend.flooded
        assert stuck_at < size / 4
        backend.default = Json()
        assert (await gateway.caller("t1").send()).status == 200
        await slow.reset()
        await backend.until(lambda: backend.in_flight == 0)
        await gateway.rest()


# --- deadlines and retries -------------------------------------------------------------------------------------------


async def test_work_that_cannot_start_before_the_callers_deadline_is_given_up_at_the_deadline():
    tiers = some_tiers(max_size=10, timeout_s=30.0)
    async with FakeBackend(Hold()) as backend:
        world = msgspec.structs.replace(a_world(backend, pool=a_pool(limit=1)), tiers=tiers)
        async with running(world) as gateway:
            first = await gateway.caller().open()
            await backend.until(lambda: backend.in_flight == 1)
            for headers in (
                {"x-request-timeout-ms": "200"},
                {"x-stainless-read-timeout": "0.2"},
                {"x-stainless-timeout": "0.2"},
            ):
                began = time.monotonic()
                answer = await gateway.caller().send(chat(), headers=headers)
                assert answer.status == 429
                assert answer.error["reason"] == "deadline"
                assert time.monotonic() - began < 0.6
            bad = await gateway.caller().send(chat(), headers={"x-request-timeout-ms": "-1"})
            assert (bad.status, bad.error["param"]) == (400, "x-request-timeout-ms")
            assert len(backend.requests) == 1
            backend.release()
            assert (await (await first.head()).rest()).status == 200


async def test_retries_are_marked_for_the_gate():
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        for count, is_retry in (("0", False), ("1", True), ("x", False)):
            await gateway.caller().send(chat(), headers={"x-stainless-retry-count": count})
            assert gateway.told[-1].is_retry is is_retry


# --- idempotency keys ------------------------------------------------------------------------------------------------

KEY = {"idempotency-key": "order-66"}


@pytest.mark.parametrize("stream", [True, False])
async def test_a_newer_request_with_the_same_key_takes_the_seat_of_the_older(stream: bool):
    quotas = ScriptedQuotas()
    async with FakeBackend(Hold()) as backend:
        world = a_world(backend, pool=a_pool(limit=1))
        grants = tuple(msgspec.structs.replace(g, requests_per_min=9) for g in world.grants)
        async with running(msgspec.structs.replace(world, grants=grants), quotas=quotas) as gateway:
            older = await gateway.caller().open(chat(stream=stream), headers=KEY)
            await backend.until(lambda: backend.in_flight == 1)
            queued = await gateway.caller("t1").open()
            await until(lambda: sum(q.waiting for q in gateway.keeper.view().queues) == 1)
            newer = await gateway.caller().open(chat(stream=stream), headers=KEY)
            await backend.until(lambda: len(backend.requests) == 2)
            first = await (await older.head()).rest()
            assert (first.status, first.error["code"]) == (409, "superseded")
            assert backend.max_in_flight <= 2  # the older one's connection closes as the newer one's opens
            await backend.until(lambda: backend.in_flight == 1)
            assert len(quotas.held) == 2
            backend.release()
            assert (await (await newer.head()).rest()).status == 200
            await backend.until(lambda: len(backend.requests) == 3)
            backend.release()
            assert (await (await queued.head()).rest()).status == 200
            await gateway.rest()
            assert sorted(e.outcome for e in gateway.told) == ["abandoned", "completed", "completed"]
            assert len(quotas.settled) == 2


async def test_a_newer_request_takes_the_place_of_the_older_in_the_queue():
    async with FakeBackend(Hold()) as backend, running(a_world(backend, pool=a_pool(limit=1))) as gateway:
        held = await gateway.caller("t1").open()
        await backend.until(lambda: backend.in_flight == 1)
        older = await gateway.caller().open(chat(), headers=KEY)
        await until(lambda: sum(q.waiting for q in gateway.keeper.view().queues) == 1)
        newer = await gateway.caller().open(chat(), headers=KEY)
        assert (await (await older.head()).rest()).status == 409
        assert sum(q.waiting for q in gateway.keeper.view().queues) == 1
        backend.default = Json()
        backend.release()
        assert (await (await newer.head()).rest()).status == 200
        assert (await (await held.head()).rest()).status == 200
        assert len(backend.requests) == 2
        await gateway.rest()


async def test_the_same_key_with_another_body_is_422_and_another_tenants_is_its_own():
    async with FakeBackend(Hold()) as backend, running(a_world(backend)) as gateway:
        first = await gateway.caller().open(chat(), headers=KEY)
        await backend.until(lambda: backend.in_flight == 1)
        other = await gateway.caller().send(chat(user="else"), headers=KEY)
        assert (other.status, other.error["code"]) == (422, "idempotency_key_reused")
        neighbour = await gateway.caller("t1").open(chat(), headers=KEY)
        await backend.until(lambda: backend.in_flight == 2)
        backend.release()
        for one in (first, neighbour):
            assert (await (await one.head()).rest()).status == 200
        backend.default = Json()
        assert (await gateway.caller().send(chat(user="else"), headers=KEY)).status == 200
        long = await gateway.caller().send(chat(), headers={"idempotency-key": "k" * 300})
        assert (long.status, long.error["param"]) == (400, "Idempotency-Key")
        await gateway.rest()


# --- answers of the gateway itself -----------------------------------------------------------------------------------


def forced_open(backend: str = "be1") -> OverridesReceived:
    override = Override(
        kind=OverrideKind.BREAKER, target=backend, value="open", expires_at=time.monotonic() + 60
    )
    return OverridesReceived((override,))


@pytest.mark.parametrize("stream", [True, False])
async def test_an_open_breaker_is_answered_by_the_pools_text_for_the_tiers_that_may_have_it(stream: bool):
    pool = a_pool(fallback=FallbackSpec(text="We are back soon.", tiers=(0,)))
    async with FakeBackend() as backend, running(a_world(backend, pool=pool)) as gateway:
        gateway.keeper.feed(forced_open())
        answer = await gateway.caller("t0").send(chat(stream=stream))
        assert answer.status == 200
        assert answer.header("x-sluicegate-fallback") == "text"
        text = answer.text if stream else answer.json["choices"][0]["message"]["content"]
        assert text == "We are back soon."
        refused = await gateway.caller("t1").send(chat(stream=stream))
        assert (refused.status, refused.error["reason"]) == (503, "breaker_open")
        embeddings = await gateway.caller("t0").send({"model": "m", "input": "x"}, path="/v1/embeddings")
        assert embeddings.status == 503
        assert not backend.requests
        told = gateway.told[0]
        assert (told.fallback, told.outcome, told.reason) == (True, "refused", "breaker_open")
        tier = gateway.tally.tiers["pool", 0]
        assert (tier.fallback, tier.admitted) == (1, 0)
        await gateway.rest()


@pytest.mark.parametrize("stream", [True, False])
async def test_an_open_breaker_is_answered_by_another_pool(stream: bool):
    async with FakeBackend() as big, FakeBackend(Sse(2)) as small:
        pool = a_pool(fallback=FallbackSpec(pool="small", tiers=(0,)))
        little = a_pool("small", "tiny", fallback=FallbackSpec(pool="pool", tiers=(0,)))
        world = a_world(big)
        backend = msgspec.structs.replace(
            world.backends[0], url=small.url, policy=type(world.backends[0].policy)(name="be2", pool="small")
        )
        world = msgspec.structs.replace(world, pools=(pool, little), backends=(*world.backends, backend))
        async with running(world) as gateway:
            gateway.keeper.feed(forced_open())
            answer = await gateway.caller("t0").send(chat(stream=stream))
            assert answer.status == 200
            assert answer.header("x-sluicegate-fallback") == "pool"
            text = answer.text if stream else answer.json["choices"][0]["message"]["content"]
            assert text == "t0 t1 "
            assert small.requests[0].json["model"] == "tiny"
            assert not big.requests
            told = gateway.told[0]
            assert (told.fallback, told.outcome, told.reason) == (True, "refused", "breaker_open")
            small.default = Status(500)
            assert (await gateway.caller("t0").send(chat(stream=stream))).status == 502
            await gateway.rest()


async def test_an_operator_may_answer_a_pool_from_its_fallback_for_a_while():
    pool = a_pool(fallback=FallbackSpec(text="Maintenance.", tiers=(0, 1, 2)))
    async with FakeBackend() as backend, running(a_world(backend, pool=pool)) as gateway:
        override = Override(
            kind=OverrideKind.POOL_FALLBACK, target="pool", value="on", expires_at=time.monotonic() + 0.5
        )
        gateway.keeper.feed(OverridesReceived((override,)))
        answer = await gateway.caller().send()
        assert answer.json["choices"][0]["message"]["content"] == "Maintenance."
        assert not backend.requests
        await asyncio.sleep(0.6)  # it ends by itself
        assert (await gateway.caller().send()).header("x-sluicegate-fallback") is None
        assert len(backend.requests) == 1


async def test_a_stream_that_runs_holds_no_prompt():
    async with FakeBackend(Sse(1000, gap_s=0.05)) as backend, running(a_world(backend)) as gateway:
        conversation = await gateway.caller().open(chat(stream=True, pad="x" * 100_000))
        await conversation.head()
        await conversation.piece()
        assert gateway.app.bodies.held_bytes == 0
        await conversation.close()
        await backend.until(lambda: backend.in_flight == 0)
        backend.default = Hold()
        conversation = await gateway.caller().open(chat(pad="x" * 100_000))
        await backend.until(lambda: backend.in_flight == 1)
        assert gateway.app.bodies.held_bytes > 100_000
        await conversation.close()
        await gateway.rest()


async def test_refusals_speak_the_callers_language_and_the_operators_words():
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        gateway.keeper.feed(forced_open())
        zh = await gateway.caller("t1").send(headers={"accept-language": "zh-CN,zh;q=0.9,en;q=0.8"})
        en = await gateway.caller("t1").send(headers={"accept-language": "fr, en;q=0.5"})
        assert "模型暂时不可用" in zh.error["message"]
        assert "temporarily unavailable" in en.error["message"]
        tiers = tuple(
            TierSpec(policy=t.policy, refusal_messages={"en": "Come back later.{retry}", "zh": "稍后再来"})
            for t in gateway.snapshot.tiers
        )
        gateway.apply(msgspec.structs.replace(gateway.snapshot, tiers=tiers))
        gateway.keeper.feed(forced_open())
        own = await gateway.caller("t1").send()
        assert own.error["message"].startswith("Come back later. Please try again in")
        assert (await gateway.caller("t1").send(headers={"accept-language": "zh"})).error[
            "message"
        ] == "稍后再来"


async def test_every_answer_tells_pressure_and_what_is_left():
    quotas = ScriptedQuotas()
    standing = Standing(requests=Allowance(60, 59, 1.0), tokens=Allowance(1000, 400, 36.0))
    quotas.standing = lambda _tenant, _pool: standing  # type: ignore[attr-defined]
    async with FakeBackend() as backend, running(a_world(backend), quotas=quotas) as gateway:
        for body in (chat(), chat(stream=True), chat(n=1)):
            answer = await gateway.caller().send(body)
            assert answer.header("x-ratelimit-limit-requests") == "60"
            assert answer.header("x-ratelimit-remaining-requests") == "59"
            assert answer.header("x-ratelimit-reset-requests") == "1s"
            assert answer.header("x-ratelimit-limit-tokens") == "1000"
            assert answer.header("x-ratelimit-remaining-tokens") == "400"
            assert answer.header("x-ratelimit-reset-tokens") == "36s"
            assert 0 <= float(answer.header("x-sluicegate-pressure") or -1) <= 1
            assert answer.header("x-request-id") == gateway.told[-1].request_id
        backend.default = Status(500)
        assert (await gateway.caller().send()).header("x-ratelimit-limit-requests") == "60"


async def test_pressure_rises_with_use():
    async with FakeBackend(Hold()) as backend, running(a_world(backend)) as gateway:
        idle = await gateway.caller("t1").open()
        await backend.until(lambda: backend.in_flight == 1)
        second = await gateway.caller("t1").open()
        await backend.until(lambda: backend.in_flight == 2)
        backend.release()
        answers = [await (await one.head()).rest() for one in (idle, second)]
        assert max(float(a.header("x-sluicegate-pressure") or 0) for a in answers) >= 0.5


async def test_the_record_of_an_answer_has_waits_first_token_and_pace():
    async with (
        FakeBackend(Sse(5, gap_s=0.02, first_s=0.05)) as backend,
        running(a_world(backend, pool=a_pool(limit=1))) as gateway,
    ):
        first = asyncio.create_task(gateway.caller().send(chat(stream=True)))
        await backend.until(lambda: backend.in_flight == 1)
        await gateway.caller().send(chat())
        await first
        one, two = gateway.told
        assert (one.stream, two.stream) == (True, False)
        assert (one.backend, one.attempts, one.status) == ("be1", 1, 200)
        assert one.ttft_s is not None
        assert 0.05 <= one.ttft_s < one.total_s  # how much later depends on how busy the machine is
        assert one.tpot_s is not None
        assert one.tpot_s > 0.01
        assert two.wait_s is not None
        assert two.wait_s > 0.08
        assert (one.prompt_tokens, one.output_tokens) == (5, 5)
        assert one.total_s > one.ttft_s


async def test_a_late_answer_after_headers_is_cut_by_the_total_time_out():
    pool = a_pool(total_timeout_s=0.3, idle_timeout_s=0.2)
    async with FakeBackend(Sse(100, gap_s=0.05)) as backend, running(a_world(backend, pool=pool)) as gateway:
        answer = await gateway.caller().send(chat(stream=True))
        assert answer.events[-1]["error"]["code"] == "backend_timeout"
        assert gateway.told[0].reason == "total_timeout"
        backend.default = stream_of(chat_chunk({"content": "x"}), 5.0)
        answer = await gateway.caller().send(chat(stream=True))
        assert answer.events[-1]["error"]["reason"] == "idle_timeout"
        backend.default = HdrDelay(5.0)
        assert (await gateway.caller().send()).status == 504
        await gateway.rest()


async def test_a_refusal_of_the_engine_that_does_not_end_is_not_waited_for():
    head = b"HTTP/1.1 503 Busy\r\ncontent-length: 100\r\nretry-after: 0\r\n\r\n{"
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        backend.then(Raw((head, 30.0)))
        assert (await asyncio.wait_for(gateway.caller().send(), 2)).status == 200
        await backend.until(lambda: backend.in_flight == 0)
        await gateway.rest()
