"""Field cases: what went wrong elsewhere, on the real gateway with a scripted backend. Ids are those of the case list."""

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gateway.contract import keyring
from gateway.contract.snapshot import Snapshot
from gateway.core.events import Override, OverridesReceived, QuotaDenied, QuotaGranted
from gateway.core.policy import BreakerPolicy
from gateway.core.vocabulary import OverrideKind, ShedReason
from tests.fakes.backend import (
    CloseAtOnce,
    FakeBackend,
    Fin,
    HdrDelay,
    Hold,
    Json,
    Raw,
    Rst,
    Sse,
    Status,
    chat_chunk,
)
from tests.fakes.caller import Caller, Received, chat
from tests.fakes.gateway import RunningGateway, ScriptedQuotas, a_pool, a_world, key_of, running, some_tiers
from tests.fakes.waiting import until

pytestmark = pytest.mark.loop
BUSY = (429, 503)


def with_queue(world: Snapshot, **queue: Any) -> Snapshot:
    return msgspec.structs.replace(world, tiers=some_tiers(**queue))


def with_grants(world: Snapshot, **changes: Any) -> Snapshot:
    return msgspec.structs.replace(
        world, grants=tuple(msgspec.structs.replace(g, **changes) for g in world.grants)
    )


def assert_shed(answer: Received, reason: str, status: int = 429) -> None:
    assert answer.status == status, answer.body
    assert answer.header("content-type") == "application/json"
    assert answer.error["reason"] == reason
    assert set(answer.error) >= {"message", "type", "code", "param", "retry_after_seconds", "request_id"}
    assert 1 <= int(answer.header("retry-after") or 0) <= 60


async def probe(gateway: RunningGateway, backend: FakeBackend, limit: int = 2, queue: int = 4) -> None:
    """PROBE_SLOTS and PROBE_QUEUE, and the gateway still answers."""
    await gateway.rest()
    await backend.until(lambda: backend.in_flight == 0)
    default, backend.default = backend.default, Hold()
    begun = len(backend.requests)
    held = [await gateway.caller().open() for _ in range(limit)]
    await backend.until(lambda: len(backend.requests) - begun == limit, 0.5)
    waiting = [await gateway.caller().open() for _ in range(queue)]
    await until(lambda: sum(q.waiting for q in gateway.keeper.view().queues) == queue)
    assert len(backend.requests) - begun == limit
    assert (await gateway.caller().send()).status == 429
    backend.default = Json()
    backend.release()
    answers = [await (await one.head()).rest() for one in (*held, *waiting)]
    assert [a.status for a in answers] == [200] * (limit + queue)
    await gateway.rest()
    backend.default = default


async def test_upstream_faults_keep_no_seat():
    """A02 Upstream timeouts and 5xx keep the slot."""
    pool = a_pool(first_byte_timeout_s=0.3, total_timeout_s=1.0)
    async with FakeBackend() as backend, running(a_world(backend, pool=pool)) as gateway:
        for stream in (True, False):
            for script, status in (
                (Hold(), 504),
                (Status(502), 502),
                (Status(504), 502),
                (CloseAtOnce(), 502),
                (CloseAtOnce("rst"), 502),
                (Raw((b"nonsense",)), 502),
            ):
                backend.default = script
                answer = await gateway.caller().send(chat(stream=stream))
                assert answer.status == status, script
                assert answer.error["type"] == "server_error"
                assert backend.requests[-1].answered_at is not None or backend.requests[-1].peer_closed_at
        for _ in range(3):
            await backend.refuse()
            gateway.upstream.close()
            refused = await gateway.caller().send()
            assert refused.status == 502
            assert "127.0.0.1" not in refused.body.decode()
            await backend.listen()
        assert {e.outcome for e in gateway.told} == {"failed"}
        backend.default = Json()
        await probe(gateway, backend)


async def test_a_request_refused_here_costs_nothing():
    """A03 A request refused locally must cost nothing."""
    quotas = ScriptedQuotas()
    async with FakeBackend() as backend:
        world = with_queue(a_world(backend, pool=a_pool(limit=1)), max_size=1)
        world = with_grants(world, requests_per_min=1)
        async with running(world, quotas=quotas) as gateway:
            assert (await gateway.caller().send(b"{")).status == 400
            assert (await gateway.caller().send(chat(model="nope"))).status == 404
            assert not quotas.held
            assert not quotas.settled
            backend.then(Hold())
            first = await gateway.caller().open()
            await backend.until(lambda: backend.in_flight == 1)
            second = await gateway.caller().open()
            await until(lambda: len(quotas.held) == 2)
            assert_shed(await gateway.caller().send(), "queue_full")
            assert len(quotas.held) == 2  # the third was never charged
            backend.release()
            for one in (first, second):
                assert (await (await one.head()).rest()).status == 200
            await gateway.rest()
            assert len(quotas.settled) == 2
            assert list(quotas.settled.values()) == [12, 12]


