"""Field cases about bytes: cuts, sizes, codings, framing per hop, slow readers, through the real gateway."""

import asyncio
import gc
import gzip
import json
import os
import socket
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.contract.snapshot import Snapshot
from gateway.core.policy import BreakerPolicy
from tests.fakes.backend import DONE, FakeBackend, Flood, Hold, Json, Line, Raw, chat_chunk, usage_chunk
from tests.fakes.caller import chat
from tests.fakes.gateway import RunningGateway, ScriptedQuotas, Settings, a_pool, a_world, key_of, running
from tests.fakes.waiting import until
from tests.fakes.wire import talk

pytestmark = pytest.mark.loop

EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
WORDS = ("Grüße ", "你好世界 ", "🌊🚪 ", "a\u2028b", "tail")
ROLE = chat_chunk({"role": "assistant", "content": ""})
END = chat_chunk({}, finish="stop")
USAGE = usage_chunk(5, 7)


def counted(*backends: FakeBackend, **changes: Any) -> Snapshot:
    """A world whose tenants have LLM tokens per minute, so that they are settled."""
    world = a_world(*backends, **changes)
    grants = tuple(msgspec.structs.replace(grant, tokens_per_min=10_000_000) for grant in world.grants)
    return msgspec.structs.replace(world, grants=grants)


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def still_well(gateway: RunningGateway, backend: FakeBackend, limit: int = 2) -> None:
    """Every seat is free again, every queue place too, and the gateway answers."""
    await gateway.rest()
    await backend.until(lambda: backend.in_flight == 0)
    backend.default = Hold()
    held = [await gateway.caller().open() for _ in range(limit)]
    await backend.until(lambda: backend.in_flight == limit)
    waiting = [await gateway.caller().open() for _ in range(4)]
    await until(lambda: sum(queue.waiting for queue in gateway.keeper.view().queues) == 4)
    assert (await gateway.caller().send()).status == 429
    backend.default = Json()
    backend.release()
    answers = [await (await one.head()).rest() for one in (*held, *waiting)]
    assert [answer.status for answer in answers] == [200] * (limit + 4)
    await gateway.rest()


class ByteByByte:
    """A whole stream, each byte in a write of its own."""

    def __init__(self, stream: bytes, *, chunked: bool) -> None:
        self.stream = stream
        self.chunked = chunked

    async def __call__(self, line: Line) -> None:
        framing = b"Transfer-Encoding: chunked\r\n\r\n" if self.chunked else b"\r\n"
        await line.write(EVENTS + framing)
        for at in range(len(self.stream)):
            byte = self.stream[at : at + 1]
            await line.write(b"1\r\n" + byte + b"\r\n" if self.chunked else byte)
            await asyncio.sleep(0.001 if at % 16 == 0 else 0)
        if self.chunked:
            await line.write(b"0\r\n\r\n")
        else:
            line.fin()


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("asked", [False, True], ids=["not asked", "asked"])
@pytest.mark.parametrize("chunked", [False, True], ids=["until close", "chunked"])
async def test_bytes_pass_unchanged_whatever_the_cuts(ending: bytes, asked: bool, chunked: bool):
    """A14 Bytes pass unchanged, whatever the cuts."""
    quotas = ScriptedQuotas()
    words = [chat_chunk({"content": word}) for word in WORDS]
    stream = b"".join([ROLE, *words, END, USAGE, DONE]).replace(b"\n", ending)
    expected = stream if asked else b"".join([ROLE, *words, END, DONE]).replace(b"\n", ending)
    async with FakeBackend() as backend, running(counted(backend), quotas=quotas) as gateway:
        backend.then(ByteByByte(stream, chunked=chunked))
        options = {"stream_options": {"include_usage": True}} if asked else {}
        answer = await gateway.caller().send(chat(stream=True, **options))
        assert answer.is_whole
        assert answer.body == expected
        await gateway.rest()
        assert list(quotas.settled.values()) == [12]
        assert (gateway.told[0].prompt_tokens, gateway.told[0].output_tokens) == (5, 7)
        await still_well(gateway, backend)


