"""The real gateway in this process, on a port that the system chooses, from a snapshot built in the test.

Everything of the request path is the real part: edge, app, gate, quotas, upstream. What is left out is Valkey.

    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        answer = await gateway.caller("t0").send(chat())
"""

import asyncio
import gc
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.app import App
from gateway.clocks import Clocks
from gateway.contract import keyring
from gateway.contract.checks import gate_policy, snapshot_problems
from gateway.contract.snapshot import (
    BackendSpec,
    GrantSpec,
    KeySpec,
    PoolSpec,
    Snapshot,
    TenantSpec,
    TierSpec,
)
from gateway.core.events import Configured, QuotaDenied, QuotaGranted
from gateway.core.gate import Gate
from gateway.core.policy import (
    BackendPolicy,
    BreakerPolicy,
    LimitPolicy,
    PoolPolicy,
    QueuePolicy,
    default_tiers,
)
from gateway.core.vocabulary import DropPolicy, LimitAlgorithm
from gateway.edge.limits import Limits
from gateway.edge.server import Listener
from gateway.gatekeeper import Gatekeeper
from gateway.proxy import Proxy
from gateway.proxy.wire import Targets
from gateway.quotas import Quotas
from gateway.state import Source, State, index
from gateway.tally import Exchange, Tally
from gateway.upstream import Upstream
from tests.fakes.backend import FakeBackend
from tests.fakes.caller import Caller

PEPPER = b"a pepper for tests only"
TENANTS = {"t0": 0, "t1": 1, "t2": 2, "t2b": 2}


def key_of(tenant: str) -> keyring.MintedKey:
    """The tenant's key: always the same one."""
    return keyring.mint("test", random.Random(tenant).randbytes(keyring.RANDOM_BYTES))  # noqa: S311  # repeatable


def a_pool(name: str = "pool", *models: str, limit: int = 2, **changes: Any) -> PoolSpec:
    """Concurrency pinned to `limit`, breaker off, request time-out 10 s."""
    policy = PoolPolicy(
        name=name,
        limit=LimitPolicy(algorithm=LimitAlgorithm.FIXED, min_limit=limit, max_limit=limit, reserved_seats=0),
        breaker=changes.pop("breaker", BreakerPolicy(enabled=False)),
    )
    plain = PoolSpec(policy=policy, models=models or ("m",), first_byte_timeout_s=10.0, total_timeout_s=10.0)
    return msgspec.structs.replace(plain, **changes)


def some_tiers(
    max_size: int = 4, timeout_s: float = 2.0, drop: DropPolicy = DropPolicy.TAIL, **changes: Any
) -> tuple[TierSpec, ...]:
    """Three tiers with the same queue."""
    queue = QueuePolicy(max_size=max_size, timeout_s=timeout_s, drop=drop, **changes)
    return tuple(TierSpec(policy=_with_queue(tier, queue)) for tier in default_tiers())


def _with_queue(tier: Any, queue: QueuePolicy) -> Any:
    return type(tier)(**{**{n: getattr(tier, n) for n in tier.__slots__}, "queue": queue})


def a_world(*backends: FakeBackend | str, **changes: Any) -> Snapshot:
    """The field cases' baseline: tenants t0 (P0), t1 (P1), t2 and t2b (P2), one pool with these backends."""
    pool = changes.pop("pool", None) or a_pool()
    name = pool.policy.name
    urls = [b if isinstance(b, str) else b.url for b in backends]
    plain = Snapshot(
        revision=1,
        created_at=1_800_000_000.0,
        tiers=some_tiers(),
        pools=(pool,),
        backends=tuple(
            BackendSpec(policy=BackendPolicy(name=f"be{n}", pool=name), url=url, engine="vllm")
            for n, url in enumerate(urls, 1)
        ),
        tenants=tuple(TenantSpec(name=t) for t in TENANTS),
        grants=tuple(GrantSpec(tenant=t, pool=name, tier=tier) for t, tier in TENANTS.items()),
        keys=tuple(
            KeySpec(public_id=key_of(t).public_id, tenant=t, digests=(keyring.digest(PEPPER, key_of(t).key),))
            for t in TENANTS
        ),
    )
    snapshot = msgspec.structs.replace(plain, **changes)
    problems = snapshot_problems(snapshot)
    assert not problems, problems
    return snapshot


