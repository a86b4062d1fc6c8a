"""Receive what control publishes (snapshot, bounds, overrides), keep the last good of each, in memory and on disk.

Pushed over the channel `keys.CHANGES`, which carries kind and version only: the key is read again. Messages sent
while nobody listened are lost, therefore everything is read again on every subscription and every `resync_s`.

A body is taken only if it is genuine, newer than what is held, and good as a whole; otherwise it is refused, counted,
told in the report, and what is held stays. Times in bodies are the sender's epoch seconds; they become times on the
gate's monotonic clock here, once, when a version is first seen: later jumps of either wall clock change nothing.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gateway import lastgood
from gateway.clocks import Clocks
from gateway.contract import keys
from gateway.contract.bounds import BackendBound, Bounds
from gateway.contract.checks import gate_policy
from gateway.contract.codec import (
    MAX_BOUNDS_BYTES,
    MAX_OVERRIDES_BYTES,
    MAX_SNAPSHOT_BYTES,
    ContractRefused,
    decode_bounds,
    decode_overrides,
    decode_snapshot,
)
from gateway.contract.envelope import (
    MAX_HEADER_BYTES,
    EnvelopeRefused,
    Header,
    SigningKey,
    unseal,
)
from gateway.contract.overrides import Overrides
from gateway.contract.snapshot import Snapshot
from gateway.core.events import BackendBounds, BoundsReceived, Configured, Event, Override, OverridesReceived
from gateway.credentials import resolve_all
from gateway.state import Applied, Source, State, Version, index
from gateway.valkey import Connection, Link, ReplyError, ValkeyGone

log = logging.getLogger("sluicegate.snapshots")

SNAPSHOT, BOUNDS, OVERRIDES = "snapshot", "bounds", "overrides"
MAX_BYTES = {SNAPSHOT: MAX_SNAPSHOT_BYTES, BOUNDS: MAX_BOUNDS_BYTES, OVERRIDES: MAX_OVERRIDES_BYTES}
KEYS = {SNAPSHOT: keys.SNAPSHOT, BOUNDS: keys.BOUNDS, OVERRIDES: keys.OVERRIDES}
BOUNDS_STORED_EVERY_S = 10.0  # they change every second; a restart needs them roughly
SKEW_SAMPLES = 10


@dataclass(slots=True)
class Skew:
    """How far this host's wall clock is ahead of control's: the smallest of the last differences seen on a push.

    The smallest, because a difference is the skew plus the time on the way, which is never negative.
    """

    seen: deque[float] = field(default_factory=lambda: deque(maxlen=SKEW_SAMPLES))

    def observe(self, sent_at: float, wall: float) -> None:
        """A body sent at `sent_at` (control's clock) was pushed and arrived at `wall` (ours)."""
        self.seen.append(wall - sent_at)

    @property
    def seconds(self) -> float:
        """The estimate; 0 where nothing was seen yet."""
        return min(self.seen, default=0.0)


@dataclass(slots=True)
class Snapshots:
    """Takes bodies and tells the gate (`deliver`) and everybody else (`on_applied`)."""

    state: State
    signing_keys: tuple[SigningKey, ...]
    gateway: str
    directory: Path
    clocks: Clocks
    deliver: Callable[[Event], None]
    resync_s: float = 2.0
    on_applied: list[Callable[[Applied], None]] = field(default_factory=list)
    refused: dict[tuple[str, str], int] = field(default_factory=dict)  # by (kind, reason): for the metrics
    held: dict[str, Version] = field(default_factory=dict)
    skew: Skew = field(default_factory=Skew)
    _seen: dict[str, bytes] = field(default_factory=dict)  # header line last looked at, by kind
    _unstored: dict[str, bytes] = field(default_factory=dict)
    _to_store: asyncio.Event = field(default_factory=asyncio.Event)
    _bounds_stored_at: float = float("-inf")

    # -- from disk ------------------------------------------------------------------------------------------------

    def load(self) -> bool:
        """Take what was kept on disk; True where there is a snapshot in force afterwards."""
        for kind in KEYS:
            data = lastgood.load(self._file(kind))
            if data is not None:
                self.take(kind, data, Source.DISK)
        self._seen.clear()
        return self.state.applied is not None

    async def store(self) -> None:
        """For ever: write to disk what was taken. A full disk is said and does not stop anything."""
        while True:
            await self._to_store.wait()
            self._to_store.clear()
            while self._unstored:
                kind, data = self._unstored.popitem()
                try:
                    await asyncio.to_thread(lastgood.store, self._file(kind), data)
                except OSError as fault:
                    log.error("%s could not be kept on disk: %s", kind, fault.strerror)  # noqa: TRY400  # expected

    def _file(self, kind: str) -> Path:
        return self.directory / f"{kind}.sealed"

    # -- from Valkey ----------------------------------------------------------------------------------------------

    async def run(self, link: Link) -> None:
        """For ever: stay subscribed."""
        await link.run(lambda connection: self._session(connection, link))

    async def _session(self, connection: Connection, link: Link) -> None:
        inbox = _Inbox()
        connection.on_message = inbox.put
        connection.on_lost = inbox.close
        await connection.call("SUBSCRIBE", keys.CHANGES)  # what is published from here on reaches us ...
        reader = await link.second()
        try:
            for kind in KEYS:  # ... now read what was before
                await self._read(reader, kind)
            link.came_up()
            await self._listen(connection, reader, inbox)
        finally:
            reader.close()

    async def _listen(self, connection: Connection, reader: Connection, inbox: "_Inbox") -> None:
        read_at = self.clocks.monotonic() + self.resync_s
        while True:
            left_s = read_at - self.clocks.monotonic()
            if left_s > 0:
                for kind in await inbox.take(left_s):
                    await self._read(reader, kind, is_live=True)
            else:
                await connection.call("PING")  # a subscription that went deaf without a word fails here
                for kind in KEYS:
                    await self._read_if_new(reader, kind)
                read_at = self.clocks.monotonic() + self.resync_s

    async def _read_if_new(self, reader: Connection, kind: str) -> None:
        """Read the header line alone; the body only where that line is not the one seen last."""
        start = await self._range(reader, kind, MAX_HEADER_BYTES)
        if start and _header_line(start) != self._seen.get(kind):
            await self._read(reader, kind)

    async def _read(self, reader: Connection, kind: str, *, is_live: bool = False) -> None:
        """Never more than a body may have: whoever can write there must not be able to fill this process."""
        data = await self._range(reader, kind, MAX_HEADER_BYTES + MAX_BYTES[kind])
        if data and _header_line(data) != self._seen.get(kind):
            self.take(kind, data, Source.VALKEY, is_live=is_live)

    async def _range(self, reader: Connection, kind: str, last: int) -> bytes:
        """A key's bytes up to `last`; nothing where it is no string: that one is refused, the other keys are read."""
        try:
            data = await reader.call("GETRANGE", KEYS[kind], 0, last)
        except ReplyError as fault:
            said = str(fault).encode()
            if self._seen.get(kind) != said:
                self._seen[kind] = said
                self._refuse(kind, "malformed", f"Valkey: {fault}")
            return b""
        return data if isinstance(data, bytes) else b""

    # -- taking ---------------------------------------------------------------------------------------------------

    def take(self, kind: str, data: bytes, source: Source, *, is_live: bool = False) -> bool:
        """Take one sealed body if it is genuine, newer and good; True where it is now in force.

        `is_live`: it was pushed a moment ago, so its `sent_at` is control's clock now.
        """
        self._seen[kind] = _header_line(data)
        try:
            header, body = unseal(self.signing_keys, kind, data)
            if not self._is_newer(kind, header):
                return False
            if is_live:
                self.skew.observe(header.sent_at, self.clocks.wall())
            self._apply(kind, header, body, source)
        except EnvelopeRefused as refusal:
            self._refuse(kind, refusal.reason, f"envelope: {refusal.reason}")
            return False
        except ContractRefused as refusal:
            self._refuse(kind, "invalid", str(refusal))
            return False
        self.held[kind] = header.version
        if source is Source.VALKEY:
            self._keep(kind, data)
        return True

    def _is_newer(self, kind: str, header: Header) -> bool:
        held = self.held.get(kind)
        if held is not None and header.version < held:
            self._refuse(kind, "older", f"version {header.version} is older than {held}")
        return held is None or header.version > held

    def _apply(self, kind: str, header: Header, body: bytes, source: Source) -> None:
        if kind == SNAPSHOT:
            self._apply_snapshot(decode_snapshot(body), header, source)
        elif kind == BOUNDS:
            self._apply_bounds(decode_bounds(body), header)
        else:
            self._apply_overrides(decode_overrides(body), header)

    def _apply_snapshot(self, snapshot: Snapshot, header: Header, source: Source) -> None:
        applied = index(snapshot, header.version, source, resolve_all(snapshot.backends))
        self.state.applied = applied
        self.state.snapshot_refused = None
        self.deliver(Configured(gate_policy(snapshot, self.state.gateways)))
        for tell in self.on_applied:
            tell(applied)
        log.info("snapshot revision %d applied from %s", snapshot.revision, source)

    def _apply_bounds(self, bounds: Bounds, header: Header) -> None:
        share, seats = self._own_part(bounds)
        control_now = self._control_now(header)
        backends = tuple(_backend_bounds(b, seats.get(b.backend), control_now) for b in bounds.backends)
        self.state.gateways = max(1, len(bounds.gateways))
        self.state.bounds_version = header.version
        offset_s = self.clocks.monotonic() - control_now
        retry_factors = tuple((r.tenant, r.factor, r.until + offset_s) for r in bounds.retry_budgets)
        self.deliver(
            BoundsReceived(share=share, backends=backends, epoch=header.epoch, retry_factors=retry_factors)
        )

    def _own_part(self, bounds: Bounds) -> tuple[float, dict[str, int]]:
        """This gateway's share and seats. One that the slow loop does not know yet counts itself in."""
        for share in bounds.gateways:
            if share.gateway == self.gateway:
                return share.share, share.seats
        return 1.0 / (len(bounds.gateways) + 1), {}

    def _apply_overrides(self, overrides: Overrides, header: Header) -> None:
        offset_s = self.clocks.monotonic() - self._control_now(header)
        in_force = tuple(
            Override(kind=o.kind, target=o.target, value=o.value, expires_at=o.expires_at + offset_s)
            for o in overrides.overrides
        )
        self.state.overrides_version = overrides.version
        self.deliver(OverridesReceived(in_force))

    def _control_now(self, header: Header) -> float:
        """Control's clock now, as far as can be told: never before it sent this body."""
        return max(header.sent_at, self.clocks.wall() - self.skew.seconds)

    def _refuse(self, kind: str, reason: str, message: str) -> None:
        self.refused[kind, reason] = self.refused.get((kind, reason), 0) + 1
        if kind == SNAPSHOT:
            self.state.snapshot_refused = message
        log.warning("%s refused, the last good one stays: %s", kind, message)

    def _keep(self, kind: str, data: bytes) -> None:
        if kind == BOUNDS:
            now = self.clocks.monotonic()
            if now < self._bounds_stored_at + BOUNDS_STORED_EVERY_S:
                return
            self._bounds_stored_at = now
        self._unstored[kind] = data
        self._to_store.set()


def _header_line(data: bytes) -> bytes:
    return data[: MAX_HEADER_BYTES + 1].partition(b"\n")[0]


class _Inbox:
    """Kinds that were announced since somebody last looked."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()
        self._is_lost = False
        self._something = asyncio.Event()

    def put(self, message: bytes) -> None:
        """Take one message, "<kind> <version>"; kinds of others are none of ours."""
        kind = message.partition(b" ")[0].decode("ascii", "replace")
        if kind in KEYS:
            self._kinds.add(kind)
            self._something.set()

    def close(self) -> None:
        """The subscription is lost."""
        self._is_lost = True
        self._something.set()

    async def take(self, timeout_s: float) -> set[str]:
        """What was announced, as soon as anything was; nothing after `timeout_s`.

        Raises:
            ValkeyGone: the subscription is lost.
        """
        timer = asyncio.get_running_loop().call_later(timeout_s, self._something.set)
        try:
            await self._something.wait()
        finally:
            timer.cancel()
        if self._is_lost:
            raise ValkeyGone("subscription lost")
        self._something.clear()
        kinds, self._kinds = self._kinds, set()
        return kinds


def _backend_bounds(bound: BackendBound, seats: int | None, control_now: float) -> BackendBounds:
    return BackendBounds(
        backend=bound.backend,
        limit_min=bound.limit_min,
        limit_max=bound.limit_max,
        seats=seats,
        kv_target=bound.kv_target,
        kappa=bound.kappa,
        kv_capacity_tokens=bound.kv_capacity_tokens,
        engine_running=bound.engine_running,
        engine_waiting=bound.engine_waiting,
        kv_ratio=bound.kv_ratio,
        telemetry_age_s=None if bound.scraped_at is None else max(0.0, control_now - bound.scraped_at),
        breaker=bound.breaker,
    )
