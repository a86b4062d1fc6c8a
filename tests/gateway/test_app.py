import asyncio
import json
import random

import msgspec
import pytest

from gateway.app import App
from gateway.contract import keyring
from gateway.contract.snapshot import GrantSpec, KeySpec, PoolSpec, TenantSpec
from gateway.core.events import DrainStarted
from gateway.core.policy import PoolPolicy
from gateway.departure import EXTENSION, Departure
from gateway.requests.endpoints import ENDPOINTS
from tests.fakes.backend import FakeBackend, Hold, Json
from tests.fakes.caller import Caller, chat
from tests.fakes.gateway import PEPPER, Settings, a_pool, a_world, key_of, running

pytestmark = pytest.mark.loop


async def test_a_chat_completion_comes_back_whole_with_the_engines_usage():
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        answer = await gateway.caller().send(chat())
        assert answer.status == 200
        assert answer.json["object"] == "chat.completion"
        assert answer.json["choices"][0]["message"]["content"] == "t0 t1 t2 t3 t4 t5 t6 "
        assert answer.json["usage"] == {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
        assert backend.requests[0].streams
        assert backend.requests[0].wants_usage
        await gateway.rest()


async def test_a_streamed_chat_completion_comes_back_event_by_event():
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        answer = await gateway.caller().send(chat(stream=True))
        assert answer.header("content-type") == "text/event-stream"
        assert answer.text == "t0 t1 t2 t3 t4 t5 t6 "
        assert answer.events[-1] == "[DONE]"
        await gateway.rest()


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b"{", 400, None),
        (b"", 400, None),
        (b"[]", 400, None),
        (b"\xff\xfe", 400, None),
        (b'{"model":"m"}', 400, "messages"),
        (b'{"messages":[]}', 400, "model"),
        (b'{"model":7,"messages":[]}', 400, "model"),
        (b'{"model":"m","messages":[{"role":"user","content":7}]}', 400, "messages[0].content"),
        (b'{"model":"m","messages":[],"stream":"yes"}', 400, "stream"),
        (
            b'{"model":"m","messages":[],"stream_options":{"include_usage":1}}',
            400,
            "stream_options.include_usage",
        ),
        (b'{"model":"m","messages":[],"n":0}', 400, "n"),
        (b'{"model":"nope","messages":[]}', 404, "model"),
        (b'{"model":"' + b"n" * 5000 + b'","messages":[]}', 404, "model"),
        (b'{"model":"m","messages":' + b"[" * 50_000, 400, "messages[0]"),
        (b'{"model":"m","messages":[],"deep":' + b"[" * 50_000 + b"]" * 50_000 + b"}", 400, None),
    ],
)
async def test_a_body_that_makes_no_sense_is_answered_with_its_fault(
    body: bytes, status: int, param: str | None
):
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        answer = await gateway.caller().send(body)
        assert answer.status == status
        assert answer.error["param"] == param
        assert answer.error["type"] == "invalid_request_error"
        assert answer.error["request_id"] == answer.header("x-request-id")
        assert answer.header("x-should-retry") == "false"
        assert len(answer.body) < 1000
        assert not backend.requests
        assert gateway.is_at_rest()


@pytest.mark.parametrize(
    "key", ["", "sg_x", "sk-abc", keyring.mint("test", bytes(48)).key, key_of("t0").key[:-1] + "!"]
)
async def test_an_unknown_key_is_401_before_the_body_is_read(key: str):
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        conversation = await Caller(gateway.port, key).open(b"", headers={"content-length": "1000000"})
        head = await asyncio.wait_for(conversation.head(), 2)
        answer = await conversation.rest()
        assert head.status == 401
        assert answer.header("www-authenticate") == "Bearer"
        assert answer.error["code"] == "invalid_api_key"


async def test_a_key_is_taken_from_x_api_key_too():
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        caller = Caller(gateway.port, "")
        answer = await caller.send(chat(), headers={"authorization": "", "x-api-key": key_of("t1").key})
        assert answer.status == 200
        assert gateway.told[0].tenant == "t1"