async def test_a_request_refused_for_concurrency_costs_no_rate():
    """A03 A request refused locally must cost nothing: with the real quotas."""
    async with FakeBackend() as backend:
        world = with_grants(a_world(backend), requests_per_min=2, requests_burst=2, concurrency=1)
        async with running(world, quotas="real") as gateway:
            backend.then(Hold())
            first = await gateway.caller().open()
            await backend.until(lambda: backend.in_flight == 1)
            for _ in range(5):
                assert_shed(await gateway.caller().send(), "concurrency_limited")
            backend.release()
            assert (await (await first.head()).rest()).status == 200
            second = await gateway.caller().send()
            assert second.status == 200
            assert second.header("x-ratelimit-remaining-requests") == "0"
            assert_shed(await gateway.caller().send(), "rate_limited")
            assert (await gateway.caller("t1").send()).status == 200
            await gateway.rest()


@pytest.mark.parametrize("stream", [True, False])
async def test_streamed_tokens_count_in_both_directions(stream: bool):
    """A06 Streamed tokens count, both directions."""
    async with FakeBackend(Sse(20, prompt=30)) as backend:
        world = with_grants(a_world(backend), tokens_per_min=100, tokens_burst=100)
        async with running(world, quotas="real") as gateway:
            left = []
            for _ in range(2):
                assert (await gateway.caller().send(chat(stream=stream))).status == 200
                await gateway.rest()
                standing = gateway.quotas.standing("t0", "pool")
                left.append(standing.tokens.remaining)
            assert left == [50, 0]
            third = await gateway.caller().send(chat(stream=stream))
            assert_shed(third, "token_limited")
            assert third.header("x-ratelimit-remaining-tokens") == "0"
            assert len(backend.requests) == 2


async def test_a_reservation_closes_the_race_and_settling_gives_the_rest_back():
    """A07 Reservation closes the race, settlement gives the rest back."""
    async with FakeBackend(Hold()) as backend:
        pool = a_pool(limit=50)
        world = with_queue(a_world(backend, pool=pool), max_size=50)
        world = with_grants(world, tokens_per_min=1000, tokens_burst=1000)
        async with running(world, quotas="real") as gateway:
            twenty = [asyncio.create_task(gateway.caller().send(chat(max_tokens=400))) for _ in range(20)]
            await until(lambda: sum(t.done() for t in twenty) >= 16)
            passed = backend.in_flight
            assert 1 <= passed <= 4  # prompt and predicted output, at most max_tokens, for each
            for task in twenty:
                if task.done():
                    assert_shed(task.result(), "token_limited")
            backend.default = Json()
            backend.release()
            answers = await asyncio.gather(*twenty)
            assert sum(a.status == 200 for a in answers) == passed
            await gateway.rest()
            assert gateway.quotas.standing("t0", "pool").tokens.remaining >= 1000 - passed * 12 - 1
            assert (await gateway.caller().send()).status == 200


@pytest.mark.parametrize("limit", [1, 3])
async def test_the_limit_is_exact_under_a_burst(limit: int):
    """A05 The limit is exact under a burst."""
    async with FakeBackend(Json(delay_s=0.02)) as backend:
        world = with_queue(a_world(backend, pool=a_pool(limit=limit)), max_size=50, timeout_s=10.0)
        async with running(world) as gateway:
            answers = await asyncio.gather(*(gateway.caller().send() for _ in range(50)))
            assert {a.status for a in answers} == {200}
            assert backend.max_in_flight == limit
            await gateway.rest()


