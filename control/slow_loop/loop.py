"""One tick: lease, read, scrape, calibrate, merge, publish. Idempotent per second; a burst of late ticks counts once."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import redis
import structlog
from django.db import Error as DatabaseFault
from django.db import close_old_connections

from control.audit import Actor
from control.frames.events import MAX_EVENTS, Feed, newest
from control.frames.histories import Histories
from control.frames.merge import Sources, merge
from control.observations import Observation, Scraper
from control.publishing import republish_if_behind
from control.publishing.deliver import signing_keys
from control.services.keys import end_overlaps
from control.slow_loop.foreign import remove_foreign
from control.slow_loop.intake import Intake
from control.slow_loop.lease import Lease, Published
from control.tuning import Tuner, Version
from gateway.contract import codec
from gateway.contract.bounds import Bounds
from gateway.contract.envelope import Header, SigningKey, seal
from gateway.contract.frame import ControlFrame, EventFrame, Frame
from gateway.contract.snapshot import Snapshot

log = structlog.get_logger("control.slow_loop")

SCRAPE_WAIT_S: Final = 0.4
PERIOD_S: Final = 1.0
DATABASE_PAUSE_S: Final = 3.0
ACTOR: Final = Actor("slow loop", "loop")


@dataclass(frozen=True, slots=True)
class Tick:
    """What became of one tick: `published`, `follower`, `repeated`, `waiting` (no policy yet), `lost`, `unreachable`."""

    outcome: str
    epoch: int = 0
    seq: int = 0
    took_s: float = 0.0


@dataclass(slots=True)
class _Memory:
    """What lasts from tick to tick while this process leads."""

    histories: Histories = field(default_factory=Histories)
    tuner: Tuner = field(default_factory=Tuner)
    events: deque[EventFrame] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))
    feed: Feed = field(default_factory=Feed)
    seq: int = 0
    ticked_at: float | None = None


class SlowLoop:
    """Everything that one process needs to lead. `clock` gives epoch seconds; not for use by two threads."""

    def __init__(
        self,
        client: "redis.Redis",
        name: str,
        clock: Callable[[], float],
        keys: Callable[[], tuple[SigningKey, ...]] = signing_keys,
    ) -> None:
        self._client = client
        self._name = name
        self._clock = clock
        self._keys = keys
        self._lease = Lease(client, name)
        self._intake = Intake(client, keys)
        self._runner = asyncio.Runner()
        self._scraper: Scraper | None = None
        self._memory = _Memory()
        self._reachable = True
        self._has_database = True
        self._ask_database_at = 0.0
        self._is_closed = False

    def tick(self) -> Tick:
        """Do one second's work, unless another leads or this second is done."""
        began = self._clock()
        try:
            tick = self._tick(began)
        except redis.ResponseError as fault:
            return self._refused(fault)
        except (redis.RedisError, OSError) as fault:
            self._say_reachable(reachable=False, why=type(fault).__name__)
            return Tick("unreachable", self._lease.epoch)
        self._say_reachable(reachable=True)
        return tick

    def _refused(self, fault: redis.ResponseError) -> Tick:
        """Valkey answers, with a no: perhaps because somebody has put something else where ours belongs."""
        try:
            remove_foreign(self._client)
        except (redis.RedisError, OSError):
            log.debug("nothing was removed")
        self._say_reachable(reachable=False, why=str(fault))
        return Tick("unreachable", self._lease.epoch)

    def close(self) -> None:
        """Release the lease, end all scrapes, close the connection to Valkey. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._lease.release()
        except (redis.RedisError, OSError):
            log.warning("lease not released; it ends by itself")
        if self._scraper is not None:
            self._runner.run(self._scraper.close())
        self._runner.close()
        self._client.close()

    def _tick(self, began: float) -> Tick:
        self._intake.read(began)
        seen_epoch = max((report.bounds_epoch for report in self._intake.reports), default=0)
        before = self._lease.epoch
        if not self._lease.acquire(seen_epoch):
            self._memory = _Memory()
            return Tick("follower")
        if self._lease.epoch != before:
            log.info("leads", leader=self._name, epoch=self._lease.epoch)
            self._memory = _Memory(seq=self._memory.seq)
        memory = self._memory
        if memory.ticked_at is not None and 0 <= began - memory.ticked_at < PERIOD_S / 2:
            return Tick("repeated", self._lease.epoch, memory.seq)
        self._republish(began)
        snapshot = self._intake.snapshot
        if snapshot is None:
            return Tick("waiting", self._lease.epoch)
        return self._publish(snapshot, began)

    def _republish(self, now: float) -> None:
        """Send what Valkey lacks, and end rotations of keys that are over.

        Without the database the loop goes on from what Valkey has, and asks again a few seconds later: a server that
        is away may hold a connection attempt for its whole time-out, and ticks must not wait for that.
        """
        if now < self._ask_database_at:
            return
        try:
            end_overlaps(ACTOR)
            republish_if_behind(self._client)
        except DatabaseFault as fault:
            self._ask_database_at = now + DATABASE_PAUSE_S
            close_old_connections()  # what is broken stays broken otherwise
            if self._has_database:
                log.warning(
                    "the database is out of reach, going on from the last snapshot", why=type(fault).__name__
                )
            self._has_database = False
        else:
            self._has_database = True

    def _publish(self, snapshot: Snapshot, began: float) -> Tick:
        memory = self._memory
        observations = self._observe(snapshot)
        memory.histories.add(self._intake.reports, began)
        memory.seq += 1
        version = Version(self._lease.epoch, memory.seq)
        now = self._clock()
        bounds = memory.tuner.step(snapshot, memory.histories, observations, now, version)
        frame = self._frame(snapshot, observations, bounds, began)
        sent = self._lease.publish(self._seal(bounds, frame))
        memory.ticked_at = began
        return Tick("published" if sent else "lost", version.epoch, version.seq, self._clock() - began)

    def _observe(self, snapshot: Snapshot) -> dict[str, Observation]:
        enabled = [spec for spec in snapshot.backends if spec.policy.enabled]

        async def observe() -> dict[str, Observation]:
            if self._scraper is None:
                self._scraper = Scraper(self._clock)
            return dict(await self._scraper.observe(enabled, SCRAPE_WAIT_S))

        return self._runner.run(observe())

    def _frame(
        self, snapshot: Snapshot, observations: dict[str, Observation], bounds: Bounds, began: float
    ) -> Frame:
        memory, now = self._memory, self._clock()
        applied = [h.newest.snapshot_revision for h in memory.histories.all().values()]
        control = ControlFrame(
            leader=self._name,
            epoch=bounds.epoch,
            seq=bounds.seq,
            tick_age_s=0.0 if memory.ticked_at is None else max(0.0, began - memory.ticked_at),
            tick_duration_s=max(0.0, now - began),
            revision=snapshot.revision,
            lowest_applied_revision=min(applied, default=None),
        )
        in_force = [o for o in self._intake.overrides.overrides if o.expires_at > now]
        sources = Sources(
            now=now,
            snapshot=snapshot,
            histories=memory.histories,
            observations=observations,
            bounds=bounds,
            overrides=in_force,
            events=newest(memory.events),
            control=control,
            incidents_open=0,
        )
        frame = merge(sources)
        fresh = memory.feed.take(frame)
        if not fresh:
            return frame
        memory.events.extend(fresh)
        return merge(_with_events(sources, memory.events))

    def _seal(self, bounds: Bounds, frame: Frame) -> Published:
        key = self._keys()[0]
        body = codec.encode(frame)

        def sealed(kind: str, content: bytes) -> bytes:
            header = Header(
                kind=kind, generation=1, epoch=bounds.epoch, seq=bounds.seq, sent_at=frame.at, key_id=""
            )
            return seal(key, header, content)

        return Published(sealed("bounds", codec.encode(bounds)), sealed("frame", body), body, bounds.seq)

    def _say_reachable(self, *, reachable: bool, why: str = "") -> None:
        """Once per change of state."""
        if reachable != self._reachable:
            self._reachable = reachable
            if reachable:
                log.info("Valkey is back")
            else:
                log.warning("Valkey is out of reach, ticks do nothing", why=why)


def _with_events(sources: Sources, events: deque[EventFrame]) -> Sources:
    return Sources(
        now=sources.now,
        snapshot=sources.snapshot,
        histories=sources.histories,
        observations=sources.observations,
        bounds=sources.bounds,
        overrides=sources.overrides,
        events=newest(events),
        control=sources.control,
        incidents_open=sources.incidents_open,
    )