async def test_disabled_and_expired_keys_and_disabled_tenants_are_401_at_once():
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        assert (await gateway.caller().send()).status == 200
        plain = gateway.snapshot
        first, *others = plain.keys
        for changed in ({"enabled": False}, {"expires_at": 1.0}, {"digests": ("0" * 64,)}):
            keys = (msgspec.structs.replace(first, **changed), *others)
            gateway.apply(msgspec.structs.replace(plain, keys=keys))
            assert (await gateway.caller().send()).status == 401, changed
        gone = msgspec.structs.replace(plain, keys=tuple(others))
        gateway.apply(gone)
        assert (await gateway.caller().send()).status == 401
        tenants = (TenantSpec(name="t0", enabled=False), *plain.tenants[1:])
        gateway.apply(msgspec.structs.replace(plain, tenants=tenants))
        assert (await gateway.caller().send()).status == 401
        gateway.apply(plain)
        assert (await gateway.caller().send()).status == 200


async def test_both_secrets_are_accepted_while_a_key_rotates():
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        old = key_of("t0")
        new = old.key[:21] + "N" * 43
        new += keyring._checksum(new)  # the same public id with another secret
        assert keyring.public_id_of(new) == old.public_id
        digests = (keyring.digest(PEPPER, new), keyring.digest(PEPPER, old.key))
        keys = (KeySpec(public_id=old.public_id, tenant="t0", digests=digests),)
        gateway.apply(msgspec.structs.replace(gateway.snapshot, keys=keys))
        assert (await Caller(gateway.port, old.key).send()).status == 200
        assert (await Caller(gateway.port, new).send()).status == 200
        keys = (KeySpec(public_id=old.public_id, tenant="t0", digests=digests[:1]),)
        gateway.apply(msgspec.structs.replace(gateway.snapshot, keys=keys))
        assert (await Caller(gateway.port, old.key).send()).status == 401
        assert (await Caller(gateway.port, new).send()).status == 200


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/files", "/v1/../admin", "//evil/", "/metrics", "/v1/chat/completions/"]
)
async def test_other_paths_are_404(path: str):
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        answer = await gateway.caller().send(path=path)
        assert answer.status == 404
        assert answer.error["code"] == "unknown_url"
        assert gateway.told[0].path == "(other)"
        assert not backend.requests


async def test_other_methods_are_405():
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        answer = await gateway.caller().send(method="GET")
        assert answer.status == 405
        assert answer.header("allow") == "POST"
        assert (await gateway.caller().send(path="/v1/models")).status == 405


async def test_models_lists_what_the_tenant_may_use_and_nothing_else():
    async with FakeBackend() as backend:
        other = PoolSpec(policy=PoolPolicy(name="other"), models=("secret-model",))
        world = a_world(backend, pool=a_pool("pool", "m", "m-alias"))
        world = msgspec.structs.replace(
            world,
            pools=(*world.pools, other),
            grants=(*world.grants, GrantSpec(tenant="t1", pool="other", tier=1)),
        )
        async with running(world) as gateway:
            first = await gateway.caller("t0").send(method="GET", path="/v1/models")
            second = await gateway.caller("t1").send(method="GET", path="/v1/models")
            assert [m["id"] for m in first.json["data"]] == ["m", "m-alias"]
            assert [m["id"] for m in second.json["data"]] == ["m", "m-alias", "secret-model"]
            assert (await gateway.caller("t0").send(chat(model="secret-model"))).status == 404
            assert (await Caller(gateway.port, "x").send(method="GET", path="/v1/models")).status == 401


async def test_an_alias_is_rewritten_to_what_the_backends_call_the_model():
    async with (
        FakeBackend() as backend,
        running(a_world(backend, pool=a_pool("pool", "m", "nick"))) as gateway,
    ):
        assert (await gateway.caller().send(chat(model="nick"))).status == 200
        assert backend.requests[0].json["model"] == "m"


