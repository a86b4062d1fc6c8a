"""Quotas shared by several gateways through a real Valkey (and a real Redis 7.0), also frozen, killed and emptied."""

import asyncio
import contextlib
import time
from collections.abc import Iterator

import pytest

from gateway.contract import keys
from gateway.core.events import QuotaDenied, QuotaGranted
from gateway.core.vocabulary import ShedReason
from gateway.quotas.leases import Month
from gateway.quotas.quotas import PATIENCE_S
from tests.fakes.quota_gateway import quota_gateway
from tests.fakes.valkey import RealValkey, running_valkey, servers
from tests.fakes.waiting import until


@pytest.fixture(params=sorted(servers()))
def valkey(request) -> Iterator[RealValkey]:
    with running_valkey(servers()[request.param]) as server:
        yield server


@pytest.fixture
def one_valkey() -> Iterator[RealValkey]:
    with running_valkey() as server:
        yield server


async def test_two_gateways_share_one_limit(valkey):
    """A09: requests/min 10, 40 requests alternating over two gateways: 10 pass in all."""
    async with (
        quota_gateway(valkey.url, "g1", gateways=2, requests_per_min=10) as one,
        quota_gateway(valkey.url, "g2", gateways=2, requests_per_min=10) as two,
    ):
        await one.until_shared()
        await two.until_shared()
        granted = 0
        for _ in range(20):
            granted += len(await one.granted(1)) + len(await two.granted(1))
        assert 9 <= granted <= 11  # ten, one refilled at most, one held by the other for a moment


async def test_two_gateways_share_a_concurrency_limit(valkey):
    """A09: concurrency 4, 20 parallel requests over two gateways: 4 run, and 4 again after those ended."""
    async with (
        quota_gateway(valkey.url, "g1", gateways=2, concurrency=4) as one,
        quota_gateway(valkey.url, "g2", gateways=2, concurrency=4) as two,
    ):
        await one.until_shared()
        await two.until_shared()
        for _ in range(2):
            answers = await asyncio.gather(*(g.ask() for _ in range(10) for g in (one, two)))
            granted = [a.ticket for a in answers if isinstance(a, QuotaGranted)]
            assert len(granted) == 4
            reasons = {a.reason for a in answers if isinstance(a, QuotaDenied)}
            assert reasons == {ShedReason.CONCURRENCY_LIMITED}
            for ticket in granted:
                one.quotas.settle(ticket, 0)
                two.quotas.settle(ticket, 0)
            await asyncio.sleep(1.3)  # what is idle goes back


async def test_the_seats_of_a_gateway_that_died_return_after_the_lease_time(one_valkey):
    """A09: SIGKILL of one gateway; its share returns within the documented 5 s."""
    async with quota_gateway(one_valkey.url, "g1", concurrency=2) as one:
        await one.until_shared()
        assert len(await one.granted(2)) == 2
    async with quota_gateway(one_valkey.url, "g2", concurrency=2) as two:
        await two.until_shared()
        assert await two.granted(1) == []
        await asyncio.sleep(5.2)
        assert len(await two.granted(2)) == 2


async def test_settling_gives_back_what_was_not_used_at_once(valkey):
    """A07: tokens/min 1000, 20 requests that reserve 400: two pass; settled with 10 each, more pass at once."""
    async with quota_gateway(valkey.url, tokens_per_min=1000) as one:
        await one.until_shared()
        answers = await asyncio.gather(*(one.ask(400) for _ in range(20)))
        granted = [a.ticket for a in answers if isinstance(a, QuotaGranted)]
        assert len(granted) == 2
        for ticket in granted:
            one.quotas.settle(ticket, 10)
            one.quotas.settle(ticket, 10)  # only the first counts
        standing = one.quotas.standing("acme", "chat")
        assert standing is not None
        assert 975 <= standing.tokens.remaining <= 985
        assert len(await one.granted(2, 400)) == 2


async def test_what_was_reserved_here_can_be_used_there_after_it_was_given_back(one_valkey):
    async with (
        quota_gateway(one_valkey.url, "g1", gateways=2, tokens_per_min=1000) as one,
        quota_gateway(one_valkey.url, "g2", gateways=2, tokens_per_min=1000) as two,
    ):
        await one.until_shared()
        await two.until_shared()
        (ticket,) = await one.granted(1, 900)
        assert await two.granted(1, 900) == []
        one.quotas.refund(ticket)
        await asyncio.sleep(1.3)
        assert len(await two.granted(1, 900)) == 1


