"""Framing through the whole gateway: keys, bodies and a recording backend behind it.

Every request carries a marker in its body; the backend must see exactly the markers of the requests that were sent, in
their order, and never one that was part of another request's body, of its leftovers, or of an ambiguous stream.
"""

import asyncio
import json
import random
from dataclasses import dataclass

import pytest

from tests.fakes.backend import FakeBackend, Json
from tests.fakes.gateway import RunningGateway, Settings, a_pool, a_world, key_of, running
from tests.fakes.strict import read_requests
from tests.fakes.wire import talk

pytestmark = pytest.mark.loop

AUTH = f"Authorization: Bearer {key_of('t0').key}".encode()
BODY_LIMIT = 4000
FUZZ_RUNS = 1000


def body(marker: str, **members: object) -> bytes:
    return json.dumps({"model": "m", "input": marker, **members}).encode()


def head(
    *fields: bytes,
    line: bytes = b"POST /v1/embeddings HTTP/1.1",
    auth: bytes = AUTH,
    host: bytes = b"Host: gw",
) -> bytes:
    return b"\r\n".join([line, host, auth, b"Content-Type: application/json", *fields, b"", b""])


def plain(marker: str, *fields: bytes, model: str = "m", **how: bytes) -> bytes:
    data = body(marker, model=model)
    return head(b"Content-Length: %d" % len(data), *fields, **how) + data


def chunked(marker: str, *fields: bytes, size: int = 9) -> bytes:
    data = body(marker)
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    return (
        head(b"Transfer-Encoding: chunked", *fields)
        + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces)
        + b"0\r\n\r\n"
    )


@dataclass(frozen=True)
class Case:
    name: str
    raw: bytes
    statuses: tuple[int, ...]
    seen: tuple[str, ...] = ()


EVIL = plain("evil")
LONG = b"Content-Length: %d" % (len(EVIL) + 200)
WITH_LENGTH = b"Content-Length: %d" % len(body("a"))
TE = b"Transfer-Encoding: chunked"
END = b"0\r\n\r\n"

CASES = [
    Case("one", plain("a"), (200,), ("a",)),
    Case("three in one", plain("a") + chunked("b") + plain("c"), (200,) * 3, ("a", "b", "c")),
    Case("a request inside a body", plain(EVIL.decode()), (200,), (EVIL.decode(),)),
    Case("close, then more", plain("a", b"Connection: close") + EVIL, (200,), ("a",)),
    Case("HTTP/1.0, then more", plain("a", line=b"POST /v1/embeddings HTTP/1.0") + EVIL, (200,), ("a",)),
    Case("expectation", plain("a", b"Expect: 100-continue"), (100, 200), ("a",)),
    Case("absolute form", plain("a", line=b"POST http://gw/v1/embeddings HTTP/1.1"), (200,), ("a",)),
    Case(
        "A39 absolute form elsewhere",
        plain("a", line=b"POST http://169.254.169.254/v1/embeddings HTTP/1.1") + EVIL,
        (400,),
    ),
    Case(
        "A39 two slashes",
        plain("a", b"Connection: close", line=b"POST //evil/v1/embeddings HTTP/1.1"),
        (404,),
    ),
    Case("A39 dots", plain("a", b"Connection: close", line=b"POST /v1/../admin HTTP/1.1"), (404,)),
    Case(
        "A39 escaped dots", plain("a", b"Connection: close", line=b"POST /v1/%2e%2e/admin HTTP/1.1"), (404,)
    ),
    Case("CL.TE", head(WITH_LENGTH, TE) + END + EVIL, (400,)),
    Case("TE.CL", head(TE, WITH_LENGTH) + END + EVIL, (400,)),
    Case("good, then CL.TE", plain("a") + head(WITH_LENGTH, TE) + END + EVIL, (200, 400), ("a",)),
    Case("CL.TE with a tab", head(WITH_LENGTH, b"Transfer-Encoding:\tchunked") + END + EVIL, (400,)),
    Case(
        "CL.TE with an underscore",
        head(WITH_LENGTH, b"Transfer_Encoding: chunked") + body("a") + EVIL,
        (400,),
    ),
    Case("CL.CL", head(WITH_LENGTH, b"Content-Length: 0") + body("a") + EVIL, (400,)),
    Case("zero, then a body", head(b"Content-Length: 0") + EVIL, (400, 200), ("evil",)),
    Case("length too short: the rest is noise", head(b"Content-Length: 5") + body("a") + EVIL, (400, 400)),
    Case("TE.TE", head(TE, b"Transfer-Encoding: identity") + END + EVIL, (400,)),
    Case("chunk too long", head(TE) + b"ffff\r\n" + EVIL + b"\r\n", ()),
    Case("chunk end missing", head(TE) + b"5\r\nhelloXX" + EVIL, (400,)),
    Case("trailer", head(TE) + b"%x\r\n%b\r\n0\r\nX: y\r\n\r\n" % (len(body("a")), body("a")) + EVIL, (400,)),
    Case("bare LF", plain("a", b"X: y\nX-Z: 1") + EVIL, (400,)),
    Case("folded", plain("a", b"X: y\r\n z") + EVIL, (400,)),
    Case("Upgrade", plain("a", b"Upgrade: h2c", b"Connection: Upgrade") + EVIL, (400,)),
    Case(
        "early 401, the body holds a request",
        head(LONG, auth=b"Authorization: Bearer no") + EVIL + b"x" * 200,
        (401,),
    ),
    Case(
        "early 401, then a request",
        plain("a", auth=b"Authorization: Bearer no") + plain("b"),
        (401, 200),
        ("b",),
    ),
    Case("early 413, the body holds requests", head(b"Content-Length: 100000") + EVIL * 50, (413,)),
    Case(
        "early 413 in chunks",
        head(TE) + b"".join(b"%x\r\n%b\r\n" % (len(EVIL), EVIL) for _ in range(50)),
        (413,),
    ),
    Case(
        "early 415, the body holds a request",
        head(LONG, b"Content-Encoding: gzip") + EVIL + b"x" * 200,
        (415,),
    ),
    Case(
        "404, the body is read or the end comes",
        head(LONG, line=b"POST /nope HTTP/1.1") + EVIL + b"x" * 200,
        (404,),
    ),
    Case(
        "405, the body is no request",
        head(LONG, line=b"PUT /v1/embeddings HTTP/1.1") + EVIL + b"x" * 200,
        (405,),
    ),
    Case("HEAD is no POST", head(line=b"HEAD /v1/embeddings HTTP/1.1") + plain("b"), (405, 200), ("b",)),
    Case("OPTIONS *", head(b"Connection: close", line=b"OPTIONS * HTTP/1.1"), (404,)),
    Case(
        "400 for its content, then a good one",
        head(b"Content-Length: 2") + b"[]" + plain("b"),
        (400, 200),
        ("b",),
    ),
    Case("404 for its model, then a good one", plain("x", model="nope") + plain("b"), (404, 200), ("b",)),
]