@pytest.mark.parametrize("has_quota", [True, False])
async def test_max_tokens_absent_null_zero_negative_text_and_huge(has_quota: bool):
    """A08 max_tokens absent, null, 0, negative, text."""
    quotas = ScriptedQuotas()
    asked: list[int] = []

    def answer(ticket: str, _tenant: str, _pool: str, tokens: int) -> QuotaGranted:
        asked.append(tokens)
        return QuotaGranted(ticket)

    quotas.answer = answer
    async with FakeBackend() as backend:
        world = a_world(backend)
        if has_quota:
            world = with_grants(world, tokens_per_min=1000)
        async with running(world, quotas=quotas) as gateway:
            absent = chat()
            del absent["max_tokens"]
            for body in (absent, chat(max_tokens=None), chat(max_tokens=16), chat(max_tokens=10**12)):
                assert (await gateway.caller().send(body)).status == 200
            assert (
                await gateway.caller().send(json.dumps(chat()).replace("16", "1e12").encode())
            ).status == 200
            for bad in (0, -5, "16", 1.5, True, []):
                for name in ("max_tokens", "max_completion_tokens"):
                    answer_bad = await gateway.caller().send(chat(**{name: bad}))
                    assert answer_bad.status == 400, (name, bad)
                    assert answer_bad.error["param"] == name
            most = world.pools[0].policy.max_output_tokens
            assert len(asked) == (5 if has_quota else 0)
            assert all(0 < tokens <= most + 100 for tokens in asked)
            await gateway.rest()


async def test_queue_timeout_is_not_an_execution_timeout():
    """A11 Queue timeout is not an execution timeout."""
    async with FakeBackend() as backend:
        world = with_queue(a_world(backend, pool=a_pool(limit=1)), timeout_s=0.4)
        async with running(world) as gateway:
            backend.then(HdrDelay(0.25), HdrDelay(1.2))
            first = asyncio.create_task(gateway.caller().send())
            await backend.until(lambda: backend.in_flight == 1)
            second = asyncio.create_task(gateway.caller().send())  # waits 0.25 s, then needs 1.2 s
            await first
            began = time.monotonic()
            third = await gateway.caller().send(chat(user="late"))
            waited = time.monotonic() - began
            assert_shed(third, "queue_timeout")
            assert "queue" in third.error["message"]
            assert 0.39 < waited < 0.7
            assert (await second).status == 200
            assert "late" not in [r.json.get("user") for r in backend.requests]
            assert gateway.told[-1].outcome == "completed"
            assert all(b.failures == 0 for b in gateway.keeper.view().backends)
            await probe(gateway, backend, limit=1)


async def test_one_tenants_backlog_does_not_hide_another():
    """A12 One tenant's backlog does not hide another."""
    async with FakeBackend(Json(delay_s=0.005)) as backend:
        world = with_queue(a_world(backend, pool=a_pool(limit=1)), max_size=60, timeout_s=20.0)
        async with running(world) as gateway:
            backend.then(Hold())
            first = asyncio.create_task(gateway.caller("t2").send())
            await backend.until(lambda: backend.in_flight == 1)
            many = [asyncio.create_task(gateway.caller("t2").send(chat(user="many"))) for _ in range(60)]
            await until(lambda: sum(q.waiting for q in gateway.keeper.view().queues) == 60)
            one = asyncio.create_task(gateway.caller("t2b").send(chat(user="one")))
            await until(lambda: sum(t.done() for t in many) == 1)  # the full queue made room
            backend.release()
            assert (await one).status == 200
            await first
            answers = await asyncio.gather(*many)
            order = [r.json.get("user") for r in backend.requests[1:]]
            assert order.index("one") <= 2
            assert sorted({a.status for a in answers}) == [200, 429]
            assert [a.error["reason"] for a in answers if a.status == 429] == ["displaced"]
            assert backend.max_in_flight == 1
            await gateway.rest()


async def test_the_lowest_tier_has_a_defined_end():
    """A13 Lowest tier has a defined end."""
    async with FakeBackend(Json(delay_s=0.01)) as backend:
        world = with_queue(a_world(backend, pool=a_pool(limit=1)), max_size=10, timeout_s=0.5)
        async with running(world) as gateway:
            stop = time.monotonic() + 2.0

            async def flood() -> None:
                while time.monotonic() < stop:
                    await gateway.caller("t0").send()

            floods = [asyncio.create_task(flood()) for _ in range(5)]
            answers: list[tuple[int, float]] = []
            while time.monotonic() < stop - 0.3:
                began = time.monotonic()
                answer = await gateway.caller("t2").send(chat(user="batch"))
                answers.append((answer.status, time.monotonic() - began))
                if answer.status == 429:
                    assert answer.error["reason"] in ("queue_timeout", "queue_full", "early_drop")
            await asyncio.gather(*floods)
            assert all(status in (200, 429) and took < 1.0 for status, took in answers)
            batch = sum(r.json.get("user") == "batch" for r in backend.requests)
            assert 0 < batch < len(backend.requests) / 2  # its floor, and P0 first
            await gateway.rest()


