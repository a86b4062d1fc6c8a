"""Usage: every LLM token is counted once, whatever happens to Valkey, the disk or the process."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.clocks import Clocks
from gateway.contract import keys
from gateway.contract.codec import decode_usage, encode
from gateway.contract.envelope import unseal
from gateway.contract.report import UsageDelta
from gateway.places import read_place
from gateway.tally import Exchange
from gateway.usage import Usage
from gateway.valkey import Link, ValkeyGone, open_connection
from tests.fakes.published import SIGNING
from tests.fakes.valkey import RealValkey, running_valkey
from tests.fakes.waiting import until


@pytest.fixture
def valkey() -> Iterator[RealValkey]:
    with running_valkey() as server:
        yield server


def a_usage(directory: Path, boot: str = "b1", **how) -> Usage:
    return Usage("g1", boot, directory, Clocks(time.monotonic, time.time), SIGNING, flush_s=0.02, **how)


def an_exchange(tenant: str = "acme", **facts) -> Exchange:
    plain = {"attempts": 1, "prompt_tokens": 10, "output_tokens": 5, "outcome": "completed"}
    return Exchange(at=1.0, request_id="r", pool="chat", tier=1, tenant=tenant, **(plain | facts))


def in_ledger(server: RealValkey) -> dict[tuple[str, str, int], UsageDelta]:
    """What a ledger that upserts by (gateway, boot, seq) would hold."""
    with server.client() as client:
        entries = client.xrange(keys.USAGE)
    found = [decode_usage(unseal((SIGNING,), "usage", e[keys.USAGE_FIELD.encode()])[1]) for _, e in entries]
    return {(d.gateway, d.boot, d.seq): d for d in found}


@contextlib.asynccontextmanager
async def sending(usage: Usage, server: RealValkey):
    link = Link(read_place(server.url), name="usage", dice=lambda: 0.0)
    tasks = [asyncio.create_task(usage.spool()), asyncio.create_task(usage.run(link))]
    try:
        yield link
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def test_requests_are_summed_by_tenant_and_pool(tmp_path):
    usage = a_usage(tmp_path)
    for exchange in (
        an_exchange(),
        an_exchange(output_tokens=0),
        an_exchange("other"),
        an_exchange(attempts=0),
        an_exchange(prompt_tokens=0, output_tokens=0),
    ):
        usage.add(exchange)
    deltas = {d.tenant: d for d in usage.collect()}
    assert (deltas["acme"].requests, deltas["acme"].prompt_tokens, deltas["acme"].output_tokens) == (2, 20, 5)
    assert {d.seq for d in deltas.values()} == {1, 2}
    assert usage.collect() == []


async def test_what_was_used_reaches_the_stream_and_leaves_the_disk(valkey, tmp_path):
    usage = a_usage(tmp_path)
    async with sending(usage, valkey):
        usage.add(an_exchange())
        await until(lambda: len(in_ledger(valkey)) == 1)
        await until(lambda: usage.spooled_bytes == 0)
        assert list(tmp_path.glob("*.spool")) == []


@pytest.mark.faults
async def test_an_outage_loses_nothing_and_counts_nothing_twice(valkey, tmp_path):
    usage = a_usage(tmp_path)
    async with sending(usage, valkey) as link:
        for n in range(30):
            usage.add(an_exchange(output_tokens=1))
            if n == 10:
                valkey.freeze()
            if n == 20:
                valkey.thaw()
            await asyncio.sleep(0.03)
        await until(lambda: link.is_up)
        await until(lambda: sum(d.output_tokens for d in in_ledger(valkey).values()) == 30)
        assert sum(d.requests for d in in_ledger(valkey).values()) == 30


async def test_what_a_killed_process_had_spooled_is_sent_by_the_next_one(valkey, tmp_path):
    before = a_usage(tmp_path, "b1")
    before.add(an_exchange())
    await before.flush()
    with next(tmp_path.glob("*.spool")).open("ab") as spool:
        spool.write(b'{"gateway":"g1","bo')  # cut off in the middle of a write
    after = a_usage(tmp_path, "b2")
    after.recover()
    assert after.spooled_bytes > 0
    async with sending(after, valkey):
        await until(lambda: list(in_ledger(valkey)) == [("g1", "b1", 1)])
        await until(lambda: list(tmp_path.glob("*.spool")) == [])


async def test_a_full_spool_drops_and_counts(tmp_path):
    usage = a_usage(tmp_path, max_spool_bytes=200)
    for _ in range(3):
        usage.add(an_exchange())
        await usage.flush()
    assert usage.dropped == 2
    assert 0 < usage.spooled_bytes <= 200


async def test_a_disk_that_refuses_is_said_and_costs_nothing_while_the_process_lives(
    valkey, tmp_path, caplog
):
    (tmp_path / "file").write_text("")
    usage = a_usage(tmp_path / "file")
    usage.add(an_exchange())
    await usage.flush()
    assert "could not be spooled" in caplog.text
    connection = await open_connection(read_place(valkey.url), name="test")
    await usage.send(connection)
    connection.close()
    assert len(in_ledger(valkey)) == 1


async def test_a_valkey_that_refuses_the_stream_leaves_it_spooled(valkey, tmp_path):
    usage = a_usage(tmp_path)
    usage.add(an_exchange())
    await usage.flush()
    with valkey.client() as client:
        client.set(keys.USAGE, "of a wrong type")
    connection = await open_connection(read_place(valkey.url), name="test")
    with pytest.raises(ValkeyGone, match="refused"):
        await usage.send(connection)
    connection.close()
    assert usage.spooled_bytes > 0


def test_a_delta_is_small():
    delta = UsageDelta(
        gateway="g" * 60,
        boot="b" * 12,
        seq=10**9,
        at=1.8e9,
        tenant="t" * 100,
        pool="p" * 100,
        requests=10**6,
        prompt_tokens=10**9,
        output_tokens=10**9,
    )
    assert len(encode(delta)) < 600