async def test_most_requests_are_decided_without_waiting(one_valkey):
    async with quota_gateway(one_valkey.url, requests_per_min=60_000, tokens_per_min=6_000_000) as one:
        await one.until_shared()
        for _ in range(400):
            assert isinstance(await one.ask(100), QuotaGranted)
            await asyncio.sleep(0.001)
        decisions = one.quotas.decisions
        assert decisions["memory", "granted"] >= 0.95 * 400
        assert sum(decisions.values()) == 400


@pytest.mark.parametrize("gateways", [2, 3])
async def test_any_number_of_gateways_together_never_grant_more_than_burst_and_refill(one_valkey, gateways):
    async with contextlib.AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(
                quota_gateway(
                    one_valkey.url, f"g{n}", gateways=gateways, requests_per_min=1200, requests_burst=50
                )
            )
            for n in range(gateways)
        ]
        for member in members:
            await member.until_shared()
        began = time.monotonic()
        granted = 0

        async def greedy(member) -> None:
            nonlocal granted
            while time.monotonic() - began < 1.0:
                granted += len(await member.granted(1))
                await asyncio.sleep(0.001)

        await asyncio.gather(*(greedy(m) for m in members))
        elapsed_s = time.monotonic() - began
        assert granted <= 50 + 20 * elapsed_s + 1
        assert granted >= 45  # leases hide none of the burst; the refill depends on how busy the machine is


async def test_a_gateway_that_ends_gives_everything_back_at_once(valkey):
    bounds = {"gateways": 2, "requests_per_min": 60, "concurrency": 3, "monthly_tokens": 1000}
    async with (
        quota_gateway(valkey.url, "g1", **bounds) as one,
        quota_gateway(valkey.url, "g2", **bounds) as two,
    ):
        await one.until_shared()
        await two.until_shared()
        for ticket in await one.granted(3):
            one.quotas.refund(ticket)
        connection = await one.link.second()
        await one.sharing.farewell(connection)
        connection.close()
        assert len(await two.granted(3)) == 3


async def test_a_script_flush_costs_nothing(valkey):
    async with quota_gateway(valkey.url, requests_per_min=600, concurrency=50, monthly_tokens=10**6) as one:
        await one.until_shared()
        assert len(await one.granted(3)) == 3
        with valkey.client() as client:
            client.script_flush()
        assert len(await one.granted(20)) == 20
        assert one.link.faults == 0


async def test_a_flushed_bucket_is_restored_from_what_a_gateway_knows(one_valkey):
    """FLUSHALL must not hand out a second burst."""
    async with quota_gateway(one_valkey.url, requests_per_min=60, requests_burst=30) as one:
        await one.until_shared()
        assert 28 <= len(await one.granted(40)) <= 31
        with one_valkey.client() as client:
            client.flushall()
        await asyncio.sleep(0.3)
        assert len(await one.granted(20)) <= 2


# -- without Valkey ----------------------------------------------------------------------------------------------------


async def test_without_valkey_limits_are_not_multiplied():
    """A34: three gateways, concurrency 6, Valkey never there: 2 each."""
    nowhere = "unix:///nonexistent.sock"
    async with contextlib.AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(quota_gateway(nowhere, f"g{n}", gateways=3, concurrency=6))
            for n in range(3)
        ]
        answers = await asyncio.gather(*(m.ask() for _ in range(20) for m in members))
        assert sum(isinstance(a, QuotaGranted) for a in answers) == 6


@pytest.mark.faults
async def test_when_valkey_dies_the_rest_of_a_bucket_is_divided_not_multiplied(one_valkey):
    async with contextlib.AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(
                quota_gateway(one_valkey.url, f"g{n}", gateways=3, requests_per_min=60, requests_burst=30)
            )
            for n in range(3)
        ]
        for member in members:
            await member.until_shared()
        first = sum([len(await m.granted(4)) for m in members])
        await asyncio.sleep(0.3)
        for member in members:  # each has heard of the others' use
            first += len(await member.granted(1))
        one_valkey.kill()
        for member in members:
            await member.until_shared(is_up=False)
        alone = sum([len(await m.granted(30)) for m in members])
        assert first == 15
        assert 10 <= alone <= 18  # what was left is 15; 5 % of the burst and a refill on top
        assert members[0].quotas.decisions["alone", "denied"] > 0


