"""Framing on raw sockets: what the gateway takes for a request, and that a backend never sees anything else.

Each case is a byte stream of one connection, the statuses that must come back, and the requests that the recording
backend must see: no more, no fewer, in this order. A refusal ends the connection.
"""

from dataclasses import dataclass

import pytest

from gateway.edge import Limits
from tests.fakes.backend import DONE, FakeBackend, HdrDelay, Json, Sse, Status
from tests.fakes.wire import Wire

pytestmark = pytest.mark.loop

LIMITS = Limits(head_s=2.0, idle_s=0.04, body_grace_s=2.0, linger_s=0.5, body_bytes=1000)

Seen = tuple[str, str, bytes]


@dataclass(frozen=True)
class Case:
    name: str
    raw: bytes
    statuses: tuple[int, ...]
    seen: tuple[Seen, ...] = ()
    methods: tuple[str, ...] = ()


def head(*fields: bytes, line: bytes = b"POST /p HTTP/1.1", host: bytes | None = b"Host: gw") -> bytes:
    return b"\r\n".join([line, *([host] if host is not None else []), *fields, b"", b""])


def get(
    *fields: bytes, target: bytes = b"/g", host: bytes | None = b"Host: gw", version: bytes = b"HTTP/1.1"
) -> bytes:
    return head(*fields, line=b"GET " + target + b" " + version, host=host)


def chunked(body: bytes, *fields: bytes) -> bytes:
    return head(b"Transfer-Encoding: chunked", *fields) + body


CL5 = b"Content-Length: 5"
TE = b"Transfer-Encoding: chunked"
GET = get()
OK_GET = ("GET", "/g", b"")
HELLO = ("POST", "/p", b"hello")
EVIL = b"GET /evil HTTP/1.1\r\nHost: gw\r\n\r\n"


def refused(name: str, raw: bytes, status: int = 400) -> Case:
    return Case(name, raw, (status,))


def taken(name: str, raw: bytes, *seen: Seen, methods: tuple[str, ...] = ()) -> Case:
    return Case(name, raw, (200,) * len(seen), seen, methods)