@pytest.mark.parametrize("script", [Rst(3), Fin(3)])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_backend_that_dies_mid_stream_is_told_truly_and_never_repeated(script: Any, stream: bool):
    """A16 Backend dies mid-stream: no false success, no replay."""
    quotas = ScriptedQuotas()
    async with FakeBackend() as one, FakeBackend() as other:
        world = with_grants(a_world(one, other), tokens_per_min=1000)
        async with running(world, quotas=quotas) as gateway:
            for backend in (one, other):
                backend.default = script
            answer = await gateway.caller().send(chat(stream=stream))
            assert len(one.requests) + len(other.requests) == 1
            if stream:
                assert answer.status == 200
                assert answer.text == "t0 t1 t2 "
                assert b"[DONE]" not in answer.body
                assert b'"finish_reason":"stop"' not in answer.body
                assert answer.events[-1]["error"]["code"] == "backend_error"
                assert answer.events[-1]["error"]["request_id"] == answer.header("x-request-id")
            else:
                assert answer.status == 502
            await gateway.rest()
            assert gateway.told[0].outcome == "failed"
            assert gateway.told[0].reason == "midstream"
            assert gateway.told[0].output_tokens == 3
            assert 3 <= next(iter(quotas.settled.values())) <= 20
            for backend in (one, other):
                backend.default = Json()
            assert (await gateway.caller().send(chat(stream=stream))).status == 200


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, False),
        ({"stream_options": None}, False),
        ({"stream_options": {"include_usage": False}}, False),
        ({"stream_options": {"include_usage": True}}, True),
        ({"stream_options": {"include_obfuscation": False}}, False),
        ({"stream_options": {"include_usage": True, "x": [1]}}, True),
    ],
)
async def test_the_usage_chunk_goes_only_to_those_who_asked(options: dict[str, Any], asked: bool):
    """A17 Usage chunk only for those who asked."""
    quotas = ScriptedQuotas()
    async with FakeBackend() as backend:
        world = with_grants(a_world(backend), tokens_per_min=1000)
        async with running(world, quotas=quotas) as gateway:
            answer = await gateway.caller().send(chat(stream=True, **options))
            empty = [e for e in answer.events if isinstance(e, dict) and not e["choices"]]
            if asked:
                assert [e["usage"]["total_tokens"] for e in empty] == [12]
                assert answer.events[-2] is not None
                assert answer.events.index(empty[0]) == len(answer.events) - 2
            else:
                assert not empty
                assert b'"usage"' not in answer.body
            assert answer.events[-1] == "[DONE]"
            seen = backend.requests[0].json["stream_options"]
            assert seen == {**(options.get("stream_options") or {}), "include_usage": True}
            await gateway.rest()
            assert list(quotas.settled.values()) == [12]


async def test_silence_before_the_first_token_is_bridged_by_comments_where_a_pool_says_so():
    """A18 Silence before the first token."""
    pool = a_pool(sse_keepalive_s=0.1)
    async with FakeBackend(Sse(2, first_s=0.55)) as backend, running(a_world(backend, pool=pool)) as gateway:
        conversation = await gateway.caller().open(chat(stream=True))
        began = time.monotonic()
        await conversation.head()
        assert time.monotonic() - began < 0.4
        first = [await conversation.piece() for _ in range(4)]
        assert first == [b": keep-alive\n\n"] * 4
        answer = await conversation.rest()
        assert answer.text == "t0 t1 "
        after_data = answer.body[answer.body.find(b"data:") :]
        assert b": keep-alive" not in after_data
        await gateway.rest()
        assert 0.5 < (gateway.told[0].ttft_s or 0) < 1.0
        backend.default = HdrDelay(0.4, Status(500))  # no headers yet: nothing is committed
        assert (await gateway.caller().send(chat(stream=True))).status == 502


