"""Publish a GatewayReport on a cadence, and the heartbeat by which control knows its gateways.

Counters are cumulative and histograms have fixed buckets, so that a lost report loses nothing. A report that cannot be
published is counted and forgotten: the next one says it all.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp

from gateway.clocks import Clocks
from gateway.contract import keys
from gateway.contract.codec import encode
from gateway.contract.envelope import Header, SigningKey, seal
from gateway.contract.report import BackendGauges, GatewayReport, TenantGauge, TierSeries, TrafficCount
from gateway.core.gauges import BackendGauge, GateView, QueueGauge
from gateway.state import State
from gateway.tally import Tally, TierTally
from gateway.valkey import Command, Connection, Link, ReplyError, ValkeyGone

DEMAND_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who reports. `boot` differs for every start of the process."""

    gateway: str
    boot: str
    started_at: float  # epoch seconds


@dataclass(slots=True)
class Reporter:
    """Builds reports from the tally, the gate and the state, and publishes them."""

    identity: Identity
    state: State
    tally: Tally
    view: Callable[[], GateView]
    clocks: Clocks
    signing_key: SigningKey
    interval_s: float = 0.5
    failed: int = 0
    loop_lag_s: float = 0.0
    _seq: int = 0
    _demand: "dict[str, Demand]" = field(default_factory=dict)

    async def run(self, link: Link) -> None:
        """For ever: one report per interval while Valkey answers."""
        await link.run(lambda connection: self._session(connection, link))

    async def _session(self, connection: Connection, link: Link) -> None:
        while True:
            try:
                replies = await connection.batch(self._commands())
            except ValkeyGone:
                self.failed += 1
                raise
            self.failed += any(isinstance(reply, ReplyError) for reply in replies)  # say, no memory left
            link.came_up()
            due_at = self.clocks.monotonic() + self.interval_s
            await asyncio.sleep(self.interval_s)
            self.loop_lag_s = max(0.0, self.clocks.monotonic() - due_at)

    def _commands(self) -> list[Command]:
        report = self.report()
        header = Header(
            kind="report",
            generation=0,
            epoch=int(self.identity.started_at),
            seq=report.seq,
            sent_at=report.sent_at,
            key_id="",
        )
        data = seal(self.signing_key, header, encode(report))
        gateway = self.identity.gateway
        return [
            ("SET", keys.report(gateway), data, "PX", keys.REPORT_TTL_MS),
            ("ZADD", keys.GATEWAYS, report.sent_at, gateway),
        ]

    async def farewell(self, connection: Connection) -> None:
        """Leave the list of gateways: the others share what this one had at once."""
        gateway = self.identity.gateway
        await connection.batch([("ZREM", keys.GATEWAYS, gateway), ("DEL", keys.report(gateway))])

    def report(self) -> GatewayReport:
        """Everything, at this instant."""
        view, state, now = self.view(), self.state, self.clocks.monotonic()
        wall = self.clocks.wall()
        self._seq += 1
        return GatewayReport(
            gateway=self.identity.gateway,
            boot=self.identity.boot,
            started_at=self.identity.started_at,
            sent_at=wall,
            seq=self._seq,
            snapshot_revision=state.applied.revision if state.applied else 0,
            snapshot_refused=state.snapshot_refused,
            bounds_epoch=state.bounds_version[1],
            bounds_seq=state.bounds_version[2],
            overrides_version=state.overrides_version,
            ledger_imbalance=view.ledger_imbalance,
            draining=state.draining,
            degraded=state.degraded,
            traffic=tuple(
                TrafficCount(pool=p, tier=r, tenant=t, outcome=o, reason=why, count=n)
                for (p, r, t, o, why), n in self.tally.traffic.items()
            ),
            tiers=self._tiers(view),
            backends=self._backends(view, now, wall - now),
            tenants=self._tenants(view),
        )

    def _tiers(self, view: GateView) -> tuple[TierSeries, ...]:
        """Every (pool, tier) that has a queue or was ever used; a removed pool's counts stay until a restart."""
        queues = {(q.pool, q.tier): q for q in view.queues}
        names = dict.fromkeys([*queues, *self.tally.tiers])
        return tuple(_series(name, self.tally.tier(*name), queues.get(name)) for name in names)

    def _backends(self, view: GateView, now: float, offset_s: float) -> tuple[BackendGauges, ...]:
        """Each backend's gauges. What waits in a pool is asked of all of its backends alike."""
        waiting: dict[str, int] = {}
        for queue in view.queues:
            waiting[queue.pool] = waiting.get(queue.pool, 0) + queue.waiting_cost
        members = Counter(gauge.pool for gauge in view.backends)
        self._demand = {g.backend: self._demand.get(g.backend) or Demand() for g in view.backends}
        return tuple(
            _backend(
                gauge,
                offset_s,
                self._demand[gauge.backend].rate(gauge.demand_cost, now)
                + waiting.get(gauge.pool, 0) / members[gauge.pool],
            )
            for gauge in view.backends
        )

    def _tenants(self, view: GateView) -> tuple[TenantGauge, ...]:
        """Tenants that have something here now, or ever had."""
        waiting = {(q.pool, q.tier, tenant): n for q in view.queues for tenant, n in q.waiting_by_tenant}
        in_flight = self.tally.in_flight
        costs = self.tally.costs
        names = dict.fromkeys([*waiting, *(k for k, n in in_flight.items() if n), *costs])
        return tuple(
            TenantGauge(
                pool=name[0],
                tier=name[1],
                tenant=name[2],
                waiting=waiting.get(name, 0),
                in_flight=in_flight.get(name, 0),
                cost=costs.get(name, 0.0),
            )
            for name in names
        )