GOOD = [
    taken("plain GET", GET, OK_GET),
    taken("two in one", GET + GET, OK_GET, OK_GET),
    taken("a body", head(CL5) + b"hello", HELLO),
    taken("a body, then a request", head(CL5) + b"hello" + GET, HELLO, OK_GET),
    taken("length with space after", head(b"Content-Length: 5 ") + b"hello", HELLO),
    taken("length with tab before", head(b"Content-Length:\t5") + b"hello", HELLO),
    taken("no body at all", head(), ("POST", "/p", b"")),
    taken("length zero", head(b"Content-Length: 0") + GET, ("POST", "/p", b""), OK_GET),
    taken("chunked", chunked(b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"), HELLO),
    taken("chunked, then a request", chunked(b"5\r\nhello\r\n0\r\n\r\n") + GET, HELLO, OK_GET),
    taken("chunked in capitals", head(b"TRANSFER-ENCODING: CHUNKED") + b"5\r\nhello\r\n0\r\n\r\n", HELLO),
    taken("chunk size with leading zeros", chunked(b"0005\r\nhello\r\n000\r\n\r\n"), HELLO),
    taken("chunk size in capitals", chunked(b"A\r\n0123456789\r\n0\r\n\r\n"), ("POST", "/p", b"0123456789")),
    taken("A46 chunk extension", chunked(b'5;name=value;q="a b"\r\nhello\r\n0;last\r\n\r\n'), HELLO),
    taken(
        "chunk data that looks like a chunk end",
        chunked(b"7\r\n0\r\n\r\nab\r\n0\r\n\r\n"),
        ("POST", "/p", b"0\r\n\r\nab"),
    ),
    taken(
        "body that looks like a request", head(b"Content-Length: %d" % len(EVIL)) + EVIL, ("POST", "/p", EVIL)
    ),
    taken("GET with a body", get(CL5) + b"hello" + GET, ("GET", "/g", b"hello"), OK_GET),
    taken("empty lines before the request", b"\r\n\r\n" + GET, OK_GET),
    taken("empty line between requests", GET + b"\r\n" + GET, OK_GET, OK_GET),
    taken("query", get(target=b"/g?a=b&c=%2F"), ("GET", "/g?a=b&c=%2F", b"")),
    taken("path with escapes stays as it is", get(target=b"/a%2F..%2Fb"), ("GET", "/a%2F..%2Fb", b"")),
    taken("Host with port", get(host=b"Host: gw:8080"), OK_GET),
    taken("Host IPv6", get(host=b"Host: [::1]:8080"), OK_GET),
    taken("Host in capitals", get(host=b"HOST: GW"), OK_GET),
    taken("absolute form of this host", get(target=b"http://gw/g"), OK_GET),
    taken("absolute form, other case", get(target=b"HTTP://GW/g"), OK_GET),
    taken("absolute form without a path", get(target=b"http://gw"), ("GET", "/", b"")),
    taken("absolute form, query only", get(target=b"http://gw?x=1"), ("GET", "/?x=1", b"")),
    taken("OPTIONS *", head(line=b"OPTIONS * HTTP/1.1"), ("OPTIONS", "/*", b"")),
    taken(
        "HEAD has no body",
        head(line=b"HEAD /h HTTP/1.1") + GET,
        ("POST", "/h", b""),
        OK_GET,
        methods=("HEAD", "GET"),
    ),
    taken("HTTP/1.0", get(version=b"HTTP/1.0", host=None), OK_GET),
    taken("HTTP/1.0 with Host", get(version=b"HTTP/1.0"), OK_GET),
    taken("HTTP/1.0 with a body", head(CL5, line=b"POST /p HTTP/1.0", host=None) + b"hello", HELLO),
    taken(
        "HTTP/1.0 keep-alive is not kept", get(b"Connection: keep-alive", version=b"HTTP/1.0") + GET, OK_GET
    ),
    taken("HTTP/1.0 ignores an expectation", get(b"Expect: magic", version=b"HTTP/1.0"), OK_GET),
    taken("nothing after Connection: close counts", get(b"Connection: close") + EVIL, OK_GET),
    taken("Connection: Close in capitals", get(b"Connection: CLOSE") + EVIL, OK_GET),
    taken("close among others", get(b"Connection: x, close") + EVIL, OK_GET),
    taken("high bytes in a value", get(b"X-Name: gr\xc3\xbc\xc3\x9fe"), OK_GET),
    taken("an empty value", get(b"X-Empty:"), OK_GET),
    taken("a hundred headers", get(*[b"X-%d: y" % i for i in range(99)]), OK_GET),
    taken(
        "body of exactly the limit", head(b"Content-Length: 1000") + b"x" * 1000, ("POST", "/p", b"x" * 1000)
    ),
    taken(
        "chunked body of exactly the limit",
        chunked(b"3e8\r\n" + b"x" * 1000 + b"\r\n0\r\n\r\n"),
        ("POST", "/p", b"x" * 1000),
    ),
    taken("TE of the connection is not ours", get(b"TE: trailers", b"Connection: TE"), OK_GET),
    Case("Expect: 100-continue", head(CL5, b"Expect: 100-continue") + b"hello", (100, 200), (HELLO,)),
    Case("Expect in capitals", head(CL5, b"EXPECT: 100-CONTINUE") + b"hello", (100, 200), (HELLO,)),
    taken("seventeen in one", GET * 17, *([OK_GET] * 17)),
    taken("more than may wait: the rest is not read", GET * 40, *([OK_GET] * 17)),
]

LENGTHS = [
    b"+5",
    b"-5",
    b"05",
    b"5,5",
    b"5, 5",
    b"5 5",
    b"0x5",
    b"5.0",
    b"",
    b"5;",
    b"five",
    b"5\x0b",
    b"\xb2",
    b"1e1",
    b"_5",
    b"5_0",
]
CODINGS = [
    b"chunked, chunked",
    b"gzip, chunked",
    b"chunked, identity",
    b"identity",
    b"xchunked",
    b"chunkedx",
    b"chunked;a=b",
    b"'chunked'",
    b'"chunked"',
    b",chunked",
    b"chunked,",
    b"chunked\x0b",
    b"\x0bchunked",
    b"ch\x00unked",
    b"gzip",
    b"",
    b"cHuNkEd, x",
]
FIRST_BODY = b"5\r\nhello\r\n0\r\n\r\n"

FRAMINGS = [
    *[
        refused(f"Content-Length {value!r}", head(b"Content-Length: " + value) + b"hello" + EVIL)
        for value in LENGTHS
    ],
    *[
        refused(f"Transfer-Encoding {value!r}", head(b"Transfer-Encoding: " + value) + FIRST_BODY + EVIL)
        for value in CODINGS
    ],
    refused("huge length", head(b"Content-Length: 99999999999999999999") + EVIL),
    refused("length beyond 2^64", head(b"Content-Length: 18446744073709551621") + b"hello" + EVIL),
    refused("two equal lengths", head(CL5, CL5) + b"hello" + EVIL),
    refused("two different lengths", head(b"Content-Length: 0", CL5) + EVIL),
    refused("CL.TE", head(CL5, TE) + b"0\r\n\r\n" + EVIL),
    refused("TE.CL", head(TE, CL5) + b"0\r\n\r\n" + EVIL),
    refused("CL.TE with an obsolete coding", head(CL5, b"Transfer-Encoding: identity") + b"hello" + EVIL),
    refused("CL.TE, space before the colon", head(CL5, b"Transfer-Encoding : chunked") + b"0\r\n\r\n" + EVIL),
    refused("CL.TE, tab before the colon", head(CL5, b"Transfer-Encoding\t: chunked") + b"0\r\n\r\n" + EVIL),
    refused("CL.TE, underscore", head(CL5, b"Transfer_Encoding: chunked") + b"hello" + EVIL),
    refused("Content_Length", head(b"Content_Length: 5") + b"hello"),
    refused("CL.TE, folded name", head(CL5, b" Transfer-Encoding: chunked") + b"hello" + EVIL),
    refused("CL.TE, folded value", head(CL5, b"Transfer-Encoding:\r\n chunked") + b"0\r\n\r\n" + EVIL),
    refused("CL.TE, bare LF hides it", head(CL5, b"X: y\nTransfer-Encoding: chunked") + b"0\r\n\r\n" + EVIL),
    refused("CL.TE, bare CR hides it", head(CL5, b"X: y\rTransfer-Encoding: chunked") + b"0\r\n\r\n" + EVIL),
    refused("CL.TE, NUL hides it", head(CL5, b"X: y\x00Transfer-Encoding: chunked") + b"hello" + EVIL),
    refused(
        "CL.TE, vertical tab in the name", head(CL5, b"Transfer-Encoding\x0b: chunked") + b"hello" + EVIL
    ),
    refused("two codings", head(TE, TE) + FIRST_BODY + EVIL),
    refused("two codings, second odd", head(TE, b"Transfer-Encoding: x") + FIRST_BODY + EVIL),
    refused("two codings, first odd", head(b"Transfer-Encoding: x", TE) + FIRST_BODY + EVIL),
    refused("coding on HTTP/1.0", head(TE, line=b"POST /p HTTP/1.0") + FIRST_BODY),
    refused("coding and length on HTTP/1.0", head(TE, CL5, line=b"POST /p HTTP/1.0") + FIRST_BODY),
]

CHUNKS = [
    refused(f"chunk abuse: {name}", chunked(body) + EVIL)
    for name, body in {
        "size with 0x": b"0x5\r\nhello\r\n0\r\n\r\n",
        "signed size": b"+5\r\nhello\r\n0\r\n\r\n",
        "negative size": b"-5\r\nhello\r\n0\r\n\r\n",
        "empty size": b"\r\nhello\r\n0\r\n\r\n",
        "size with space": b"5 \r\nhello\r\n0\r\n\r\n",
        "size after space": b" 5\r\nhello\r\n0\r\n\r\n",
        "size with underscore": b"1_0\r\nhello\r\n0\r\n\r\n",
        "size beyond 64 bits": b"10000000000000005\r\nhello\r\n0\r\n\r\n",
        "size of many zeros and beyond": b"F" * 20 + b"\r\nhello\r\n",
        "not a size": b"hello\r\n0\r\n\r\n",
        "LF after size": b"5\nhello\r\n0\r\n\r\n",
        "CR after size": b"5\rhello\r\n0\r\n\r\n",
        "LF after data": b"5\r\nhello\n0\r\n\r\n",
        "CR after data": b"5\r\nhello\r0\r\n\r\n",
        "no end after data": b"5\r\nhello0\r\n\r\n",
        "size too small": b"4\r\nhello\r\n0\r\n\r\n",
        "size too large": b"6\r\nhello\r\n0\r\n\r\n",
        "LF ends the last": b"5\r\nhello\r\n0\n\n",
        "bare LF in an extension": b"5;a\nb\r\nhello\r\n0\r\n\r\n",
        "bare CR in an extension": b"5;a\rb\r\nhello\r\n0\r\n\r\n",
        "LF in a quoted extension": b'5;a="\n"\r\nhello\r\n0\r\n\r\n',
        "NUL in an extension": b"5;a=\x00\r\nhello\r\n0\r\n\r\n",
        "trailer": b"5\r\nhello\r\n0\r\nX: y\r\n\r\n",
        "trailer that frames": b"5\r\nhello\r\n0\r\nContent-Length: 5\r\n\r\n",
        "trailer that routes": b"5\r\nhello\r\n0\r\nHost: evil\r\n\r\n",
        "malformed trailer": b"5\r\nhello\r\n0\r\nX y\r\n\r\n",
        "folded trailer": b"5\r\nhello\r\n0\r\n X: y\r\n\r\n",
    }.items()
] + [
    refused("an announced trailer", chunked(FIRST_BODY, b"Trailer: X") + EVIL),
    refused(
        "chunked body beyond the limit", chunked(b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n") + EVIL, 413
    ),
    refused(
        "many small chunks beyond the limit", chunked(b"5\r\nhello\r\n" * 201 + b"0\r\n\r\n") + EVIL, 413
    ),
    refused("length beyond the limit", head(b"Content-Length: 1001") + b"x" * 1001 + EVIL, 413),
    refused("length far beyond the limit and nothing", head(b"Content-Length: 1073741824"), 413),
    refused(
        "expectation with a length beyond the limit",
        head(b"Content-Length: 1001", b"Expect: 100-continue"),
        413,
    ),
]

LINES = [
    refused("bare LF ends the request line", b"GET /g HTTP/1.1\nHost: gw\r\n\r\n"),
    refused("bare LF ends a header", b"GET /g HTTP/1.1\r\nHost: gw\n\r\n"),
    refused("bare LF everywhere", b"GET /g HTTP/1.1\nHost: gw\n\n"),
    refused("bare LF ends the head", b"GET /g HTTP/1.1\r\nHost: gw\r\n\n"),
    refused("bare CR in a value", get(b"X: a\rb")),
    refused("CR CR LF", b"GET /g HTTP/1.1\r\r\nHost: gw\r\n\r\n"),
    refused("NUL in a value", get(b"X: a\x00b")),
    refused("NUL in a name", get(b"X\x00: a")),
    refused("control character in a value", get(b"X: a\x01b")),
    refused("DEL in a value", get(b"X: a\x7fb")),
    refused("folded header", get(b"X: a\r\n b")),
    refused("folded with a tab", get(b"X: a\r\n\tb")),
    refused("first header folded", b"GET /g HTTP/1.1\r\n Host: gw\r\n\r\n"),
    refused("space before the colon", get(b"X : a")),
    refused("space in a name", get(b"X Y: a")),
    refused("empty name", get(b": a")),
    refused("no colon", get(b"X")),
    refused("underscore in a name", get(b"X_Y: a")),
    refused("parenthesis in a name", get(b"X(Y): a")),
    refused("high byte in a name", get(b"X\xff: a")),
    refused("method in lower case", b"get /g HTTP/1.1\r\nHost: gw\r\n\r\n"),
    refused("unknown method", b"FETCH /g HTTP/1.1\r\nHost: gw\r\n\r\n"),
    refused("space before the method", b" GET /g HTTP/1.1\r\nHost: gw\r\n\r\n"),
    refused("tab after the method", b"GET\t/g HTTP/1.1\r\nHost: gw\r\n\r\n"),
    refused("space after the version", b"GET /g HTTP/1.1 \r\nHost: gw\r\n\r\n"),
    refused("space in the target", b"GET /g x HTTP/1.1\r\nHost: gw\r\n\r\n"),
    refused("version in lower case", b"GET /g http/1.1\r\nHost: gw\r\n\r\n"),
    refused("version 1.2", get(version=b"HTTP/1.2")),
    refused("version 1.10", get(version=b"HTTP/1.10")),
    refused("version 11", get(version=b"HTTP/11")),
    refused("version 2.0", get(version=b"HTTP/2.0"), 505),
    refused("version 0.9", get(version=b"HTTP/0.9"), 505),
    refused("no version", b"GET /g\r\nHost: gw\r\n\r\n", 505),
    refused("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    refused("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 50),
    refused("only noise", b"\xff\xfe\xfd\r\n\r\n"),
    refused("SOCKS", b"\x05\x01\x00\r\n"),
    refused("PROXY protocol", b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + GET),
    refused("noise after a request", b"x" + GET),
]

TARGETS = [
    refused("no Host", get(host=None)),
    refused("two Hosts", get(b"Host: gw")),
    refused("two different Hosts", get(b"Host: evil")),
    *[
        refused(f"Host {value!r}", get(host=b"Host: " + value))
        for value in (
            b"",
            b"gw evil",
            b"gw,evil",
            b"gw/x",
            b"gw:99x",
            b"gw:123456",
            b"user@gw",
            b"[::1",
            b"gw\\x",
            b"g\xc3\xbc",
            b"http://gw",
        )
    ],
    refused("absolute form of another host", get(target=b"http://evil/g")),
    refused("absolute form, other port", get(target=b"http://gw:81/g")),
    refused("absolute form with user", get(target=b"http://u@gw/g")),
    refused("absolute form of another scheme", get(target=b"ftp://gw/g")),
    refused("A39 file URL", get(target=b"file:///etc/passwd")),
    refused("absolute form without Host on 1.0", get(target=b"http://evil/", version=b"HTTP/1.0", host=None)),
    refused("fragment", get(target=b"/g#f")),
    refused("asterisk with GET", get(target=b"*")),
    refused("authority form with GET", get(target=b"gw:80")),
    refused("relative target", get(target=b"g")),
    refused("high byte in the target", get(target=b"/\xc3\xbc")),
    refused("control character in the target", get(target=b"/\x01")),
    refused("NUL in the target", get(target=b"/\x00")),
    refused("CONNECT", b"CONNECT gw:443 HTTP/1.1\r\nHost: gw:443\r\n\r\n" + EVIL, 405),
    refused("TRACE", head(line=b"TRACE / HTTP/1.1"), 405),
    refused("long target", get(target=b"/" + b"x" * 8192), 414),
    refused("websocket", get(b"Upgrade: websocket", b"Connection: Upgrade") + EVIL),
    refused(
        "h2c",
        get(b"Upgrade: h2c", b"Connection: Upgrade, HTTP2-Settings", b"HTTP2-Settings: AAMAAABk") + EVIL,
    ),
    refused("Upgrade alone", get(b"Upgrade: h2c") + EVIL),
    refused("Upgrade with a body", head(CL5, b"Upgrade: x", b"Connection: upgrade") + b"hello" + EVIL),
    refused("odd expectation", head(CL5, b"Expect: 200-ok") + b"hello", 417),
    refused("two expectations", head(CL5, b"Expect: 100-continue", b"Expect: 100-continue"), 417),
    refused("expectation list", head(CL5, b"Expect: 100-continue, x"), 417),
    refused("101 headers", get(*[b"X-%d: y" % i for i in range(100)]), 431),
    refused("1000 headers", get(*[b"X-%d: y" % i for i in range(1000)]), 431),
    refused("one large header", get(b"X: " + b"y" * 16384), 431),
    refused("many large headers", get(*[b"X-%d: %b" % (i, b"y" * 300) for i in range(60)]), 431),
    refused("one large name", get(b"X" * 16385 + b": y"), 431),
    refused("headers without an end", b"GET /g HTTP/1.1\r\nHost: gw\r\n" + b"X: y\r\n" * 4000, 431),
    refused("header value without an end", b"GET /g HTTP/1.1\r\nX: " + b"y" * 40000, 431),
    refused("target without an end", b"GET /" + b"x" * 40000, 414),
    refused("empty lines without an end", b"\r\n" * 20000, 431),
]

MIXED = [
    Case("a good request, then noise", GET + b"noise\r\n\r\n" + EVIL, (200, 400), (OK_GET,)),
    Case("a good request, then CL.TE", GET + head(CL5, TE) + b"0\r\n\r\n" + EVIL, (200, 400), (OK_GET,)),
    Case("two good, then a broken chunk", GET + GET + chunked(b"x\r\n"), (200, 200, 400), (OK_GET, OK_GET)),
    Case("a body, then bytes beyond it", head(CL5) + b"helloX" + EVIL, (200, 400), (HELLO,)),
    Case(
        "a good chunked body, then a broken one",
        chunked(FIRST_BODY) + chunked(b"z\r\n"),
        (200, 400),
        (HELLO,),
    ),
    Case("a good request, then a large head", GET + get(b"X: " + b"y" * 20000), (200, 431), (OK_GET,)),
    Case("a good request, then a large body", GET + head(b"Content-Length: 1001"), (200, 413), (OK_GET,)),
    Case("a good request, then HTTP/2", GET + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (200, 400), (OK_GET,)),
]

CASES = [*GOOD, *FRAMINGS, *CHUNKS, *LINES, *TARGETS, *MIXED]


def test_there_are_enough_cases_and_each_has_its_own_name():
    assert len(CASES) >= 150
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_a_byte_stream_is_exactly_the_requests_that_its_caller_sent(case):
    async with Wire(LIMITS) as wire:
        result = await wire.talk(case.raw, methods=case.methods)
        assert tuple(result.statuses) == case.statuses
        assert tuple(wire.reached) == case.seen
        assert wire.backend.malformed == []
        assert wire.relay.crashes == []
        assert result.rest == b""
        assert result.ended
        last = result.answers[-1]
        if last.status >= 400:
            assert last.closes
            error = last.json["error"]
            assert set(error) >= {"message", "type", "code", "param"}
            assert error["type"] == "invalid_request_error" or last.status == 505


STREAMS = {
    "pipelined": GET + head(CL5) + b"hello" + chunked(b"2;x\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n") + GET,
    "ambiguous second": GET + head(CL5, TE) + b"0\r\n\r\n" + EVIL,
    "early refusal": head(b"Content-Length: 5000") + EVIL * 3,
}
SEEN = {"pipelined": (OK_GET, HELLO, HELLO, OK_GET), "ambiguous second": (OK_GET,), "early refusal": ()}


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_cut_at_every_byte_is_the_same_requests(name):
    """A46."""
    stream = STREAMS[name]
    async with Wire(LIMITS) as wire:
        for cut in range(1, len(stream)):
            wire.backend.requests.clear()
            result = await wire.talk(stream[:cut], 0.0, stream[cut:])
            assert tuple(wire.reached) == SEEN[name], f"cut at {cut}"
            assert result.ended
            assert result.rest == b""
        assert wire.backend.malformed == []


async def test_a_stream_in_single_bytes_is_the_same_requests():
    stream = STREAMS["pipelined"]
    pieces = [piece for byte in stream for piece in (bytes([byte]), 0.0)]
    async with Wire(LIMITS) as wire:
        result = await wire.talk(*pieces)
        assert tuple(wire.reached) == SEEN["pipelined"]
        assert result.statuses == [200] * 4


async def test_answers_to_pipelined_requests_keep_their_order_when_the_first_is_slow():
    async with Wire(LIMITS) as wire:
        wire.backend.then(HdrDelay(0.1, Status(201)), Json(always=True))
        result = await wire.talk(GET + GET)
        assert result.statuses == [201, 200]


async def test_the_rest_of_a_body_that_was_answered_early_is_never_a_request():
    """Early answer with leftover body: the bytes that look like a request are part of the refused body."""
    async with Wire(LIMITS) as wire:
        result = await wire.talk(head(b"Content-Length: 2000"), 0.02, EVIL * 20, 0.02, EVIL * 20)
        assert result.statuses == [413]
        assert result.answers[0].closes
        assert wire.reached == []


async def test_answers_to_http_1_0_are_not_chunked_but_end_with_the_connection():
    async with Wire(LIMITS, backend=FakeBackend(Sse(2))) as wire:
        result = await wire.talk(get(version=b"HTTP/1.0", host=None))
        answer = result.answers[0]
        assert answer.header("transfer-encoding") == []
        assert answer.closes
        assert answer.body.endswith(DONE)
        chunked_answer = (await wire.talk(get(b"Connection: close"))).answers[0]
        assert chunked_answer.header("transfer-encoding") == ["chunked"]
        assert chunked_answer.body == answer.body


async def test_an_expectation_gets_its_100_only_when_the_body_is_wanted():
    async with Wire(LIMITS) as wire:
        result = await wire.talk(head(CL5, b"Expect: 100-continue"), 0.05, b"hello")
        assert result.statuses == [100, 200]
        refused_early = await wire.talk(
            head(b"Content-Length: 1001", b"Expect: 100-continue"), 0.05, b"x" * 1001
        )
        assert refused_early.statuses == [413]
