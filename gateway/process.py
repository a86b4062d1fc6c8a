"""All parts of one gateway process, put together: who knows whom, what runs in the background, how it ends.

Decides nothing about requests. Clock, dice and descriptors come from the entry point.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

from gateway import edge
from gateway.accesslog import AccessLog
from gateway.app import App
from gateway.clocks import Clocks
from gateway.contract.envelope import SigningKey
from gateway.core.events import DrainStarted, QuotaDenied, QuotaGranted
from gateway.core.gate import Gate
from gateway.core.policy import GatePolicy, default_tiers
from gateway.explain import Explain
from gateway.gatekeeper import Gatekeeper
from gateway.metrics import Metrics
from gateway.ops import OpsApp
from gateway.places import read_place
from gateway.proxy import Proxy
from gateway.proxy.wire import Targets
from gateway.quotas import Quotas
from gateway.quotas.sharing import Sharing
from gateway.reporter import Identity, Reporter
from gateway.settings import Settings
from gateway.snapshots import Snapshots
from gateway.state import Applied, State
from gateway.tally import Tally
from gateway.upstream import Upstream
from gateway.usage import Usage
from gateway.valkey import Link, ValkeyGone, open_connection

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

FIRST_SNAPSHOT_S = 0.5  # how long the start waits for Valkey's snapshot before it serves the one on disk
FAREWELL_S = 0.5
RESTART_S = 1.0

log = logging.getLogger("sluicegate.process")

Job = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What only the entry point may name: clocks, dice, randomness and descriptors."""

    clocks: Clocks
    dice: Callable[[], float]
    boot: str  # different for every start
    access_descriptor: int | None = None  # None: no access log
    say: Callable[[str], None] = field(default=lambda _line: None)  # the one line when ready