@dataclass(slots=True)
class Demand:
    """Rate of a cumulative cost, smoothed over `DEMAND_S`: an exponential average by elapsed time."""

    cost: float | None = None
    at: float = 0.0
    per_s: float = 0.0

    def rate(self, cost: float, now: float) -> float:
        """The rate after a reading at `now`."""
        elapsed_s = now - self.at
        if self.cost is None or cost < self.cost:
            self.cost, self.at = cost, now
        elif elapsed_s > 0:
            weight = 1.0 - exp(-elapsed_s / DEMAND_S)
            self.per_s += weight * ((cost - self.cost) / elapsed_s - self.per_s)
            self.cost, self.at = cost, now
        return self.per_s


def _series(name: tuple[str, int], tally: TierTally, queue: QueueGauge | None) -> TierSeries:
    pool, tier = name
    return TierSeries(
        pool=pool,
        tier=tier,
        offered=tally.offered,
        admitted=tally.admitted,
        fallback=tally.fallback,
        retries=tally.retries,
        prompt_tokens=tally.prompt_tokens,
        output_tokens=tally.output_tokens,
        goodput_tokens=tally.goodput_tokens,
        wasted_tokens=tally.wasted_tokens,
        ttft=tuple(tally.ttft.counts),
        tpot=tuple(tally.tpot.counts),
        wait=tuple(tally.wait.counts),
        waiting=queue.waiting if queue else 0,
        oldest_wait_s=queue.oldest_wait_s if queue else 0.0,
        pressure=queue.pressure if queue else 0.0,
    )


def _backend(gauge: BackendGauge, offset_s: float, cost_per_s: float) -> BackendGauges:
    """`offset_s` turns the gate's clock into epoch seconds."""
    until = gauge.breaker_until
    return BackendGauges(
        backend=gauge.backend,
        pool=gauge.pool,
        limit=gauge.limit,
        in_flight=gauge.in_flight,
        in_flight_by_tier=gauge.in_flight_by_tier,
        kv_tokens=gauge.kv_tokens,
        prefill_tokens=gauge.prefill_tokens,
        prefill_ratio=gauge.prefill_ratio,
        kv_use_ratio=gauge.kv_use_ratio,
        sequences_ratio=gauge.sequences_ratio,
        binding=gauge.binding,
        slow=gauge.slow,
        tpot_s=gauge.tpot_s,
        breaker=gauge.breaker,
        breaker_until=None if until is None else until + offset_s,
        failures=gauge.failures,
        successes=gauge.successes,
        cost_per_s=cost_per_s,
    )
