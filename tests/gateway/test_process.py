"""Whole gateway processes sharing one Valkey: limits, revocations, outages (field cases A06-A09, A33-A36)."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import msgspec
import pytest

from gateway.contract import keyring, keys
from gateway.contract.snapshot import GrantSpec, KeySpec, Snapshot
from tests.fakes.backend import FakeBackend, Hold, Json
from tests.fakes.gateway import PEPPER, a_pool, a_world, key_of
from tests.fakes.gateway_process import GatewayProcess, gateway_process
from tests.fakes.published import sealed
from tests.fakes.valkey import RealValkey, running_valkey
from tests.fakes.waiting import until


@pytest.fixture
def valkey() -> Iterator[RealValkey]:
    with running_valkey() as server:
        yield server


def publish(server: RealValkey, snapshot: Snapshot) -> None:
    with server.client() as client:
        client.set(keys.SNAPSHOT, sealed(snapshot, (1, 0, snapshot.revision)))
        client.publish(keys.CHANGES, f"snapshot {snapshot.revision}")


def bounded(backend: FakeBackend, limit: int = 50, **bounds: int) -> Snapshot:
    """t0 with these bounds on a pool that would take everything."""
    pool = a_pool(limit=limit)
    grant = GrantSpec(tenant="t0", pool="pool", tier=0, **bounds)
    return a_world(backend, pool=pool, grants=(grant,))


class Callers:
    """Many requests over kept connections."""

    def __init__(self, client: "httpx2.AsyncClient") -> None:
        self.client = client

    async def ask(self, gateway: GatewayProcess, key: str | None = None, **body: object) -> "httpx2.Response":
        asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, **body}
        headers = {"authorization": f"Bearer {key or key_of('t0').key}"}
        return await self.client.post(f"{gateway.url}/v1/chat/completions", json=asked, headers=headers)

    async def status(self, gateway: GatewayProcess) -> int:
        """0 where the gateway died under it."""
        with contextlib.suppress(httpx2.TransportError):
            return (await self.ask(gateway)).status_code
        return 0


@contextlib.asynccontextmanager
async def callers() -> AsyncIterator[Callers]:
    limits = httpx2.Limits(max_connections=200)
    async with httpx2.AsyncClient(trust_env=False, timeout=20, limits=limits) as client:
        yield Callers(client)


@contextlib.contextmanager
def gateways(
    tmp_path: Path, server: RealValkey, count: int, **variables: str
) -> Iterator[list[GatewayProcess]]:
    """So many gateways that know of one another."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                gateway_process(
                    tmp_path,
                    server.url,
                    SLUICEGATE_GATEWAY_ID=f"gw-{n}",
                    SLUICEGATE_GATEWAYS=str(count),
                    **variables,
                )
            )
            for n in range(count)
        ]


def statuses(answers: "list[httpx2.Response]") -> Counter[int]:
    return Counter(answer.status_code for answer in answers)


# -- quotas ------------------------------------------------------------------------------------------------------------


async def test_two_replicas_one_limit(valkey, tmp_path):
    """A09: RPM 10, 40 requests alternating over two processes: 10 pass (and at most what refills meanwhile)."""
    async with FakeBackend(Json()) as backend, callers() as caller:
        publish(valkey, bounded(backend, requests_per_min=10))
        with gateways(tmp_path, valkey, 2) as members:
            answers = [await caller.ask(members[n % 2]) for n in range(40)]
            seen = statuses(answers)
            assert set(seen) == {200, 429}
            assert 9 <= seen[200] <= 12
            refused = next(a for a in answers if a.status_code == 429)
            assert refused.json()["error"]["reason"] == "rate_limited"
            assert 1 <= int(refused.headers["retry-after"]) <= 60
            assert int(answers[0].headers["x-ratelimit-limit-requests"]) == 10