async def test_bodies_over_the_limit_are_413_with_and_without_a_length():
    settings = Settings(max_body_bytes=2048)
    async with FakeBackend() as backend, running(a_world(backend), settings=settings) as gateway:
        large = json.dumps(chat(pad="x" * 4096)).encode()
        assert (await gateway.caller().send(large)).status == 413
        chunked = b"1000\r\n" + b"[" * 4096 + b"\r\n" + b"0\r\n\r\n"
        headers = {"transfer-encoding": "chunked", "content-length": None}
        assert (await gateway.caller().send(chunked, headers=headers)).status == 413
        assert not backend.requests


async def test_a_coded_body_is_415():
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        answer = await gateway.caller().send(b"\x1f\x8b", headers={"content-encoding": "gzip"})
        assert answer.status == 415
        assert answer.error["param"] == "Content-Encoding"


async def test_the_memory_for_bodies_is_bounded():
    settings = Settings(buffer_budget_bytes=4096)
    async with FakeBackend(Hold()) as backend, running(a_world(backend), settings=settings) as gateway:
        first = await gateway.caller().open(chat(pad="x" * 3000))
        await backend.until(lambda: backend.in_flight == 1)
        refused = await gateway.caller().send(chat(pad="x" * 3000))
        assert refused.status == 503
        assert refused.error["reason"] == "gateway_overload"
        assert int(refused.header("retry-after") or 0) >= 1
        backend.release()
        assert (await (await first.head()).rest()).status == 200
        await gateway.rest()
        backend.default = None
        backend.then(Hold())
        last = await gateway.caller().open(chat(pad="x" * 3000))
        await backend.until(lambda: backend.in_flight == 1)
        backend.release()
        assert (await (await last.head()).rest()).status == 200


async def test_a_draining_gateway_refuses_before_it_reads_the_body():
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        gateway.keeper.feed(DrainStarted())
        conversation = await gateway.caller().open(b"", headers={"content-length": "100000"})
        answer = await (await conversation.head()).rest()
        assert answer.status == 503
        assert answer.error["reason"] == "draining"
        assert answer.header("connection") == "close"


async def test_without_a_snapshot_everything_is_503():
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        gateway.state.applied = None
        for answer in (
            await gateway.caller().send(),
            await gateway.caller().send(method="GET", path="/v1/models"),
        ):
            assert answer.status == 503
            assert answer.error["reason"] == "no_backend"


async def test_a_key_may_lower_its_tier_and_a_header_may_lower_it_further_but_never_raise_it():
    """A38 Priority is not for the client to choose."""
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        keys = (replace_key(gateway.snapshot.keys[0], tier=1), *gateway.snapshot.keys[1:])
        gateway.apply(msgspec.structs.replace(gateway.snapshot, keys=keys))
        for headers, tier in (
            ({}, 1),
            ({"x-sluicegate-tier": "2"}, 2),
            ({"x-sluicegate-tier": "P2"}, 2),
            ({"x-sluicegate-tier": "batch-extraction"}, 2),
            ({"x-sluicegate-tier": "0"}, 1),
            ({"x-sluicegate-tier": "P0"}, 1),
            ({"x-sluicegate-tier": "nonsense"}, 1),
            ({"x-priority": "0", "x-tier": "P0", "x-tenant-id": "t2"}, 1),
        ):
            answer = await gateway.caller("t0").send(chat(priority=-10), headers=headers)
            assert answer.status == 200
            assert (gateway.told[-1].tier, gateway.told[-1].tenant) == (tier, "t0")
            seen = backend.requests[-1]
            assert seen.header("x-sluicegate-tier") == [str(tier)]
            assert not [
                n for n, _ in seen.headers if n in ("x-priority", "x-tier", "x-tenant-id", "authorization")
            ]
            assert "priority" not in seen.json
        assert gateway.app.raises_ignored == 3