async def test_the_status_line_waits_for_the_first_event_by_default():
    """A18 Silence before the first token."""
    async with FakeBackend(Sse(2, first_s=0.3)) as backend, running(a_world(backend)) as gateway:
        conversation = await gateway.caller().open(chat(stream=True))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(conversation.reader.readexactly(1), 0.15)
        await conversation.close()
        error = Raw((b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n",
                     b'data: {"error":{"message":"boom","code":500}}\n\ndata: [DONE]\n\n'), "fin")  # fmt: skip
        backend.default = error
        assert (await gateway.caller().send(chat(stream=True))).status == 502
        assert (await gateway.caller().send(chat())).status == 502


async def test_retry_after_is_usable_and_spread():
    """A22 Retry-After values are usable and spread."""
    async with FakeBackend(Hold()) as backend:
        world = with_queue(a_world(backend), max_size=4, timeout_s=30.0)
        async with running(world) as gateway:
            backend.then(*[Json(delay_s=0.01)] * 4)  # a rate is known
            for _ in range(4):
                await gateway.caller().send()
            held = [await gateway.caller().open() for _ in range(6)]
            await until(lambda: sum(q.waiting for q in gateway.keeper.view().queues) == 4)
            answers = [await gateway.caller().send() for _ in range(200)]
            values, exact, resets = (
                [int(a.header(name) or 0) for a in answers]
                for name in ("retry-after", "retry-after-ms", "x-ratelimit-reset")
            )
            now = time.time()
            assert {a.status for a in answers} == {429}
            assert {a.error["code"] for a in answers} == {"CAPACITY_OVERLOAD"}
            assert all(a.header("retry-after").isdigit() for a in answers)
            assert all(1 <= v <= 60 for v in values)
            assert all(1 <= ms <= 1000 * v for ms, v in zip(exact, values, strict=True))
            assert all(a.error["retry_after_seconds"] == v for a, v in zip(answers, values, strict=True))
            assert all(now - 5 <= r <= now + 61 for r in resets)
            assert len(set(values)) >= 3
            assert max(values.count(v) for v in set(values)) <= 80
            for one in held:
                await one.close()
            await gateway.rest()


@pytest.mark.parametrize(
    ("reason", "wait_s", "code", "kind"),
    [
        (ShedReason.RATE_LIMITED, 2.4, "rate_limit_exceeded", "requests"),
        (ShedReason.TOKEN_LIMITED, 7.0, "rate_limit_exceeded", "tokens"),
        (ShedReason.CONCURRENCY_LIMITED, 1.2, "rate_limit_exceeded", "requests"),
        (ShedReason.TOKEN_LIMITED, 90.0, "rate_limit_exceeded", "tokens"),
        (ShedReason.QUOTA_EXHAUSTED, None, "insufficient_quota", "insufficient_quota"),
    ],
)
async def test_an_empty_bucket_names_its_real_refill(
    reason: ShedReason, wait_s: float | None, code: str, kind: str
):
    """A22 Retry-After values are usable and spread: token buckets."""
    quotas = ScriptedQuotas()
    async with FakeBackend() as backend:
        world = with_grants(a_world(backend), requests_per_min=10)
        async with running(world, quotas=quotas) as gateway:
            at = None if wait_s is None else time.monotonic() + wait_s
            quotas.answer = lambda ticket, *_: QuotaDenied(ticket, reason, at)
            answer = await gateway.caller().send()
            assert answer.status == 429
            assert (answer.error["code"], answer.error["type"], answer.error["reason"]) == (
                code,
                kind,
                reason,
            )
            if wait_s is not None and wait_s <= 60:
                assert wait_s - 0.5 < int(answer.header("retry-after") or 0) <= wait_s + 1.5
                assert answer.header("x-should-retry") == "true"
            else:
                assert not {"retry-after", "retry-after-ms"} & {name for name, _ in answer.headers}
                assert answer.header("x-should-retry") == "false"
                assert answer.error["retry_after_seconds"] is None
            reset = int(answer.header("x-ratelimit-reset") or 0)
            if wait_s is not None:
                assert abs(reset - (time.time() + wait_s)) < 2
            else:  # the month's end
                assert reset > time.time()
                assert time.gmtime(reset)[2:6] == (1, 0, 0, 0)
            assert not backend.requests
            assert gateway.is_at_rest()


BREAKER = BreakerPolicy(min_requests=5, failure_ratio=0.5, open_s=0.4, half_open_probes=1, ramp_s=0.3)


def breaker_of(gateway: RunningGateway) -> str:
    return gateway.keeper.view().backends[0].breaker.value