async def test_two_replicas_one_concurrency_limit_also_after_a_kill(valkey, tmp_path):
    """A09: concurrency 4, 20 parallel requests that hang; one replica killed: its share returns within 5 s."""
    async with FakeBackend(Hold()) as backend, callers() as caller:
        publish(valkey, bounded(backend, concurrency=4))
        with gateways(tmp_path, valkey, 2) as members:
            asks = [asyncio.create_task(caller.status(members[n % 2])) for n in range(20)]
            await until(lambda: sum(a.done() for a in asks) >= 16)
            await asyncio.sleep(0.2)
            assert backend.max_in_flight == 4
            assert Counter(a.result() for a in asks if a.done()) == {429: 16}
            members[0].kill()
            killed_at = time.monotonic()
            await until(lambda: backend.in_flight < 4)  # its connections are gone, its seats are not yet
            while backend.in_flight < 4:
                assert time.monotonic() - killed_at < 7
                asks.append(asyncio.create_task(caller.status(members[1])))
                await asyncio.sleep(0.2)
            assert backend.max_in_flight == 4
            backend.release()
            await asyncio.wait(asks)


async def test_streamed_or_not_both_directions_of_llm_tokens_count(valkey, tmp_path):
    """A06: the backend says 5 + 7 tokens; TPM 40: after two requests 16 are left, whatever was estimated."""
    async with FakeBackend(Json()) as backend, callers() as caller:
        publish(valkey, bounded(backend, tokens_per_min=40))
        with gateways(tmp_path, valkey, 1) as (gateway,):
            first = await caller.ask(gateway)
            assert first.status_code == 200
            await asyncio.sleep(0.1)
            second = await caller.ask(gateway)
            assert second.status_code == 200
            await asyncio.sleep(0.1)
            third = await caller.ask(gateway)
            reserved = 40 - 2 * 12 - int(third.headers["x-ratelimit-remaining-tokens"])
            assert third.status_code == 200
            assert 0 <= reserved <= 16  # only the third's own reservation is missing
            answers = [await caller.ask(gateway) for _ in range(8)]
            refused = next(a for a in answers if a.status_code == 429)
            assert refused.json()["error"]["reason"] == "token_limited"
            assert "retry-after" in refused.headers


async def test_a_reservation_that_can_never_fit_is_not_told_to_come_back(valkey, tmp_path):
    """A08: max_tokens 1e12 with TPM 1000."""
    async with FakeBackend(Json()) as backend, callers() as caller:
        publish(valkey, bounded(backend, tokens_per_min=1000))
        with gateways(tmp_path, valkey, 1) as (gateway,):
            for asked, expected in ((None, {200}), (16, {200}), (10**12, {200, 400, 429})):
                answer = await caller.ask(gateway, max_tokens=asked)
                assert answer.status_code in expected, answer.text
                if answer.status_code == 429:
                    assert answer.headers["x-should-retry"] == "false"
            for nonsense in (0, -5, "16"):
                assert (await caller.ask(gateway, max_tokens=nonsense)).status_code in {200, 400}
            assert gateway.metric("sluicegate_ledger_imbalance") == 0


# -- outages -----------------------------------------------------------------------------------------------------------


@dataclass
class Load:
    """20 requests a second, each with its start, status and time taken."""

    caller: Callers
    gateway: GatewayProcess
    answers: list[tuple[float, int, float]] = field(default_factory=list)

    async def run(self) -> None:
        while True:
            began = time.monotonic()
            answer = await self.caller.ask(self.gateway)
            self.answers.append((began, answer.status_code, time.monotonic() - began))
            await asyncio.sleep(0.05)

    def times(self, since: float, until_: float) -> list[float]:
        return sorted(t for at, _, t in self.answers if since <= at < until_)


@pytest.mark.faults
async def test_a_frozen_then_empty_valkey_fails_no_request(valkey, tmp_path):  # noqa: PLR0915  # a story
    """A33: SIGSTOP under 20 requests a second, SIGCONT, kill, start empty."""
    async with FakeBackend(Json()) as backend, callers() as caller:
        world = bounded(backend, requests_per_min=6000, tokens_per_min=10**6, concurrency=50)
        publish(valkey, world)
        with gateways(tmp_path, valkey, 1) as (gateway,):

            def is_degraded() -> bool:
                return gateway.readyz().json()["degraded"]

            load = Load(caller, gateway)
            task = asyncio.create_task(load.run())
            await asyncio.sleep(1.0)
            frozen_at = time.monotonic()
            valkey.freeze()
            await asyncio.sleep(2.0)
            assert (gateway.readyz().status_code, is_degraded()) == (200, True)
            valkey.thaw()
            thawed_at = time.monotonic()
            await until(lambda: not is_degraded())
            valkey.kill()
            await asyncio.sleep(0.5)
            valkey.start()
            await until(lambda: not is_degraded())
            publish(valkey, msgspec.structs.replace(world, revision=2))
            await until(lambda: gateway.readyz().json()["snapshot_revision"] == 2)
            task.cancel()
            assert {status for _, status, _ in load.answers} == {200}
            normal, frozen = load.times(0, frozen_at), load.times(frozen_at, thawed_at)
            usual = normal[len(normal) // 2]
            assert frozen[-1] < usual + 0.25  # 0.15 on an idle machine
            assert frozen[len(frozen) // 2] < usual + 0.05
            assert gateway.metric('sluicegate_quota_decisions_total{how="alone",verdict="granted"}') > 0


@pytest.mark.faults
async def test_without_valkey_replicas_share_they_do_not_multiply(valkey, tmp_path):
    """A34: three replicas, concurrency 6, Valkey gone: 2 each."""
    async with FakeBackend(Hold()) as backend, callers() as caller:
        publish(valkey, bounded(backend, concurrency=6))
        with gateways(tmp_path, valkey, 3) as members:
            valkey.kill()
            for member in members:
                await until(lambda m=member: m.readyz().json()["degraded"] is True)
            asks = [asyncio.create_task(caller.ask(members[n % 3])) for n in range(60)]
            await until(lambda: sum(a.done() for a in asks) >= 54)
            await asyncio.sleep(0.1)
            assert backend.max_in_flight == 6
            backend.release()
            await asyncio.wait(asks)


# -- keys --------------------------------------------------------------------------------------------------------------


def without_key(world: Snapshot) -> Snapshot:
    return msgspec.structs.replace(world, keys=())


def with_key(world: Snapshot, **changes: object) -> Snapshot:
    return msgspec.structs.replace(world, keys=(msgspec.structs.replace(world.keys[0], **changes),))


def rotated(world: Snapshot) -> Snapshot:
    fresh = keyring.mint("test", bytes(range(48)), public_id=key_of("t0").public_id)
    return with_key(world, digests=(keyring.digest(PEPPER, fresh.key),))


def tenant_disabled(world: Snapshot) -> Snapshot:
    tenants = tuple(msgspec.structs.replace(t, enabled=t.name != "t0") for t in world.tenants)
    return msgspec.structs.replace(world, tenants=tenants)


@pytest.mark.parametrize(
    "revoke",
    [
        without_key,
        lambda world: with_key(world, enabled=False),
        lambda world: with_key(world, expires_at=time.time() - 1),
        rotated,
        tenant_disabled,
    ],
    ids=["deleted", "disabled", "expired", "rotated", "tenant disabled"],
)
async def test_revoked_means_revoked_on_every_replica_within_a_second(valkey, tmp_path, revoke):
    """A36: warm on both, then revoked: 401 on both; a new key works at once."""
    async with FakeBackend(Json()) as backend, callers() as caller:
        world = bounded(backend)
        publish(valkey, world)
        with gateways(tmp_path, valkey, 2, SLUICEGATE_RESYNC_S="5") as members:
            for member in members:
                assert (await caller.ask(member)).status_code == 200
            changed = msgspec.structs.replace(revoke(world), revision=2)
            began = time.monotonic()
            publish(valkey, changed)
            for member in members:
                while (await caller.ask(member)).status_code == 200:
                    assert time.monotonic() - began < 1
                assert (await caller.ask(member)).status_code == 401
            assert time.monotonic() - began < 2
            fresh = keyring.mint("test", bytes(range(7, 55)))
            added = KeySpec(
                public_id=fresh.public_id, tenant="t1", digests=(keyring.digest(PEPPER, fresh.key),)
            )
            grants = (*world.grants, GrantSpec(tenant="t1", pool="pool", tier=1))
            assert (await caller.ask(members[0], fresh.key)).status_code == 401
            publish(valkey, msgspec.structs.replace(world, revision=3, keys=(added,), grants=grants))
            await asyncio.sleep(0.25)
            for member in members:
                assert (await caller.ask(member, fresh.key)).status_code == 200
