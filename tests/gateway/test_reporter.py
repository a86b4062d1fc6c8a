"""Reports: complete, cumulative, signed, and never in the way."""

import asyncio
import contextlib
import time
from collections.abc import Iterator

import pytest

from gateway.clocks import Clocks
from gateway.contract import keys
from gateway.contract.codec import decode_report
from gateway.contract.envelope import unseal
from gateway.contract.report import TTFT_BOUNDS_S, GatewayReport
from gateway.places import read_place
from gateway.reporter import Demand, Identity, Reporter
from gateway.state import Source, State, index
from gateway.tally import Exchange, Tally
from gateway.valkey import Link, open_connection
from tests.fakes.gauges import VIEW, a_served_tally
from tests.fakes.published import NOW, SIGNING, a_snapshot
from tests.fakes.valkey import RealValkey, running_valkey
from tests.fakes.waiting import until


@pytest.fixture
def valkey() -> Iterator[RealValkey]:
    with running_valkey() as server:
        yield server


def a_reporter(tally: Tally | None = None, state: State | None = None) -> Reporter:
    return Reporter(
        Identity(gateway="g1", boot="b1", started_at=NOW),
        state or State(),
        tally or Tally(),
        lambda: VIEW,
        Clocks(time.monotonic, time.time),
        SIGNING,
        interval_s=0.02,
    )


@contextlib.asynccontextmanager
async def reporting(reporter: Reporter, server: RealValkey):
    link = Link(read_place(server.url), name="reports", dice=lambda: 0.0)
    task = asyncio.create_task(reporter.run(link))
    try:
        yield link
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def published(server: RealValkey) -> GatewayReport | None:
    with server.client() as client:
        data = client.get(keys.report("g1"))
    return None if data is None else decode_report(unseal((SIGNING,), "report", data)[1])


def test_a_report_tells_what_tally_gate_and_state_hold():
    state = State(applied=index(a_snapshot(7), (1, 0, 7), Source.DISK), snapshot_refused="pools: why")
    state.bounds_version, state.overrides_version = (1, 5, 6), 8
    report = a_reporter(a_served_tally(), state).report()
    assert (report.snapshot_revision, report.snapshot_refused, report.degraded) == (7, "pools: why", True)
    assert (report.bounds_epoch, report.bounds_seq, report.overrides_version) == (5, 6, 8)
    (count,) = report.traffic
    assert (count.pool, count.tier, count.tenant, count.outcome, count.count) == (
        "chat",
        1,
        "acme",
        "completed",
        1,
    )
    (tier,) = report.tiers
    assert (tier.offered, tier.admitted, tier.retries, tier.waiting, tier.pressure) == (1, 1, 1, 3, 0.25)
    assert len(tier.ttft) == len(TTFT_BOUNDS_S) + 1
    assert sum(tier.ttft) == sum(tier.wait) == 1
    (backend,) = report.backends
    assert (backend.limit, backend.in_flight_by_tier, backend.kv_use_ratio) == (8.5, (1, 3, 0), None)
    assert [(t.tenant, t.waiting) for t in report.tenants] == [("acme", 3)]


def test_a_tier_that_was_used_and_has_no_queue_any_more_keeps_its_counts():
    tally = a_served_tally()
    gone = Exchange(at=1.0, request_id="r", pool="removed", tier=0, tenant="acme")
    tally.arrived(gone)
    names = {(t.pool, t.tier): t.waiting for t in a_reporter(tally).report().tiers}
    assert names == {("chat", 1): 3, ("removed", 0): 0}


def test_reports_are_numbered_and_counters_only_grow():
    tally = Tally()
    reporter = a_reporter(tally)
    first = reporter.report()
    tally.ended(
        Exchange(at=1.0, request_id="r", pool="p", tier=0, tenant="t", outcome="refused", reason="draining")
    )
    second = reporter.report()
    assert (first.seq, second.seq) == (1, 2)
    assert (len(first.traffic), len(second.traffic)) == (0, 1)


def test_demand_is_a_smoothed_rate_that_survives_a_restart_of_its_counter():
    demand = Demand()
    assert demand.rate(1000.0, 0.0) == 0.0
    for second in range(1, 20):
        rate = demand.rate(1000.0 + 100.0 * second, float(second))
    assert rate == pytest.approx(100.0, rel=0.02)
    assert demand.rate(0.0, 20.0) == rate
    assert demand.rate(0.0, 20.0) == rate


async def test_reports_and_heartbeats_are_published_and_expire_by_themselves(valkey):
    async with reporting(a_reporter(a_served_tally()), valkey):
        await until(lambda: published(valkey) is not None and published(valkey).seq > 2)
        with valkey.client() as client:
            assert 0 < client.pttl(keys.report("g1")) <= keys.REPORT_TTL_MS
            assert client.zscore(keys.GATEWAYS, "g1") == pytest.approx(time.time(), abs=5)


@pytest.mark.faults
async def test_a_frozen_valkey_loses_reports_and_nothing_else(valkey):
    tally = Tally()
    reporter = a_reporter(tally)
    async with reporting(reporter, valkey) as link:
        await until(lambda: link.is_up)
        valkey.freeze()
        await until(lambda: not link.is_up)
        tally.ended(
            Exchange(at=1.0, request_id="r", pool="p", tier=0, tenant="t", outcome="refused", reason="x")
        )
        assert reporter.failed > 0
        valkey.thaw()
        await until(lambda: bool(published(valkey) and published(valkey).traffic))


async def test_a_farewell_takes_the_gateway_off_the_list(valkey):
    reporter = a_reporter()
    async with reporting(reporter, valkey):
        await until(lambda: published(valkey) is not None)
    connection = await open_connection(read_place(valkey.url), name="test")
    await reporter.farewell(connection)
    connection.close()
    assert published(valkey) is None
    with valkey.client() as client:
        assert client.zcard(keys.GATEWAYS) == 0


async def test_a_valkey_without_memory_refuses_reports_which_is_counted(valkey):
    with valkey.client() as client:
        client.config_set("maxmemory", 1)
    reporter = a_reporter()
    async with reporting(reporter, valkey) as link:
        await until(lambda: reporter.failed > 1)
        assert link.is_up
