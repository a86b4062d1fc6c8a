import time
from collections.abc import Callable, Iterator

import pytest
from django.db import DatabaseError, InterfaceError
from django.utils import timezone

from control import store
from control.models import ApiKey, writing
from control.services.keys import MintKey, mint_key, rotate_key
from control.slow_loop import SlowLoop
from control.slow_loop.loop import DATABASE_PAUSE_S
from gateway.contract import codec, keys
from gateway.contract.bounds import Bounds
from gateway.contract.envelope import EnvelopeRefused, unseal
from gateway.contract.frame import Frame
from gateway.contract.overrides import Overrides
from tests.fakes.installation import ALICE
from tests.fakes.published import SIGNING, a_snapshot, an_override, sealed, sealed_bytes
from tests.fakes.reports import a_gauge, a_report
from tests.fakes.valkey import RealValkey, running_valkey

pytestmark = [pytest.mark.django_db, pytest.mark.loop]


@pytest.fixture(scope="module")
def server() -> Iterator[RealValkey]:
    with running_valkey() as running:
        yield running


@pytest.fixture
def valkey(server: RealValkey) -> RealValkey:
    with server.client() as client:
        client.flushall()
        client.set(keys.SNAPSHOT, sealed(a_snapshot(), (1, 0, 1)))
    return server