async def test_client_errors_are_passed_on_and_are_not_breakage():
    """A24 Client errors and back-pressure are not breakage: 4xx."""
    async with FakeBackend() as backend, running(a_world(backend, pool=a_pool(breaker=BREAKER))) as gateway:
        for code in (400, 404, 422):
            body = json.dumps({"error": {"message": f"no {code}", "type": "x"}}).encode()
            backend.then(*[Status(code, body=body)] * 50)
            for n in range(50):
                answer = await gateway.caller().send(chat(stream=n % 2 == 0))
                assert (answer.status, answer.body) == (code, body)
            assert breaker_of(gateway) == "closed"
            assert (await gateway.caller().send()).status == 200
        await gateway.rest()


@pytest.mark.parametrize("code", BUSY)
async def test_a_busy_engine_is_back_pressure(code: int):
    """A24 Client errors and back-pressure are not breakage: 429 and 503."""
    async with FakeBackend() as backend, running(a_world(backend, pool=a_pool(breaker=BREAKER))) as gateway:
        backend.then(*[Status(code, (("Retry-After", "1"),))] * 2)
        began = time.monotonic()
        answer = await gateway.caller().send()
        assert_shed(answer, "engine_busy")
        assert (
            0.9 < time.monotonic() - began < 3
        )  # it went back to its queue once, for as long as the engine said
        assert len(backend.requests) == 2
        await asyncio.sleep(1.05)
        backend.then(Status(code, (("Retry-After", "0"),)))
        assert (await gateway.caller().send()).status == 200
        assert breaker_of(gateway) == "closed"
        await gateway.rest()


@pytest.mark.parametrize("kind", ["status", "connection", "timeout"])
async def test_backend_faults_open_the_breaker(kind: str):
    """A24 Client errors and back-pressure are not breakage: what is."""
    pool = a_pool(breaker=replace(BREAKER, open_s=30.0), first_byte_timeout_s=0.05)
    async with FakeBackend() as backend, running(a_world(backend, pool=pool)) as gateway:
        backend.default = {"status": Status(500), "connection": CloseAtOnce(), "timeout": Hold()}[kind]
        statuses = [(await gateway.caller().send()).status for _ in range(10)]
        assert statuses[:5] == [504 if kind == "timeout" else 502] * 5
        assert statuses[5:] == [503] * 5
        assert breaker_of(gateway) == "open"
        assert len(backend.requests) == 5
        assert_shed(await gateway.caller().send(), "breaker_open", 503)


async def test_half_open_lets_a_bounded_number_through():
    """A25 Half-open lets a bounded number through."""
    async with FakeBackend(Status(500)) as backend:
        world = with_queue(a_world(backend, pool=a_pool(limit=20, breaker=BREAKER)), max_size=100)
        async with running(world) as gateway:
            for _ in range(5):
                await gateway.caller().send()
            assert breaker_of(gateway) == "open"
            backend.default = Hold()
            begun = len(backend.requests)
            await asyncio.sleep(0.45)
            fifty = [asyncio.create_task(gateway.caller().send()) for _ in range(50)]
            await until(lambda: sum(t.done() for t in fifty) == 49)
            refused = [t.result() for t in fifty if t.done()]
            for answer in refused:
                assert_shed(answer, "breaker_open", 503)
            assert len(backend.requests) - begun == 1
            backend.default = Json()
            backend.release()
            answers = await asyncio.gather(*fifty)
            assert sorted(a.status for a in answers) == [200] + [503] * 49
            assert (await gateway.caller().send()).status == 200
            await gateway.rest()


async def test_a_manual_override_wins():
    """A26 Manual override wins and shows."""
    async with FakeBackend() as backend, running(a_world(backend, pool=a_pool(breaker=BREAKER))) as gateway:

        def override(value: str) -> OverridesReceived:
            end = time.monotonic() + 60
            return OverridesReceived(
                (Override(kind=OverrideKind.BREAKER, target="be1", value=value, expires_at=end),)
            )

        gateway.keeper.feed(override("open"))
        for _ in range(10):
            assert_shed(await gateway.caller().send(), "breaker_open", 503)
        assert not backend.requests
        assert breaker_of(gateway) == "forced-open"
        gateway.keeper.feed(override("closed"))
        backend.default = Status(500)
        for _ in range(20):
            assert (await gateway.caller().send()).status == 502
        assert breaker_of(gateway) == "forced-closed"
        backend.default = Json()
        gateway.keeper.feed(OverridesReceived(()))
        assert (await gateway.caller().send()).status == 200
        assert breaker_of(gateway) == "closed"
        await gateway.rest()