def replace_key(key: KeySpec, **changes: object) -> KeySpec:
    return msgspec.structs.replace(key, **changes)


async def test_the_request_id_and_the_trace_are_passed_on():
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        answer = await gateway.caller().send(
            headers={"traceparent": trace, "x-request-id": "mine " + "x" * 100}
        )
        assert backend.requests[0].header("traceparent") == [trace]
        assert backend.requests[0].header("x-request-id") == [answer.header("x-request-id")]
        assert gateway.told[0].traceparent == trace
        assert gateway.told[0].client_id == "mine?" + "x" * 59
        await gateway.caller().send(headers={"traceparent": "not a trace"})
        assert gateway.told[1].traceparent == ""


NAMES = (
    "model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n", "best_of", "tools",
    "prompt", "input", "instructions", "system", "query", "documents", "content", "prompt_logprobs", "priority", "",
)  # fmt: skip
ATOMS = (
    None, True, False, 0, -1, 1, 16, 1.5, 1e308, -1e308, 10**30, "", "m", "x" * 300, "\u0000", "\ud83d\ude00", [], {},
    [[]], [{}], [None], {"role": "user", "content": "hi"}, {"type": "text", "text": None}, {"include_usage": True},
)  # fmt: skip
HEADERS = (
    b"x-request-timeout-ms", b"x-stainless-retry-count", b"x-stainless-timeout", b"idempotency-key", b"accept-language",
    b"x-sluicegate-tier", b"traceparent", b"x-request-id", b"content-length", b"content-encoding", b"x-api-key",
    b"tracestate", b"anthropic-version", b"openai-beta",
)  # fmt: skip