def markers(backend: FakeBackend) -> tuple[str, ...]:
    return tuple(request.json["input"] for request in backend.requests)


def gateway_for(backend: FakeBackend):
    return running(a_world(backend, pool=a_pool(limit=64)), settings=Settings(max_body_bytes=BODY_LIMIT))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_the_backend_sees_exactly_the_requests_that_were_sent(case: Case):
    async with FakeBackend(Json(always=True)) as backend, gateway_for(backend) as gateway:
        methods = ("HEAD",) if case.raw.startswith(b"HEAD") else ()
        result = await talk(gateway.port, case.raw, timeout_s=0.3, methods=methods)
        assert tuple(result.statuses)[: len(case.statuses)] == case.statuses
        assert set(result.statuses[len(case.statuses) :]) <= {400}
        assert markers(backend) == case.seen
        assert backend.malformed == []
        await gateway.rest()


async def test_pipelined_requests_cut_at_every_byte_are_the_same_requests():
    """A46."""
    stream = plain("a") + chunked("b") + plain("c", b"Connection: close") + EVIL
    async with FakeBackend(Json(always=True)) as backend, gateway_for(backend) as gateway:
        for cut in range(1, len(stream), 3):
            backend.requests.clear()
            result = await talk(gateway.port, stream[:cut], 0.0, stream[cut:])
            assert markers(backend) == ("a", "b", "c"), f"cut at {cut}"
            assert (result.statuses, result.rest, result.ended) == ([200] * 3, b"", True)
        await gateway.rest()


def mutated(dice: random.Random, number: int) -> bytes:
    stream = bytearray()
    for part in range(dice.randint(1, 3)):
        make = dice.choice((plain, chunked))
        stream += make(f"{number}.{part}")
    for _ in range(dice.choice((0, 1, 1, 2, 3))):
        at = dice.randrange(len(stream))
        token = dice.choice(
            (b"\r\n", b"\n", b"0\r\n\r\n", TE + b"\r\n", b"Content-Length: 3\r\n", b"\0", b" ", EVIL, b"")
        )
        stream[at : at + dice.choice((0, 0, 1, 3))] = token
    return bytes(stream)


async def _fuzz(gateway: RunningGateway, backend: FakeBackend, data: bytes, number: int) -> int:
    await talk(gateway.port, data, timeout_s=0.15)
    strict = [_marker(request.body) for request in read_requests(data)]
    seen = [marker for marker in markers(backend) if marker.startswith(f"{number}.") or marker == "evil"]
    expected = [marker for marker in strict if marker in seen]
    assert [m for m in seen if m != "evil"] == [m for m in expected if m != "evil"], f"{seen} of {data!r}"
    assert seen.count("evil") <= strict.count("evil"), f"{seen} of {data!r}"
    return len(seen)


def _marker(data: bytes) -> str:
    try:
        return str(json.loads(data)["input"])
    except (ValueError, KeyError, TypeError):
        return ""


async def test_mutated_streams_through_the_whole_gateway_give_nothing_that_was_not_sent(caplog):
    dice = random.Random(99)  # noqa: S311  # a seed, not a secret
    taken = 0
    async with FakeBackend(Json(always=True)) as backend, gateway_for(backend) as gateway:
        for begin in range(0, FUZZ_RUNS, 20):
            backend.requests.clear()
            streams = [(number, mutated(dice, number)) for number in range(begin, begin + 20)]
            evil_free = [(n, s) for n, s in streams if EVIL not in s]
            with_evil = [(n, s) for n, s in streams if EVIL in s]
            taken += sum(await asyncio.gather(*(_fuzz(gateway, backend, s, n) for n, s in evil_free)))
            for number, stream in with_evil:
                backend.requests.clear()
                taken += await _fuzz(gateway, backend, stream, number)
        await gateway.rest()
    assert taken > FUZZ_RUNS / 3
    assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []
