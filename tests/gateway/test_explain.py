"""Explanations: all that were shed, a sample of the others, bounded in Valkey."""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from gateway import explain as explain_module
from gateway.contract import keys
from gateway.contract.codec import decode_explanation
from gateway.core.commands import Decision
from gateway.core.recorder import is_sampled
from gateway.explain import Explain
from gateway.places import read_place
from gateway.state import State
from gateway.tally import Exchange
from gateway.valkey import Link, open_connection
from tests.fakes.valkey import RealValkey, running_valkey
from tests.fakes.waiting import until


@pytest.fixture
def valkey() -> Iterator[RealValkey]:
    with running_valkey() as server:
        yield server


def an_exchange(request_id: str = "r1", outcome: str = "refused") -> Exchange:
    return Exchange(
        at=1.0,
        request_id=request_id,
        gateway="g1",
        pool="chat",
        tier=1,
        tenant="acme",
        outcome=outcome,
        reason="queue_full",
        decision=Decision("queue-size", 4, 4, 5, 2.5),
    )


async def flushed(explain: Explain, server: RealValkey) -> None:
    connection = await open_connection(read_place(server.url), name="test")
    await explain.flush(connection)
    connection.close()


async def test_a_refusal_can_be_looked_up_for_an_hour(valkey):
    explain = Explain(State())
    explain.add(an_exchange())
    await flushed(explain, valkey)
    with valkey.client() as client:
        found = decode_explanation(client.get(keys.explain("r1")))
        assert 3590 < client.ttl(keys.explain("r1")) <= keys.EXPLAIN_TTL_S
    assert (found.tenant, found.reason, found.decision.rule) == ("acme", "queue_full", "queue-size")


async def test_of_what_was_served_one_in_a_hundred_is_kept(valkey):
    explain = Explain(State())
    names = [f"r{n}" for n in range(1000)]
    for name in names:
        explain.add(an_exchange(name, "completed"))
    explain.add(an_exchange("no-ticket", ""))
    await flushed(explain, valkey)
    with valkey.client() as client:
        assert client.dbsize() == sum(is_sampled(name) for name in names) > 0


async def test_a_flood_shortens_their_life_so_that_memory_stays_bounded(valkey):
    explain = Explain(State(gateways=2), flush_s=0.01)
    for n in range(400):
        explain.add(an_exchange(f"r{n}"))
    await flushed(explain, valkey)  # 40,000 a second, smoothed 8,000
    with valkey.client() as client:
        assert 10 <= client.ttl(keys.explain("r1")) <= 13


async def test_what_finds_no_room_is_dropped_and_counted(valkey, monkeypatch):
    monkeypatch.setattr(explain_module, "MAX_WAITING", 3)
    explain = Explain(State())
    for n in range(5):
        explain.add(an_exchange(f"r{n}"))
    assert explain.dropped == 2
    with valkey.client() as client:
        client.config_set("maxmemory", 1)
    await flushed(explain, valkey)
    assert explain.dropped == 5


async def test_they_are_published_in_the_background(valkey):
    explain = Explain(State(), flush_s=0.02)
    link = Link(read_place(valkey.url), name="explanations", dice=lambda: 0.0)
    task = asyncio.create_task(explain.run(link))
    explain.add(an_exchange())

    def is_there() -> bool:
        with valkey.client() as client:
            return client.dbsize() == 1

    await until(is_there)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
