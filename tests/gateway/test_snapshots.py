"""Snapshots, bounds and overrides, received from a real Valkey that is frozen, killed and emptied."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway import lastgood
from gateway.clocks import Clocks
from gateway.contract import keys
from gateway.contract.bounds import BackendBound, GatewayShare, RetryBudget
from gateway.contract.envelope import SigningKey
from gateway.contract.overrides import Overrides
from gateway.core.events import BoundsReceived, Configured, Event, OverridesReceived
from gateway.places import read_place
from gateway.snapshots import Skew, Snapshots
from gateway.state import Source, State
from gateway.valkey import Link
from tests.fakes.published import (
    NOW,
    SIGNING,
    a_snapshot,
    an_override,
    sealed,
    sealed_bytes,
    some_bounds,
)
from tests.fakes.valkey import RealValkey, running_valkey
from tests.fakes.waiting import until

FAST_RESYNC_S = 0.1


@dataclass
class Hands:
    """Two clocks that a test moves by hand."""

    monotonic: float = 100.0
    wall: float = NOW

    def clocks(self) -> Clocks:
        return Clocks(lambda: self.monotonic, lambda: self.wall)


class Receiver:
    """Snapshots without Valkey: bodies are handed to `take`."""

    def __init__(self, directory: Path, hands: Hands | None = None) -> None:
        self.hands = hands or Hands()
        self.state = State()
        self.events: list[Event] = []
        self.snapshots = Snapshots(
            state=self.state,
            signing_keys=(SIGNING,),
            gateway="g1",
            directory=directory,
            clocks=self.hands.clocks(),
            deliver=self.events.append,
        )

    def take(self, kind: str, data: bytes, *, is_live: bool = False) -> bool:
        return self.snapshots.take(kind, data, Source.VALKEY, is_live=is_live)

    async def store_once(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await self.snapshots.store()


@pytest.fixture
def receiver(tmp_path: Path) -> Receiver:
    return Receiver(tmp_path)


# -- taking: genuine, newer, whole -------------------------------------------------------------------------------------


def test_a_good_snapshot_is_applied_whole_and_told_to_the_gate(receiver):
    assert receiver.take("snapshot", sealed(a_snapshot(7), (1, 0, 7)))
    applied = receiver.state.applied
    assert applied is not None
    assert (applied.revision, applied.pool_by_model["tiny-alias"].policy.name) == (7, "chat")
    assert [type(e) for e in receiver.events] == [Configured]


@pytest.mark.parametrize(
    ("reason", "data"),
    [
        ("malformed", b""),
        ("malformed", b"{}\n"),
        ("malformed", b"\x00" * 5000),
        ("forged", sealed(a_snapshot(9), (1, 0, 9))[:-1] + b" "),
        ("unknown_key", sealed(a_snapshot(9), (1, 0, 9), key=SigningKey(b"somebody else's key"))),
        ("kind", sealed(some_bounds(1, 1), (1, 1, 1))),
        ("invalid", sealed_bytes("snapshot", b"[]", (1, 0, 9))),
        ("invalid", sealed(a_snapshot(9, schema=99), (1, 0, 9))),
        ("invalid", sealed(a_snapshot(9, pools=()), (1, 0, 9))),
        ("older", sealed(a_snapshot(1), (1, 0, 1))),
    ],
)
def test_anything_else_is_refused_counted_and_told_and_the_last_good_stays(receiver, reason, data):
    receiver.take("snapshot", sealed(a_snapshot(7), (1, 0, 7)))
    held = receiver.state.applied
    assert not receiver.take("snapshot", data)
    assert receiver.state.applied is held
    assert receiver.snapshots.refused == {("snapshot", reason): 1}
    assert receiver.state.snapshot_refused
    assert len(receiver.events) == 1


def test_a_good_snapshot_clears_the_refusal_of_a_bad_one(receiver):
    receiver.take("snapshot", b"")
    receiver.take("snapshot", sealed(a_snapshot(7), (1, 0, 7)))
    assert receiver.state.snapshot_refused is None


def test_the_same_version_again_changes_nothing_and_is_no_refusal(receiver):
    for _ in range(2):
        receiver.take("snapshot", sealed(a_snapshot(7), (1, 0, 7)))
    assert len(receiver.events) == 1
    assert receiver.snapshots.refused == {}


def test_a_new_generation_lets_an_older_revision_in(receiver):
    """What `publish --force` is for, after a backup was restored."""
    receiver.take("snapshot", sealed(a_snapshot(7), (1, 0, 7)))
    assert receiver.take("snapshot", sealed(a_snapshot(3), (2, 0, 3)))


def test_a_previous_signing_key_is_accepted_during_a_rotation(tmp_path):
    receiver = Receiver(tmp_path)
    receiver.snapshots.signing_keys = (SigningKey(b"the new one of the two"), SIGNING)
    assert receiver.take("snapshot", sealed(a_snapshot(7), (1, 0, 7)))


# -- bounds and epochs -------------------------------------------------------------------------------------------------


def test_bounds_of_a_lower_epoch_are_refused_whatever_their_sequence(receiver):
    assert receiver.take("bounds", sealed(some_bounds(7, 3), (1, 7, 3)))
    assert not receiver.take("bounds", sealed(some_bounds(6, 99), (1, 6, 99)))
    assert receiver.take("bounds", sealed(some_bounds(8, 1), (1, 8, 1)))
    assert receiver.state.bounds_version == (1, 8, 1)


def test_a_gateway_takes_its_own_share_and_seats(receiver):
    shares = (GatewayShare(gateway="g1", share=0.25, seats={"b1": 3}), GatewayShare(gateway="g2", share=0.75))
    bounds = some_bounds(1, 1, gateways=shares, backends=(BackendBound(backend="b1", limit_max=9),))
    receiver.take("bounds", sealed(bounds, (1, 1, 1)))
    event = receiver.events[-1]
    assert isinstance(event, BoundsReceived)
    assert (event.share, event.backends[0].seats, event.backends[0].limit_max) == (0.25, 3, 9)
    assert receiver.state.gateways == 2


def test_a_gateway_that_the_slow_loop_does_not_know_yet_counts_itself_in(receiver):
    bounds = some_bounds(1, 1, gateways=(GatewayShare(gateway="g2", share=1.0),))
    receiver.take("bounds", sealed(bounds, (1, 1, 1)))
    assert receiver.events[-1].share == 0.5


@pytest.mark.parametrize("skew_s", [0.0, -3600.0, 3600.0])
def test_the_age_of_telemetry_does_not_depend_on_how_far_the_clocks_are_apart(receiver, skew_s):
    sent_at = NOW - skew_s
    backends = (BackendBound(backend="b1", scraped_at=sent_at - 1.5),)
    data = sealed(some_bounds(1, 1, backends=backends), (1, 1, 1), sent_at=sent_at)
    receiver.take("bounds", data, is_live=True)
    assert receiver.events[-1].backends[0].telemetry_age_s == pytest.approx(1.5)


@pytest.mark.parametrize("skew_s", [0.0, 3600.0])
def test_a_held_back_retry_budget_ends_on_time_whatever_the_clocks_say(tmp_path, skew_s):
    receiver = Receiver(tmp_path, Hands(monotonic=500.0, wall=NOW + skew_s))
    budgets = (RetryBudget(tenant="acme", factor=0.5, until=NOW + 30),)
    receiver.take("bounds", sealed(some_bounds(1, 1, retry_budgets=budgets), (1, 1, 1)), is_live=True)
    assert receiver.events[-1].retry_factors == (("acme", 0.5, pytest.approx(530.0)),)


def test_telemetry_that_lay_in_valkey_for_an_hour_is_an_hour_old(receiver):
    backends = (BackendBound(backend="b1", scraped_at=NOW - 3600),)
    data = sealed(some_bounds(1, 1, backends=backends), (1, 1, 1), sent_at=NOW - 3600)
    receiver.take("bounds", data)
    assert receiver.events[-1].backends[0].telemetry_age_s == pytest.approx(3600)


def test_the_skew_is_the_smallest_of_the_last_differences():
    skew = Skew()
    assert skew.seconds == 0.0
    for delay_s in (0.3, 0.01, 0.2):
        skew.observe(NOW, NOW + 10 + delay_s)
    assert skew.seconds == pytest.approx(10.01)
    for _ in range(10):
        skew.observe(NOW, NOW + 20)  # control's clock was set back: the estimate follows
    assert skew.seconds == pytest.approx(20)


# -- overrides ---------------------------------------------------------------------------------------------------------


def in_force(*specs) -> Overrides:
    return Overrides(version=1, overrides=specs)


@pytest.mark.parametrize("skew_s", [0.0, -3600.0, 3600.0])
def test_an_override_expires_on_time_whatever_the_clocks_say(tmp_path, skew_s):
    receiver = Receiver(tmp_path, Hands(monotonic=500.0, wall=NOW + skew_s))
    receiver.take("overrides", sealed(in_force(an_override()), (1, 0, 1), sent_at=NOW), is_live=True)
    event = receiver.events[-1]
    assert isinstance(event, OverridesReceived)
    assert event.overrides[0].expires_at == pytest.approx(560.0)


def test_a_jump_of_the_wall_clock_does_not_move_an_expiry(receiver):
    data = sealed(in_force(an_override()), (1, 0, 1))
    receiver.take("overrides", data, is_live=True)
    receiver.hands.wall += 3600
    assert not receiver.take("overrides", data)
    assert len(receiver.events) == 1


def test_an_override_that_was_read_late_has_only_its_rest_left(tmp_path):
    receiver = Receiver(tmp_path, Hands(monotonic=500.0, wall=NOW + 45))
    receiver.take("overrides", sealed(in_force(an_override()), (1, 0, 1)))
    assert receiver.events[-1].overrides[0].expires_at == pytest.approx(515.0)


# -- disk --------------------------------------------------------------------------------------------------------------


async def test_a_gateway_starts_from_disk_with_everything_down(tmp_path):
    before = Receiver(tmp_path)
    before.take("snapshot", sealed(a_snapshot(7), (1, 0, 7)))
    before.take("overrides", sealed(in_force(an_override()), (1, 0, 1)))
    await before.store_once()
    after = Receiver(tmp_path)
    assert after.snapshots.load()
    assert after.state.applied.source is Source.DISK
    assert {type(e) for e in after.events} == {Configured, OverridesReceived}


def test_a_gateway_without_a_file_starts_without_a_snapshot(receiver):
    assert not receiver.snapshots.load()


def test_a_file_that_was_tampered_with_is_not_trusted(tmp_path):
    data = sealed(a_snapshot(7), (1, 0, 7))
    lastgood.store(tmp_path / "snapshot.sealed", data.replace(b"acme", b"evil"))
    receiver = Receiver(tmp_path)
    assert not receiver.snapshots.load()
    assert receiver.snapshots.refused == {("snapshot", "forged"): 1}


async def test_bounds_are_not_written_to_disk_every_second(receiver):
    receiver.take("bounds", sealed(some_bounds(1, 1), (1, 1, 1)))
    await receiver.store_once()
    receiver.take("bounds", sealed(some_bounds(1, 2), (1, 1, 2)))
    await receiver.store_once()
    stored = lastgood.load(receiver.snapshots.directory / "bounds.sealed")
    assert stored is not None
    assert b'"seq":1,' in stored


async def test_a_full_disk_is_said_and_stops_nothing(tmp_path, caplog):
    (tmp_path / "taken").write_text("a file where the directory should be")
    receiver = Receiver(tmp_path / "taken" / "below")
    receiver.take("snapshot", sealed(a_snapshot(7), (1, 0, 7)))
    await receiver.store_once()
    assert "could not be kept on disk" in caplog.text
    assert receiver.state.applied is not None


# -- a real Valkey -----------------------------------------------------------------------------------------------------


@pytest.fixture
def valkey() -> Iterator[RealValkey]:
    with running_valkey() as server:
        yield server


class Live(Receiver):
    """A receiver with the real clocks, subscribed to a real server."""

    def __init__(self, directory: Path, url: str) -> None:
        super().__init__(directory)
        self.snapshots.clocks = Clocks(time.monotonic, time.time)
        self.snapshots.resync_s = FAST_RESYNC_S
        self.link = Link(read_place(url), name="test", dice=lambda: 0.5)

    async def until_revision(self, revision: int) -> float:
        """Seconds until the revision is in force."""
        return await until(lambda: self.state.applied is not None and self.state.applied.revision == revision)

    async def until_link(self, *, up: bool) -> None:
        await until(lambda: self.link.is_up is up)


@contextlib.asynccontextmanager
async def live(directory: Path, server: RealValkey) -> AsyncIterator[Live]:
    receiver = Live(directory, server.url)
    task = asyncio.create_task(receiver.snapshots.run(receiver.link))
    try:
        yield receiver
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def publish(server: RealValkey, revision: int, *, announce: bool = True) -> None:
    with server.client() as client:
        client.set(keys.SNAPSHOT, sealed(a_snapshot(revision), (1, 0, revision)))
        if announce:
            client.publish(keys.CHANGES, f"snapshot {revision}")


async def test_what_was_published_before_is_read_on_subscription(valkey, tmp_path):
    publish(valkey, 3)
    async with live(tmp_path, valkey) as receiver:
        await receiver.until_revision(3)
        await receiver.until_link(up=True)


async def test_a_push_is_applied_within_250_ms(valkey, tmp_path):
    async with live(tmp_path, valkey) as receiver:
        receiver.snapshots.resync_s = 60.0  # only the push can bring it
        await receiver.until_link(up=True)
        publish(valkey, 4)
        assert await receiver.until_revision(4) < 0.25


async def test_a_change_that_nobody_announced_is_found_by_reading_again(valkey, tmp_path):
    async with live(tmp_path, valkey) as receiver:
        await receiver.until_link(up=True)
        publish(valkey, 5, announce=False)
        await receiver.until_revision(5)


@pytest.mark.faults
async def test_a_change_during_a_lost_subscription_is_read_on_resubscribing(valkey, tmp_path):
    """A35: CLIENT KILL TYPE pubsub, and a change in the gap."""
    async with live(tmp_path, valkey) as receiver:
        receiver.snapshots.resync_s = 60.0
        await receiver.until_link(up=True)
        with valkey.client() as client:
            assert client.execute_command("CLIENT", "KILL", "TYPE", "pubsub") == 1
        publish(valkey, 6, announce=False)
        await receiver.until_revision(6)
        publish(valkey, 7)
        assert await receiver.until_revision(7) < 0.25  # it hears again


@pytest.mark.faults
async def test_a_frozen_valkey_is_noticed_and_found_again(valkey, tmp_path):
    """A33: SIGSTOP, then SIGCONT; the last good snapshot stays meanwhile."""
    publish(valkey, 1)
    async with live(tmp_path, valkey) as receiver:
        await receiver.until_revision(1)
        await receiver.until_link(up=True)
        valkey.freeze()
        await receiver.until_link(up=False)
        assert receiver.state.applied is not None
        valkey.thaw()
        publish(valkey, 2, announce=False)
        await receiver.until_revision(2)
        await receiver.until_link(up=True)


@pytest.mark.faults
async def test_a_valkey_that_comes_back_empty_takes_nothing_away(valkey, tmp_path):
    """A33: killed and started empty; then FLUSHALL; a new leader's epoch is accepted afterwards."""
    publish(valkey, 1)
    async with live(tmp_path, valkey) as receiver:
        await receiver.until_revision(1)
        valkey.kill()
        await receiver.until_link(up=False)
        valkey.start()
        await receiver.until_link(up=True)
        assert receiver.state.applied.revision == 1
        with valkey.client() as client:
            client.flushall()
            bounds = sealed(some_bounds(9, 1), (1, 9, 1))
            client.set(keys.BOUNDS, bounds)
        await until(lambda: receiver.state.bounds_version == (1, 9, 1))
        assert receiver.state.applied.revision == 1
        publish(valkey, 2)
        await receiver.until_revision(2)