class Clock:
    """Epoch seconds that move when a test says so, and a little at each look."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


Lead = Callable[[str, Clock], SlowLoop]


@pytest.fixture
def lead(valkey: RealValkey, settings) -> Iterator[Lead]:
    settings.REDIS_URL = valkey.url
    made: list[SlowLoop] = []

    def start(name: str, clock: Clock) -> SlowLoop:
        made.append(SlowLoop(store.connect(), name, clock))
        return made[-1]

    yield start
    for each in made:
        each.close()


def report_in(valkey: RealValkey, clock: Clock, **more: object) -> None:
    report = a_report(backends=(a_gauge(cost_per_s=5.0),), **more)
    with valkey.client() as client:
        client.set(keys.report("g1"), sealed_bytes("report", codec.encode(report), (1, 0, report.seq)))
        client.zadd(keys.GATEWAYS, {"g1": clock.now})


def bounds_in(valkey: RealValkey) -> Bounds:
    with valkey.client() as client:
        return codec.decode_bounds(unseal((SIGNING,), "bounds", client.get(keys.BOUNDS))[1])


def frame_in(valkey: RealValkey) -> Frame:
    with valkey.client() as client:
        return codec.decode_frame(unseal((SIGNING,), "frame", client.get(keys.FRAME))[1])


def test_a_tick_publishes_signed_bounds_and_one_frame_and_tells_everybody(
    valkey: RealValkey, lead: Lead
) -> None:
    clock = Clock()
    report_in(valkey, clock)
    with valkey.client() as client, client.pubsub() as listener:
        listener.subscribe(keys.CHANGES)
        assert lead("one", clock).tick().outcome == "published"
        told = [m["data"] for m in (listener.get_message(timeout=1) for _ in range(5)) if m]
        ((_, entry),) = client.xrange(keys.FRAMES)
    assert told[-2:] == [b"bounds 1", b"frame 1"]
    assert bounds_in(valkey).gateways[0].gateway == "g1"
    assert codec.decode_frame(entry[b"f"]) == frame_in(valkey)
    assert frame_in(valkey).gateways[0].gateway == "g1"
    assert frame_in(valkey).control.leader == "one"


def test_only_one_leads_and_the_other_takes_over_when_the_lease_ends(valkey: RealValkey, lead: Lead) -> None:
    """A31."""
    clock = Clock()
    first, second = lead("one", clock), lead("two", clock)
    assert first.tick().outcome == "published"
    assert second.tick().outcome == "follower"
    with valkey.client() as client:
        client.delete(keys.LEASE)  # the first one is gone and its lease ran out
    clock.now += 1
    taken = second.tick()
    assert (taken.outcome, taken.epoch) == ("published", 2)
    clock.now += 1
    assert first.tick().outcome == "follower"
    assert bounds_in(valkey).epoch == 2


def test_a_leader_that_lost_its_lease_while_it_worked_writes_nothing(
    valkey: RealValkey, lead: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    slow = lead("slow", clock)
    slow.tick()
    before = bounds_in(valkey)
    observe = slow._observe

    def stolen(snapshot: object) -> object:
        with valkey.client() as client:
            client.set(keys.LEASE, "thief")
        return observe(snapshot)

    monkeypatch.setattr(slow, "_observe", stolen)
    clock.now += 1
    assert slow.tick().outcome == "lost"
    assert bounds_in(valkey) == before


def test_a_burst_of_late_ticks_counts_once(valkey: RealValkey, lead: Lead) -> None:
    clock = Clock()
    only = lead("one", clock)
    outcomes = [only.tick().outcome for _ in range(4)]
    clock.now += 1
    assert [*outcomes, only.tick().outcome] == ["published", "repeated", "repeated", "repeated", "published"]
    assert bounds_in(valkey).seq == 2


def test_flushing_everything_never_makes_gateways_refuse_for_ever(valkey: RealValkey, lead: Lead) -> None:
    clock = Clock()
    only = lead("one", clock)
    report_in(valkey, clock, bounds_epoch=41)
    assert only.tick().epoch == 42
    with valkey.client() as client:
        client.flushall()
        client.set(keys.SNAPSHOT, sealed(a_snapshot(), (1, 0, 1)))
    clock.now += 1
    assert only.tick().epoch == 43


def test_a_silent_valkey_costs_a_tick_half_a_second_and_work_goes_on_when_it_is_back(
    valkey: RealValkey, lead: Lead
) -> None:
    clock = Clock()
    only = lead("one", clock)
    assert only.tick().outcome == "published"
    valkey.freeze()
    try:
        clock.now += 1
        began = time.monotonic()
        assert only.tick().outcome == "unreachable"
        assert time.monotonic() - began < 1
    finally:
        valkey.thaw()
    clock.now += 1
    assert only.tick().outcome == "published"


@pytest.mark.django_db(transaction=True)  # as in the worker: no transaction around a tick
def test_without_the_database_the_loop_goes_on_from_the_last_snapshot(
    valkey: RealValkey, lead: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: object) -> None:
        raise DatabaseError("gone")

    monkeypatch.setattr("control.slow_loop.loop.republish_if_behind", gone)
    assert lead("one", Clock()).tick().outcome == "published"


@pytest.mark.django_db(transaction=True)  # as in the worker: no transaction around a tick
def test_a_database_that_is_away_is_asked_again_only_every_few_seconds(
    valkey: RealValkey, lead: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    clock = Clock()

    def gone(_: object) -> None:
        asked.append(clock.now)
        raise InterfaceError("connection already closed")

    monkeypatch.setattr("control.slow_loop.loop.republish_if_behind", gone)
    only = lead("one", clock)
    first = clock.now
    for _ in range(7):
        assert only.tick().outcome == "published"
        clock.now += 1.0
    assert asked == [first, first + DATABASE_PAUSE_S, first + 2 * DATABASE_PAUSE_S]


def test_a_rotation_that_is_over_is_ended_by_the_loop(
    valkey: RealValkey, lead: Lead, installed: None
) -> None:
    minted = mint_key(ALICE, MintKey(tenant="acme", name="ci"))
    rotate_key(ALICE, minted.public_id, overlap_s=60)
    with writing():
        ApiKey.objects.update(previous_expires_at=timezone.now())
    lead("one", Clock()).tick()
    assert ApiKey.objects.get().previous_digest == ""


def test_before_the_first_policy_there_is_nothing_to_publish(valkey: RealValkey, lead: Lead) -> None:
    with valkey.client() as client:
        client.flushall()
    assert lead("one", Clock()).tick().outcome == "waiting"


@pytest.mark.parametrize("forged", [b"", b"{}", b"\xff" * 100, b'{"v":1}\nbody'])
def test_forged_bodies_are_refused_and_the_last_good_one_stays(
    valkey: RealValkey, lead: Lead, forged: bytes
) -> None:
    clock = Clock()
    only = lead("one", clock)
    only.tick()
    with valkey.client() as client:
        client.set(keys.SNAPSHOT, forged)
        client.set(keys.report("g1"), forged)
        client.zadd(keys.GATEWAYS, {"g1": clock.now})
    clock.now += 1
    assert only.tick().outcome == "published"
    assert frame_in(valkey).control.revision == 1


def test_a_report_under_another_gateways_name_does_not_count(valkey: RealValkey, lead: Lead) -> None:
    clock = Clock()
    report = a_report("g2")
    with valkey.client() as client:
        client.set(keys.report("g1"), sealed_bytes("report", codec.encode(report), (1, 0, 1)))
        client.zadd(keys.GATEWAYS, {"g1": clock.now})
    lead("one", clock).tick()
    assert frame_in(valkey).gateways == ()


def test_overrides_in_force_are_shown_and_expired_ones_are_not(valkey: RealValkey, lead: Lead) -> None:
    clock = Clock()
    both = Overrides(
        version=1,
        overrides=(
            an_override("live", expires_at=clock.now + 60),
            an_override("over", created_at=clock.now - 60, expires_at=clock.now - 1),
        ),
    )
    with valkey.client() as client:
        client.set(keys.OVERRIDES, sealed(both, (1, 0, 1)))
    lead("one", clock).tick()
    assert [o.id for o in frame_in(valkey).overrides] == ["live"]


def test_closing_gives_the_lease_back_at_once(valkey: RealValkey, lead: Lead) -> None:
    clock = Clock()
    first = lead("one", clock)
    first.tick()
    first.close()
    assert lead("two", clock).tick().outcome == "published"


def test_what_is_published_carries_our_signature(valkey: RealValkey, lead: Lead) -> None:
    lead("one", Clock()).tick()
    with valkey.client() as client:
        data = client.get(keys.BOUNDS)
    with pytest.raises(EnvelopeRefused):
        unseal((SIGNING,), "bounds", data.replace(b'"seq":1', b'"seq":2'))


@pytest.mark.parametrize(
    "key", [keys.GATEWAYS, keys.FRAMES, keys.EPOCH, keys.LEASE, keys.BOUNDS, keys.SNAPSHOT]
)
def test_something_else_where_ours_belongs_stops_no_tick_but_one(
    valkey: RealValkey, lead: Lead, key: str
) -> None:
    """Whoever can write to Valkey puts a hash into each of our keys in turn."""
    clock = Clock()
    loop = lead("one", clock)
    assert loop.tick().outcome == "published"
    with valkey.client() as client:
        client.delete(key)
        client.hset(key, "a", "b")
        outcomes = []
        for _ in range(3):
            clock.now += 1.0
            outcomes.append(loop.tick().outcome)
            if key == keys.SNAPSHOT:
                client.set(keys.SNAPSHOT, sealed(a_snapshot(), (1, 0, 1)))
        assert outcomes[-1] == "published"


@pytest.mark.parametrize("junk", ["x", "nan", "inf", "1e308", "-5", "9007199254740993", "1.5"])
def test_a_counter_of_epochs_that_is_no_count_begins_anew(valkey: RealValkey, lead: Lead, junk: str) -> None:
    with valkey.client() as client:
        client.set(keys.EPOCH, junk)
    clock = Clock()
    tick = lead("one", clock).tick()
    assert (tick.outcome, tick.epoch) == ("published", 1)


def test_a_report_with_a_mac_beyond_ascii_is_refused_like_any_forged_one(
    valkey: RealValkey, lead: Lead
) -> None:
    clock = Clock()
    good = sealed_bytes("report", codec.encode(a_report("g1")), (0, 1, 1))
    start = good.index(b'"mac":"') + 7
    with valkey.client() as client:
        client.set(keys.report("g1"), good[:start] + "\u00e9".encode() * 64 + good[start + 64 :])
        client.zadd(keys.GATEWAYS, {"g1": clock.now})
    assert lead("one", clock).tick().outcome == "published"