class Process:
    """One gateway. `run` serves until `stop`; nothing of it is left afterwards."""

    def __init__(self, settings: Settings, world: World) -> None:
        """Put the parts together. Needs a running loop; does no I/O yet."""
        loop = asyncio.get_running_loop()
        self.settings, self.world = settings, world
        self.stop, self.hurry = asyncio.Event(), asyncio.Event()
        clocks, keys = world.clocks, tuple(SigningKey(secret) for secret in settings.signing_keys)
        self.state = State(gateways=settings.gateways)
        self.tally = Tally()
        self.quotas = Quotas(self.state, clocks, loop, answer=self._answer)
        self.sharing = Sharing(self.quotas, settings.gateway_id, world.boot)
        gate = Gate(_empty_policy(settings), now=clocks.monotonic(), dice=world.dice)
        self.keeper = Gatekeeper(gate, self.quotas, loop=loop, now=clocks.monotonic)
        self.snapshots = Snapshots(
            state=self.state,
            signing_keys=keys,
            gateway=settings.gateway_id,
            directory=settings.directory,
            clocks=clocks,
            deliver=self.keeper.feed,
            resync_s=settings.resync_s,
            on_applied=[self._applied, self.quotas.apply],
        )
        self.upstream = Upstream(clocks.monotonic)
        self.app = self._app()
        self._tell(keys[0])
        self.metrics = self._metrics()
        self.ops = OpsApp(self.state, self.metrics, settings.gateway_id)
        self._count = 0

    def _answer(self, answer: QuotaGranted | QuotaDenied) -> None:
        """The quotas were built before the gatekeeper that they answer to."""
        self.keeper.feed(answer)

    # -- putting together -----------------------------------------------------------------------------------------

    def _app(self) -> App:
        targets = Targets(self.state, allow_private=self.settings.allow_private_backends)
        return App(
            proxy=Proxy(self.keeper, targets, self.upstream, self.tally, self.world.clocks),
            keeper=self.keeper,
            state=self.state,
            tally=self.tally,
            clocks=self.world.clocks,
            settings=self.settings,
            new_id=self._new_id,
            standing=self.quotas.standing,
        )

    def _tell(self, key: SigningKey) -> None:
        """Everything that tells of what happened: all sinks of one tally."""
        settings, world = self.settings, self.world
        identity = Identity(gateway=settings.gateway_id, boot=world.boot, started_at=world.clocks.wall())
        self.reporter = Reporter(
            identity,
            self.state,
            self.tally,
            self.keeper.view,
            world.clocks,
            key,
            interval_s=settings.report_interval_s,
        )
        self.usage = Usage(settings.gateway_id, world.boot, settings.directory, world.clocks, key)
        self.explain = Explain(self.state)
        self.tally.sinks += [self.usage.add, self.explain.add]
        self.access: AccessLog | None = None
        if world.access_descriptor is not None:
            self.access = AccessLog(world.access_descriptor, loop=asyncio.get_running_loop())
            self.tally.sinks.append(self.access.write)

    def _metrics(self) -> Metrics:
        started_at = self.reporter.identity.started_at
        access = self.access
        return Metrics(
            self.tally,
            self.state,
            self.keeper.view,
            self.snapshots.refused,
            self.quotas.decisions,
            {
                "sluicegate_started_at_seconds": lambda: started_at,
                "sluicegate_usage_spooled_bytes": lambda: self.usage.spooled_bytes,
                "sluicegate_usage_dropped_total": lambda: self.usage.dropped,
                "sluicegate_explanations_dropped_total": lambda: self.explain.dropped,
                "sluicegate_access_lines_dropped_total": lambda: access.dropped if access else 0,
                "sluicegate_reports_failed_total": lambda: self.reporter.failed,
                "sluicegate_tier_raises_ignored_total": lambda: self.app.raises_ignored,
                "sluicegate_loop_lag_seconds": lambda: self.reporter.loop_lag_s,
            },
        )

    def _applied(self, applied: Applied) -> None:
        """What the tally needs to know of a snapshot."""
        tiers, pools = applied.tiers.values(), applied.pools.values()
        self.tally.objectives = {
            t.policy.rank: (t.policy.ttft_objective_s, t.policy.tpot_objective_s) for t in tiers
        }
        self.tally.output_costs = {p.policy.name: p.policy.output_cost for p in pools}

    def _new_id(self) -> str:
        """Unique for ever: the boot is random, the count grows."""
        self._count += 1
        return f"req_{self.world.boot}{self._count:08x}"

    # -- running --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load, connect, serve, drain, end.

        Raises:
            OSError: an address cannot be listened on.
        """
        self.snapshots.load()
        self.usage.recover()
        tasks = [asyncio.create_task(_for_ever(name, job)) for name, job in self._jobs().items()]
        drain = asyncio.create_task(self._drain())
        try:
            await self._first_snapshot()
            app, ops = cast("ASGI3Application", self.app), cast("ASGI3Application", self.ops)
            await edge.run(app, ops, self._plan(), self.stop, self.hurry)
        finally:
            for task in (drain, *tasks):
                task.cancel()
            await asyncio.wait((drain, *tasks))
            await self._end()

    def _jobs(self) -> dict[str, Job]:
        place = read_place(self.settings.redis_url)
        jobs = {
            "snapshots": self.snapshots.run,
            "quotas": self.sharing.run,
            "reports": self.reporter.run,
            "usage": self.usage.run,
            "explanations": self.explain.run,
        }
        links = {
            name: Link(place, name=f"{self.settings.gateway_id}:{name}", dice=self.world.dice)
            for name in jobs
        }
        links["snapshots"].on_change.append(self._valkey_changed)
        self._snapshots_link = links["snapshots"]
        own: dict[str, Job] = {"files": self.snapshots.store, "spool": self.usage.spool}
        return own | {name: partial(run, links[name]) for name, run in jobs.items()}

    def _valkey_changed(self, is_up: bool) -> None:  # noqa: FBT001  # Link's signature
        self.state.live_valkey = is_up

    async def _first_snapshot(self) -> None:
        """Give Valkey a moment to bring something newer than the file; not when it is known to be away."""
        link, clock = self._snapshots_link, self.world.clocks.monotonic
        until = clock() + FIRST_SNAPSHOT_S
        while not link.is_up and not link.faults and clock() < until:  # noqa: ASYNC110  # of three things
            await asyncio.sleep(0.005)

    def _plan(self) -> edge.Plan:
        settings = self.settings
        return edge.Plan(
            listen=settings.listen,
            ops_listen=settings.ops_listen,
            limits=edge.Limits(body_bytes=settings.max_body_bytes),
            drain_delay_s=settings.drain_delay_s,
            drain_s=settings.drain_s,
            new_id=self._new_id,
            ready=self._ready,
        )

    def _ready(self, port: int, ops_port: int) -> None:
        listen, ops, applied = self.settings.listen, self.settings.ops_listen, self.state.applied
        snapshot = (
            f"snapshot revision {applied.revision} from {applied.source}" if applied else "no snapshot yet"
        )
        self.world.say(
            f"serving on {type(listen)(listen.host, port)}, operations on {type(ops)(ops.host, ops_port)}, {snapshot}"
        )

    async def _drain(self) -> None:
        """Not ready at once; refused only when load balancers have had their time to notice."""
        await self.stop.wait()
        self.state.draining = True
        await asyncio.sleep(min(self.settings.drain_delay_s, self.settings.drain_s))
        self.keeper.feed(DrainStarted())

    async def _end(self) -> None:
        """Tell the last things, within `FAREWELL_S`, and let go of everything."""
        self.keeper.close()
        self.upstream.close()
        await self.usage.flush()
        try:
            async with asyncio.timeout(FAREWELL_S):
                connection = await open_connection(read_place(self.settings.redis_url), name="farewell")
                try:
                    await self.usage.send(connection)
                    await self.sharing.farewell(connection)
                    await self.reporter.farewell(connection)
                finally:
                    connection.close()
        except (ValkeyGone, TimeoutError) as fault:
            log.info("ended without a farewell to Valkey (%s)", fault)
        if self.access is not None:
            await self.access.close()


def _empty_policy(settings: Settings) -> GatePolicy:
    """What the gate obeys until the first snapshot: nothing is served, so nothing is refused wrongly either."""
    return GatePolicy(tiers=default_tiers(), pools=(), backends=(), gateways=settings.gateways)


async def _for_ever(name: str, job: Job) -> None:
    """A background job that ended by itself has a mistake in it: said, and begun anew, so that serving goes on."""
    while True:
        try:
            await job()
        except Exception:  # the one place for it: a mistake in the background may not stop the gateway
            log.exception("background job %s failed", name)
        await asyncio.sleep(RESTART_S)