@pytest.mark.faults
async def test_a_frozen_valkey_delays_no_request_by_more_than_its_patience(one_valkey):
    """A33: SIGSTOP under load; near 0 after the first few; full function within 5 s of SIGCONT."""
    async with quota_gateway(
        one_valkey.url, patience_s=PATIENCE_S, requests_per_min=6000, concurrency=100
    ) as one:
        await one.until_shared()
        await one.granted(5)
        one_valkey.freeze()
        one.waits_s.clear()
        began = time.monotonic()
        answers = []
        while time.monotonic() - began < 1.5:
            answers.append(await one.ask())
            await asyncio.sleep(0.02)
        assert [a for a in answers if not isinstance(a, QuotaGranted)] == []  # a bounded share, not nothing
        assert max(one.waits_s) < 0.15
        assert sum(w > 0.005 for w in one.waits_s) <= 3
        one_valkey.thaw()
        await one.until_shared()
        assert len(await one.granted(3)) == 3


@pytest.mark.faults
async def test_what_was_granted_during_an_outage_is_owed_afterwards(one_valkey):
    async with quota_gateway(one_valkey.url, requests_per_min=60, requests_burst=40) as one:
        await one.until_shared()
        assert len(await one.granted(5)) == 5
        await asyncio.sleep(0.2)
        one_valkey.freeze()
        await one.granted(1)
        await one.until_shared(is_up=False)
        assert len(await one.granted(20)) == 20
        one_valkey.thaw()
        await one.until_shared()
        await asyncio.sleep(0.3)
        left = len(await one.granted(40))
        assert 10 <= left <= 19  # 40 - 5 - 1 - 20, and what came in meanwhile


async def test_out_of_memory_leaves_the_account_on_its_own(one_valkey):
    async with quota_gateway(one_valkey.url, patience_s=PATIENCE_S, requests_per_min=600) as one:
        await one.until_shared()
        with one_valkey.client() as client:
            client.set(keys.quota("acme", "requests:chat"), "of a wrong type")
        answers = await one.granted(20)
        assert len(answers) == 20
        assert max(one.waits_s) < 0.15


# -- months ------------------------------------------------------------------------------------------------------------


def month_of(gateway) -> Month:
    return gateway.quotas.accounts["acme", "chat"].month


async def test_a_month_is_counted_over_gateways_and_survives_a_flush(valkey):
    async with (
        quota_gateway(valkey.url, "g1", monthly_tokens=1000) as one,
        quota_gateway(valkey.url, "g2", monthly_tokens=1000) as two,
    ):
        for member in (one, two):
            await member.until_shared()
            (ticket,) = await member.granted(1, 300)
            member.quotas.settle(ticket, 250)
        await until(lambda: month_of(one).sent == month_of(two).sent == 250)
        with valkey.client() as client:
            client.flushall()
        for member in (one, two):
            (ticket,) = await member.granted(1, 100)
            member.quotas.settle(ticket, 100)
        await until(lambda: month_of(one).sent == month_of(two).sent == 350, timeout_s=6)
        (ticket,) = await two.granted(1, 1)
        await until(lambda: month_of(two).quota.used == 700, timeout_s=6)
        answer = await two.ask(301)
        assert isinstance(answer, QuotaDenied)
        assert (answer.reason, answer.retry_at) == (ShedReason.QUOTA_EXHAUSTED, None)
        assert isinstance(await two.ask(250), QuotaGranted)


@pytest.mark.faults
@pytest.mark.parametrize("junk", ["nan", "inf", "-inf", "x"])
async def test_figures_that_somebody_else_wrote_leave_the_account_bounded_and_the_job_alive(one_valkey, junk):
    """Whoever can write to Valkey writes nonsense: no exception ends the sharing (it would be raised here)."""
    with one_valkey.client() as client:
        for kind, field in (
            ("requests", "level"),
            ("requests", "at"),
            ("tokens", "g:g2"),
            ("monthly", "floor"),
        ):
            client.hset(keys.quota("acme", f"{kind}:chat"), field, junk)
        client.hset(keys.quota("acme", "monthly:chat"), "month", time.strftime("%Y-%m", time.gmtime()))
    bounds = {"requests_per_min": 10, "monthly_tokens": 1000, "tokens_per_min": 1000}
    async with quota_gateway(one_valkey.url, "g1", patience_s=0.05, **bounds) as gateway:
        await until(lambda: gateway.link.is_up)
        await gateway.granted(2, tokens=1)
        await asyncio.sleep(0.2)
        assert len(await gateway.granted(30, tokens=1)) <= 11  # never unlimited