@pytest.mark.parametrize("asked", [False, True])
async def test_a_two_mebibyte_event_is_delivered_intact(asked: bool):
    """A15 A 2 MiB data line is legal."""
    quotas = ScriptedQuotas()
    big = chat_chunk({"tool_calls": [{"index": 0, "function": {"arguments": "x" * (2 << 20)}}]})
    words = [ROLE, chat_chunk({"content": "a"}), big, chat_chunk({"content": "b"}), END]
    stream = b"".join([*words, USAGE, DONE])
    async with FakeBackend() as backend, running(counted(backend), quotas=quotas) as gateway:
        options = {"stream_options": {"include_usage": True}} if asked else {}
        await gateway.caller().send(chat(stream=True))
        before = resident()
        for _ in range(3):
            backend.then(Raw((EVENTS + b"\r\n", stream), end="fin"))
            answer = await gateway.caller().send(chat(stream=True, **options))
            assert answer.body == (stream if asked else b"".join([*words, DONE]))
        assert resident() - before < 20 << 20
        await gateway.rest()
        assert list(quotas.settled.values()) == [12] * 4
        await still_well(gateway, backend)


async def test_a_two_mebibyte_event_is_part_of_one_answer_too():
    """A15 A 2 MiB data line is legal: for a caller that did not ask to stream."""
    text = "x" * (2 << 20)
    stream = b"".join([ROLE, chat_chunk({"content": text}), END, USAGE, DONE])
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        backend.then(Raw((EVENTS + b"\r\n", stream), end="fin"))
        answer = await gateway.caller().send(chat())
        assert answer.status == 200
        assert answer.json["choices"][0]["message"]["content"] == text
        await still_well(gateway, backend)


async def test_callers_that_read_slowly_slow_the_backend_and_nobody_else():
    """A20 Client reads slowly."""
    pool = a_pool(limit=8, breaker=BreakerPolicy(enabled=False, ramp_s=0.0))  # no slow start of a new backend
    async with FakeBackend() as backend, running(a_world(backend, pool=pool)) as gateway:
        loop = asyncio.get_running_loop()
        before = resident()
        backend.then(*[Flood(200 << 20)] * 5)
        body = json.dumps(chat(stream=True)).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer {key_of('t1').key}\r\n"
        )
        request = (
            f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )
        slow = [socket.socket() for _ in range(5)]
        for raw in slow:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.setblocking(False)
            await loop.sock_connect(raw, ("127.0.0.1", gateway.port))
            await loop.sock_sendall(raw, request)
        await backend.until(lambda: backend.in_flight == 5)
        for second in range(8):
            for raw in slow:
                await loop.sock_recv(raw, 256)
            if second == 3:
                flooded = backend.flooded
            assert (await gateway.caller("t0").send()).status == 200
            await asyncio.sleep(0.1)
        assert backend.flooded - flooded < 1 << 20
        assert backend.flooded < 32 << 20
        assert resident() - before < 64 << 20
        for raw in slow:
            raw.close()
        await still_well(gateway, backend, limit=8)


def packed(body: bytes, coding: str, kind: str) -> Raw:
    data = gzip.compress(body) if coding == "gzip" else zlib.compress(body)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Encoding: {coding}\r\nContent-Length: {len(data)}\r\n\r\n"
    return Raw((head.encode(), data[:20], 0.002, data[20:]))


@pytest.mark.parametrize("accepted", ["gzip", "identity", "br, gzip;q=0.5", None])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_compressed_answer_reaches_the_caller_readable_and_counted(
    accepted: str | None, stream: bool, coding: str
):
    """A45 gzip from the backend."""
    quotas = ScriptedQuotas()
    words = [ROLE, *(chat_chunk({"content": word}) for word in WORDS), END]
    whole = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
    }
    scripts = {
        "events": packed(b"".join([*words, USAGE, DONE]), coding, "text/event-stream"),
        "json": packed(json.dumps(whole).encode(), coding, "application/json"),
    }
    async with FakeBackend() as backend, running(counted(backend), quotas=quotas) as gateway:
        for name, script in scripts.items():
            backend.then(script)
            answer = await gateway.caller().send(chat(stream=stream), headers={"accept-encoding": accepted})
            assert answer.status == 200
            assert answer.is_whole
            assert answer.header("content-encoding") is None
            if name == "json":
                assert answer.json == whole
            elif stream:
                assert answer.body == b"".join([*words, DONE])
            else:
                assert answer.json["choices"][0]["message"]["content"] == "".join(WORDS)
            await gateway.rest()
            assert backend.requests[-1].header("accept-encoding") == ["identity"]
        assert list(quotas.settled.values()) == [12, 12]
        await still_well(gateway, backend)