@dataclass
class ScriptedQuotas:
    """Grants everything, unless a test says otherwise; keeps the books."""

    answer: Callable[[str, str, str, int], Any] = lambda ticket, _tenant, _pool, _tokens: QuotaGranted(ticket)
    held: dict[str, int] = field(default_factory=dict)
    settled: dict[str, int] = field(default_factory=dict)
    refunded: list[str] = field(default_factory=list)

    def reserve(self, ticket: str, tenant: str, pool: str, tokens: int) -> QuotaGranted | QuotaDenied | None:
        answer = self.answer(ticket, tenant, pool, tokens)
        if isinstance(answer, QuotaGranted):
            self.held[ticket] = tokens
        return answer

    def settle(self, ticket: str, tokens: int) -> None:
        assert self.held.pop(ticket) is not None
        self.settled[ticket] = tokens

    def refund(self, ticket: str) -> None:
        assert self.held.pop(ticket) is not None
        self.refunded.append(ticket)


@dataclass(frozen=True)
class Settings:
    """What the app asks of the settings."""

    max_body_bytes: int = 8 << 20
    buffer_budget_bytes: int = 256 << 20
    key_pepper: bytes = PEPPER
    gateway_id: str = "gw-test"


class RunningGateway:
    """The gateway, its parts, and what it told."""

    def __init__(self, snapshot: Snapshot, *, quotas: Any = None, settings: Settings | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.clocks = Clocks(monotonic=time.monotonic, wall=time.time)
        self.state = State()
        self.dice = random.Random(7)  # noqa: S311  # repeatable
        self.gate = Gate(gate_policy(snapshot), now=time.monotonic(), dice=self.dice.random)
        self.quotas = quotas or ScriptedQuotas()
        if quotas == "real":  # alone, as without Valkey: one gateway, whose share is the whole
            self.quotas = Quotas(self.state, self.clocks, loop, answer=self._answer)
            self.quotas.go_alone()
        self.keeper = Gatekeeper(self.gate, self.quotas, loop=loop, now=time.monotonic)
        self.tally = Tally()
        self.told: list[Exchange] = []
        self.tally.sinks.append(self.told.append)
        self.upstream = Upstream(time.monotonic)
        self.settings = settings or Settings()
        self.proxy = Proxy(
            self.keeper, Targets(self.state, allow_private=True), self.upstream, self.tally, self.clocks
        )
        self.ids = 0
        self.app = App(
            proxy=self.proxy,
            keeper=self.keeper,
            state=self.state,
            tally=self.tally,
            clocks=self.clocks,
            settings=self.settings,
            new_id=self._new_id,
            standing=getattr(self.quotas, "standing", lambda _tenant, _pool: None),
        )
        self.listener = Listener(self.app, Limits(body_bytes=self.settings.max_body_bytes))  # type: ignore[arg-type]
        self.apply(snapshot)

    def apply(self, snapshot: Snapshot) -> None:
        """Put a snapshot in force, as `snapshots` does."""
        self.snapshot = snapshot
        self.state.applied = index(snapshot, (1, 0, snapshot.revision), Source.VALKEY, {})
        self.keeper.feed(Configured(gate_policy(snapshot)))
        if isinstance(self.quotas, Quotas):
            self.quotas.apply(self.state.applied)

    def _answer(self, answer: QuotaGranted | QuotaDenied) -> None:
        self.keeper.feed(answer)

    def _new_id(self) -> str:
        self.ids += 1
        return f"req_test{self.ids}"

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.listener.port

    def caller(self, tenant: str = "t0") -> Caller:
        """Somebody with that tenant's key."""
        return Caller(self.port, key_of(tenant).key)

    def is_at_rest(self) -> bool:
        """Nothing waits, nothing is in flight, nothing is held."""
        view = self.keeper.view()
        return (
            view.tickets == 0
            and view.ledger_imbalance == 0
            and self.keeper.open_tickets == 0
            and all(b.in_flight == 0 and b.kv_tokens == 0 and b.prefill_tokens == 0 for b in view.backends)
            and not getattr(self.quotas, "held", None)
            and not getattr(self.quotas, "open_reservations", 0)
            and self.app.bodies.held_bytes == 0
            and not len(self.proxy.in_flight)
            and self.tally.in_progress == 0
        )

    async def rest(self, timeout_s: float = 2.0) -> None:
        """Wait until nothing is held any more.

        Raises:
            AssertionError: something stays held.
        """
        end = time.monotonic() + timeout_s
        while not self.is_at_rest():
            assert time.monotonic() < end, f"{self.keeper.view()} {self.quotas} {self.tally.in_progress}"
            await asyncio.sleep(0.005)


@dataclass(frozen=True)
class _Address:
    host: str = "127.0.0.1"
    port: int = 0


@asynccontextmanager
async def running(snapshot: Snapshot, **how: Any) -> AsyncIterator[RunningGateway]:
    """A gateway that serves until the block ends, and leaves nothing behind."""
    gateway = RunningGateway(snapshot, **how)
    await gateway.listener.open(_Address())
    try:
        yield gateway
    finally:
        await gateway.listener.end()
        gateway.keeper.close()
        gateway.upstream.close()
        await asyncio.sleep(0)
        gc.collect(0)