async def test_no_secret_is_in_any_answer_header_or_record(caplog: pytest.LogCaptureFixture, capsys: Any):
    """A37 No key in answers or logs."""
    caplog.set_level("DEBUG")
    credential = "sk-backend-credential-0123456789"
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        keys = tuple(
            msgspec.structs.replace(k, expires_at=1.0) if k.tenant == "t1" else k
            for k in gateway.snapshot.keys
        )
        gateway.apply(msgspec.structs.replace(gateway.snapshot, keys=keys))
        gateway.state.applied.credentials["be1"] = credential  # type: ignore[index, union-attr]
        expired, unknown = key_of("t1").key, keyring.mint("test", bytes(48)).key
        secrets = [expired, unknown, "no-prefix-secret-9876543210", key_of("t0").key, credential]
        answers = [await Caller(gateway.port, key).send() for key in secrets[:3]]
        answers.append(await Caller(gateway.port, "").send(path=f"/v1/chat/completions?api_key={secrets[3]}"))
        assert [(a.status, a.header("www-authenticate")) for a in answers] == [(401, "Bearer")] * 4
        told = json.dumps({"error": {"message": f"Incorrect API key provided: {credential}"}}).encode()
        backend.then(Status(401, body=told), Status(403, body=told), Status(500, body=told))
        answers += [await gateway.caller().send() for _ in range(3)]
        assert [a.status for a in answers[-3:]] == [502, 502, 502]
        assert backend.requests[0].header("authorization") == [f"Bearer {credential}"]
        await backend.refuse()
        answers.append(await gateway.caller().send())
        everything = b"".join(a.body + repr(a.headers).encode() for a in answers).decode()
        everything += msgspec.json.encode(gateway.told).decode() + caplog.text + "".join(capsys.readouterr())
        everything += repr(gateway.state.applied)
        for secret in secrets:
            assert secret not in everything
            assert secret[-40:] not in everything


async def test_the_backends_address_cannot_be_steered():
    """A39 Backend address cannot be steered."""
    async with FakeBackend() as backend, FakeBackend() as evil, running(a_world(backend)) as gateway:
        steering = dict.fromkeys(("api_base", "base_url", "url", "backend", "endpoint"), evil.url)
        answer = await gateway.caller().send(
            chat(**steering), headers={"x-forwarded-host": "evil", "x-backend": evil.url}
        )
        assert answer.status == 200
        assert not {"api_base", "base_url"} & set(backend.requests[0].json)
        assert not backend.requests[0].header("x-forwarded-host")
        for path in (
            "/v1/../admin",
            "//evil/",
            f"{evil.url}/v1/chat/completions",
            "/v1/chat/completions/../../x",
        ):
            assert (await gateway.caller().send(path=path)).status in (400, 404)
        assert len(backend.requests) == 1
        assert not evil.requests


async def test_what_is_counted_stays_bounded_whatever_is_sent():
    """A42 Metric labels are bounded."""
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        await gateway.caller().send()

        def series() -> int:
            return len(gateway.tally.traffic) + len(gateway.tally.responses) + len(gateway.tally.tiers)

        before = series()
        for n in range(300):
            headers = {"user-agent": f"agent-{n}", "x-request-id": f"id-{n}\u00e9" + "y" * 300}
            await gateway.caller().send(chat(model=f"random-{n}"), headers=headers)
            await gateway.caller().send(path=f"/v1/random-{n}")
            await Caller(gateway.port, f"sg_test_{n}").send()
        assert series() - before < 10
        assert {e.path for e in gateway.told} == {"/v1/chat/completions", "(other)"}
        assert not [e.model for e in gateway.told if e.model.startswith("random")]
        assert all(len(e.client_id) <= 64 and e.client_id.isprintable() for e in gateway.told)
        assert max(len(msgspec.json.encode(e)) for e in gateway.told) < 1500


async def test_an_orderly_end_without_its_marker_is_no_success():
    """A16 Backend dies mid-stream: the orderly kind."""
    events = chat_chunk({"content": "half"})
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    async with FakeBackend(Raw((head, events), "fin")) as backend, running(a_world(backend)) as gateway:
        answer = await gateway.caller().send(chat(stream=True))
        assert answer.status == 200
        assert answer.body.startswith(events)
        assert "error" in answer.events[-1]
        assert (await gateway.caller().send(chat())).status == 502