async def test_an_answer_in_an_unknown_coding_is_a_backend_fault_and_never_passed_on():
    """A45 gzip from the backend: what cannot be read is not sent with wrong headers."""
    fields = b"Content-Type: application/json\r\nContent-Encoding: br\r\nContent-Length: 4"
    raw = b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n\r\n\x01\x02\x03\x04"
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        backend.then(Raw((raw,)))
        answer = await gateway.caller().send()
        assert answer.status == 502
        await still_well(gateway, backend)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "gzip, gzip", "identity, gzip"])
async def test_a_compressed_request_is_refused_and_never_guessed(coding: str):
    """A45 gzip from the backend: an unsupported request coding gets 415."""
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        body = gzip.compress(json.dumps(chat()).encode())
        answer = await gateway.caller().send(body, headers={"content-encoding": coding})
        assert answer.status == 415
        assert backend.requests == []
        assert (await gateway.caller().send(headers={"content-encoding": "identity"})).status == 200
        await still_well(gateway, backend)


HOP_BY_HOP = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "upgrade"),
    *("x-secret", "x-hop", "x-forwarded-for", "cookie", "set-cookie", "server"),
}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_framing_and_hop_by_hop_fields_stay_on_their_hop(path: str):
    """A46 Framing is per hop."""
    body = json.dumps({**chat(), "input": "Grüße 🌊"}, ensure_ascii=False).encode()
    sent = b"".join(
        b"%x;ext=1\r\n%b\r\n" % (len(body[i : i + 7]), body[i : i + 7]) for i in range(0, len(body), 7)
    )
    fields = [
        f"POST {path} HTTP/1.1",
        "Host: gw",
        f"Authorization: Bearer {key_of('t0').key}",
        "Content-Type: application/json",
        "Transfer-Encoding: chunked",
        "Connection: close, X-Hop",
        "X-Hop: 1",
        "Keep-Alive: timeout=5",
        "Proxy-Authorization: Basic x",
        "TE: trailers",
        "X-Forwarded-For: 1.2.3.4",
        "Cookie: a=b",
    ]
    request = "\r\n".join([*fields, "", ""]).encode() + sent + b"0\r\n\r\n"
    back = b'{"object":"list","data":[],"usage":{"prompt_tokens":5,"total_tokens":5}}'
    raw = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close, X-Secret\r\nX-Secret: 1\r\n"
        b"Keep-Alive: timeout=9\r\nProxy-Authenticate: Basic\r\nSet-Cookie: c=d\r\nServer: engine/1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n%x;x=y\r\n%b\r\n0\r\nX-Trailer: 1\r\n\r\n" % (len(back), back)
    )
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        backend.then(Raw((raw,), end="fin"))
        result = await talk(gateway.port, request)
        answer = result.answers[0]
        assert (answer.status, answer.body, result.rest, result.ended) == (200, back, b"", True)
        seen = backend.requests[0]
        assert len(seen.header("content-length")) == 1
        assert seen.header("transfer-encoding") == []
        assert int(seen.header("content-length")[0]) == len(seen.body)
        assert seen.json["messages"] == json.loads(body)["messages"]
        assert seen.json["input"] == "Grüße 🌊"
        assert HOP_BY_HOP.isdisjoint({name for name, _ in seen.headers})
        assert (HOP_BY_HOP - {"connection"}).isdisjoint({name for name, _ in answer.headers})
        assert answer.header("connection") == ["close"]
        assert len(answer.header("content-length")) + len(answer.header("transfer-encoding")) == 1
        assert "x-trailer" not in dict(answer.headers)
        assert backend.malformed == []
        await still_well(gateway, backend)


async def test_a_trailer_is_refused_and_its_request_never_reaches_a_backend():
    """A46 Framing is per hop."""
    body = json.dumps(chat()).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer {key_of('t0').key}\r\n"
    request = head.encode() + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\nX-Sum: 1\r\n\r\n" % (
        len(body),
        body,
    )
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        result = await talk(gateway.port, request)
        assert result.statuses == [400]
        assert backend.requests == []
        await still_well(gateway, backend)