@pytest.mark.faults
async def test_a_bad_body_in_valkey_is_counted_once_however_often_it_is_read(valkey, tmp_path):
    with valkey.client() as client:
        client.set(keys.SNAPSHOT, b"nonsense")
    async with live(tmp_path, valkey) as receiver:
        await receiver.until_link(up=True)
        await asyncio.sleep(5 * FAST_RESYNC_S)
        assert receiver.snapshots.refused == {("snapshot", "malformed"): 1}


@pytest.mark.faults
async def test_a_key_that_is_no_string_or_far_too_large_costs_only_itself(valkey, tmp_path):
    """Whoever can write to Valkey can put anything there: what else is published must still arrive."""
    with valkey.client() as client:
        client.rpush(keys.SNAPSHOT, "a list")
        client.setrange(keys.BOUNDS, 8 << 20, "x")
        client.set(keys.OVERRIDES, sealed(Overrides(version=1, overrides=(an_override(),)), (1, 0, 1)))
    async with live(tmp_path, valkey) as receiver:
        await receiver.until_link(up=True)
        await until(lambda: receiver.state.overrides_version == 1)
        await asyncio.sleep(3 * FAST_RESYNC_S)
        assert receiver.snapshots.refused == {("snapshot", "malformed"): 1, ("bounds", "malformed"): 1}
        assert receiver.link.faults == 0
        with valkey.client() as client:
            client.delete(keys.SNAPSHOT)
        publish(valkey, 3)
        await receiver.until_revision(3)


async def test_other_messages_on_the_channel_are_ignored(valkey, tmp_path):
    async with live(tmp_path, valkey) as receiver:
        await receiver.until_link(up=True)
        with valkey.client() as client:
            client.publish(keys.CHANGES, "frame 7")
            client.publish(keys.CHANGES, b"\xff\xfe")
        publish(valkey, 8)
        await receiver.until_revision(8)
        assert receiver.link.faults == 0