class Fuzz:
    """Requests that are a little or very wrong, the same ones in each run."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311  # repeatable

    def value(self, depth: int = 0) -> object:
        kind = self.dice.random()
        if kind < 0.6 or depth > 3:
            return self.dice.choice(ATOMS)
        if kind < 0.8:
            return [self.value(depth + 1) for _ in range(self.dice.randrange(4))]
        return {self.dice.choice(NAMES): self.value(depth + 1) for _ in range(self.dice.randrange(4))}

    def body(self) -> bytes:
        members: dict[str, object] = {
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
            "input": "x",
        }
        for _ in range(self.dice.randrange(4)):
            members[self.dice.choice(NAMES)] = self.value()
        raw = bytearray(json.dumps(members).encode())
        for _ in range(self.dice.choice((0, 0, 0, 1, 5))):
            raw[self.dice.randrange(len(raw))] = self.dice.randrange(256)
        return bytes(raw[: self.dice.choice((len(raw), len(raw), len(raw), len(raw) // 2))])

    def headers(self) -> list[tuple[bytes, bytes]]:
        known = (b"authorization", b"Bearer " + key_of("t0").key.encode())
        odd = [
            (self.dice.choice(HEADERS), self.dice.randbytes(self.dice.randrange(12)))
            for _ in range(self.dice.randrange(3))
        ]
        return [known, *odd]


async def test_nothing_that_a_caller_sends_makes_a_500():
    fuzz = Fuzz(3)
    async with FakeBackend() as backend, running(a_world(backend, pool=a_pool(limit=50))) as gateway:
        statuses: dict[int, int] = {}

        async def one() -> None:
            body, sent = fuzz.body(), []
            messages = [{"type": "http.request", "body": body, "more_body": False}]

            async def receive() -> dict[str, object]:
                return messages.pop()

            async def send(message: dict[str, object]) -> None:
                sent.append(message)

            scope = {
                "type": "http",
                "method": fuzz.dice.choice(("POST", "POST", "POST", "GET", "PUT")),
                "path": fuzz.dice.choice((*ENDPOINTS, "/v1/chat/completions", "/v1/models", "/x")),
                "headers": fuzz.headers(),
                "extensions": {EXTENSION: Departure()},
            }
            await gateway.app(scope, receive, send)
            status = sent[0]["status"]
            assert sent[-1].get("more_body") is False, (scope, body)
            statuses[status] = statuses.get(status, 0) + 1

        for _ in range(60):
            await asyncio.gather(*(one() for _ in range(20)))
        assert set(statuses) <= {200, 400, 401, 404, 405, 409, 413, 415, 422, 429, 502}, statuses
        assert statuses[200] > 50
        assert statuses[400] > 100
        await gateway.rest()


class Plain:
    """A plain ASGI server: no departure in the scope, a body in pieces, `http.disconnect` when the caller has gone."""

    def __init__(self, *parts: bytes, tenant: str = "t0") -> None:
        self.messages: asyncio.Queue[dict[str, object]] = asyncio.Queue()
        for number, part in enumerate(parts, 1):
            self.messages.put_nowait({"type": "http.request", "body": part, "more_body": number < len(parts)})
        self.sent: list[dict[str, object]] = []
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/chat/completions",
            "headers": [(b"authorization", b"Bearer " + key_of(tenant).key.encode())],
        }

    def leave(self) -> None:
        self.messages.put_nowait({"type": "http.disconnect"})

    async def run(self, app: App) -> None:
        async def send(message: dict[str, object]) -> None:
            self.sent.append(message)

        await app(self.scope, self.messages.get, send)


async def test_it_serves_under_a_plain_asgi_server_too():
    raw = json.dumps(chat()).encode()
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        whole = Plain(raw[:10], raw[10:20], b"", raw[20:])
        await whole.run(gateway.app)
        assert whole.sent[0]["status"] == 200
        assert gateway.told[0].bytes_in == len(raw)
        backend.default = Hold()
        leaving = Plain(raw)
        task = asyncio.create_task(leaving.run(gateway.app))
        await backend.until(lambda: backend.in_flight == 1)
        leaving.leave()
        await asyncio.wait_for(task, 2)
        await backend.until(lambda: backend.in_flight == 0)
        await gateway.rest()
        assert gateway.told[-1].outcome == "abandoned"


async def test_a_caller_that_leaves_inside_its_body_is_not_answered():
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        for parts in ((), (b"{", b"")):
            leaving = Plain(*parts)
            if parts:  # the last piece never comes
                last = leaving.messages.get_nowait()
                leaving.messages = asyncio.Queue()
                leaving.messages.put_nowait(last)
            leaving.leave()
            await leaving.run(gateway.app)
            assert leaving.sent == []
            assert gateway.told[-1].status == 499
        assert gateway.is_at_rest()


async def test_a_body_in_pieces_is_bounded_by_what_came():
    settings = Settings(max_body_bytes=100)
    async with FakeBackend() as backend, running(a_world(backend), settings=settings) as gateway:
        for parts in ((b"x" * 60, b"x" * 60, b"x"), (b"x" * 101,)):
            large = Plain(*parts)
            await large.run(gateway.app)
            assert large.sent[0]["status"] == 413
        assert gateway.is_at_rest()


async def test_lifespan_is_answered():
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        server = Plain()
        server.scope = {"type": "lifespan"}
        for name in ("lifespan.startup", "lifespan.shutdown"):
            server.messages.put_nowait({"type": name})
        await server.run(gateway.app)
        assert [m["type"] for m in server.sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_without_a_model_the_tenants_only_pool_is_meant():
    async with FakeBackend(Json(always=True)) as backend, running(a_world(backend)) as gateway:
        assert (await gateway.caller().send({"prompt": "x"}, path="/tokenize")).status == 200
        grants = (*gateway.snapshot.grants, GrantSpec(tenant="t0", pool="other", tier=0))
        other = PoolSpec(policy=PoolPolicy(name="other"), models=("x",))
        gateway.apply(
            msgspec.structs.replace(gateway.snapshot, pools=(*gateway.snapshot.pools, other), grants=grants)
        )
        unclear = await gateway.caller().send({"prompt": "x"}, path="/tokenize")
        assert (unclear.status, unclear.error["param"]) == (400, "model")
