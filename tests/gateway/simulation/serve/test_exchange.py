"""One exchange of a bare ASGI application."""

import pytest

from gateway.simulation.serve import exchange as exchange_module
from gateway.simulation.serve.exchange import Exchange
from gateway.simulation.serve.wire import WrongRequest


def made(*messages, client=("127.0.0.1", 5)):
    left, sent = list(messages), []

    async def receive():
        return left.pop(0)

    async def send(message):
        sent.append(message)

    scope = {"method": "POST", "path": "/x", "client": client}
    return Exchange(scope, receive, send), sent


def body(part, *, more=False):
    return {"type": "http.request", "body": part, "more_body": more}


async def test_a_body_is_read_to_its_end():
    exchange, _ = made(body(b"a", more=True), body(b"b"))
    assert await exchange.read_body() == b"ab"


async def test_a_body_that_ends_early_or_is_too_large_is_the_callers_fault(monkeypatch):
    exchange, _ = made(body(b"a", more=True), {"type": "http.disconnect"})
    with pytest.raises(WrongRequest, match="early"):
        await exchange.read_body()
    monkeypatch.setattr(exchange_module, "MAX_BODY_BYTES", 3)
    exchange, _ = made(body(b"four"))
    with pytest.raises(WrongRequest) as caught:
        await exchange.read_body()
    assert caught.value.status == 413


async def test_an_answer_names_its_length():
    exchange, sent = made()
    await exchange.answer(503, {"a": 1}, headers=((b"retry-after", b"2"),))
    assert sent[0]["headers"] == [
        (b"content-type", b"application/json"),
        (b"content-length", b"7"),
        (b"retry-after", b"2"),
    ]
    assert sent[1] == {"type": "http.response.body", "body": b'{"a":1}', "more_body": False}


async def test_a_departure_is_noticed():
    exchange, _ = made(body(b""), {"type": "http.disconnect"})
    await exchange.disconnected()


@pytest.mark.parametrize(
    ("client", "is_loopback"),
    [(("127.0.0.1", 1), True), (("::1", 1), True), (("10.0.0.1", 1), False), (None, True)],
)
def test_only_loopback_is_loopback(client, is_loopback):
    assert made(client=client)[0].is_loopback is is_loopback