LIMIT = 10 << 20


def post(*fields: str, tenant: str = "t0", key: str | None = None) -> bytes:
    lines = [
        "POST /v1/chat/completions HTTP/1.1",
        "Host: gw",
        f"Authorization: Bearer {key or key_of(tenant).key}",
        *fields,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


async def pour(port: int, head: bytes, piece: bytes, total: int) -> tuple[bytes, int]:
    """Send pieces until everything is sent or the gateway has had enough; what came back, and how much was sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head)
    sent, received = 0, bytearray()

    async def read() -> None:
        while data := await reader.read(65536):
            received.extend(data)

    reading = asyncio.ensure_future(read())
    try:
        while sent < total and not reading.done() and not writer.is_closing():
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
        await asyncio.wait_for(reading, 3)
    except ConnectionError:
        await asyncio.wait({reading})
        reading.exception()
    finally:
        reading.cancel()
        writer.transport.abort()
    return bytes(received), sent


async def test_a_body_limit_holds_without_content_length():
    """A47 Body limit holds without Content-Length: 1 GiB in chunks."""
    async with (
        FakeBackend() as backend,
        running(a_world(backend), settings=Settings(max_body_bytes=LIMIT)) as gateway,
    ):
        await gateway.caller().send()
        before = resident()
        piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
        received, sent = await pour(gateway.port, post("Transfer-Encoding: chunked"), piece, 1 << 30)
        assert received.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close" in received
        assert json.loads(received.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_too_large"
        assert sent < LIMIT + (16 << 20)  # the kernel's buffers on both sides are in between
        assert resident() - before < 40 << 20
        assert len(backend.requests) == 1
        await still_well(gateway, backend)


async def test_an_announced_body_beyond_the_limit_is_refused_before_it_comes():
    """A47 Body limit holds without Content-Length: 1 GiB announced and nothing sent."""
    async with (
        FakeBackend() as backend,
        running(a_world(backend), settings=Settings(max_body_bytes=LIMIT)) as gateway,
    ):
        result = await talk(gateway.port, post("Content-Length: 1073741824"), timeout_s=3)
        assert result.statuses == [413]
        assert result.answers[0].closes
        assert result.ended
        waits = await talk(
            gateway.port, post("Content-Length: 1073741824", "Expect: 100-continue"), timeout_s=3
        )
        assert waits.statuses == [413]
        await still_well(gateway, backend)


@pytest.mark.parametrize("pattern", [b"[", b'{"a":', b"1"])
async def test_a_deep_body_is_a_400_and_no_crash(pattern: bytes):
    """A47 Body limit holds without Content-Length: 10 MiB of brackets."""
    async with (
        FakeBackend() as backend,
        running(a_world(backend), settings=Settings(max_body_bytes=LIMIT)) as gateway,
    ):
        body = pattern * ((LIMIT - 100) // len(pattern))
        nested = b'{"model":"m","messages":' + body[: LIMIT - 100]
        for sent in (body, nested):
            answer = await gateway.caller().send(sent)
            assert answer.status == 400
            assert answer.error["type"] == "invalid_request_error"
        assert backend.requests == []
        await still_well(gateway, backend)


async def test_an_unknown_key_is_refused_before_its_body_is_read():
    """A47 Body limit holds without Content-Length: invalid key and a large body."""
    async with (
        FakeBackend() as backend,
        running(a_world(backend), settings=Settings(max_body_bytes=LIMIT)) as gateway,
    ):
        for length in (LIMIT - 1, 1 << 30):
            result = await talk(gateway.port, post(f"Content-Length: {length}", key="sg_no"), timeout_s=3)
            assert result.statuses == [401]
            assert result.answers[0].closes
        received, sent = await pour(
            gateway.port, post("Transfer-Encoding: chunked", key="sg_no"), b"1\r\n \r\n" * 9000, 1 << 30
        )
        assert received.startswith(b"HTTP/1.1 401 ")
        assert sent < 16 << 20
        assert backend.requests == []
        await still_well(gateway, backend)
