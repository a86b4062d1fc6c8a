"""Hub: the one reader of a web process. Follows the stream of frames in Valkey and wakes whoever waits for the newest.

It reads the capped stream itself rather than a notice and then a key: the same read gives history and live frames, so
there is no seam between them, and a frame that came while the connection was down is not lost. Every call to Valkey
ends within `TIMEOUT_S`; after a fault the hub connects again by itself, with back-off and jitter.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import structlog
from django.conf import settings
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from dashboard.charts.samples import KEPT_S
from dashboard.stream.history import History, Recent
from gateway.contract import keys
from gateway.contract.frame import Frame

TIMEOUT_S = 0.25
BLOCK_MS = 100  # shorter than the time-out: a frozen server is noticed, an idle one is not called a fault
CHUNK = 60
RETRY_FIRST_S, RETRY_MOST_S = 0.2, 1.6
FAULTS_UNTIL_DOWN = 3  # in a row, within about a second: one slow answer on a busy machine is not an outage
IDLE_STOP_S = 120.0  # without a page open the reader rests

log = structlog.get_logger(__name__)
_decoder = msgspec.json.Decoder(Frame)


@dataclass(frozen=True, slots=True)
class Source:
    """Whether Valkey answers, and since when (epoch seconds)."""

    is_up: bool
    since: float


class Hub:
    """Owned by one event loop. `recent` and `source` are always there at once; `changed` waits for something new."""

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        self._url = url
        self._clock = clock
        self._history = History()
        self._last_id = b"0-0"
        self._is_filled = False
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._used_at = time.monotonic()
        self._parts: dict[tuple[str, ...], bytes] = {}
        self.version = 0
        self.source = Source(is_up=True, since=clock())
        self.is_closing = False
        self.refused_frames = 0
        self.streams: dict[object, int] = {}

    def __repr__(self) -> str:
        return f"<Hub version={self.version} up={self.source.is_up} streams={sum(self.streams.values())}>"

    @property
    def recent(self) -> Recent | None:
        """The newest frame with its past; None where there was none yet."""
        return self._history.recent()

    async def ready(self, within_s: float = 4 * TIMEOUT_S) -> None:
        """Start reading where nobody does yet, and wait until the past is read or Valkey is known to be down."""
        self._used_at = time.monotonic()
        if self._task is None or self._task.done():
            self._is_filled = False
            self._task = asyncio.create_task(self._run(), name="dashboard-hub")
        deadline = time.monotonic() + within_s
        while not self._is_filled and self.source.is_up and time.monotonic() < deadline:
            await self._wait(deadline - time.monotonic())

    async def changed(self, seen: int, within_s: float) -> int:
        """Wait until there is a newer version than `seen`, the source changes or the time is over; the version now."""
        self._used_at = time.monotonic()
        if self.version == seen and not self.is_closing:
            await self._wait(within_s)
        return self.version

    def part(self, key: tuple[str, ...], make: Callable[[], bytes]) -> bytes:
        """What was made for `key` of the newest frame: made once, however many pages show it."""
        found = self._parts.get(key)
        if found is None:
            found = self._parts[key] = make()
        return found

    def close(self) -> None:
        """The process is about to end: let every open stream end now."""
        self.is_closing = True
        self._notify()

    async def _wait(self, within_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, within_s)):
                await self._wake.wait()

    def _notify(self) -> None:
        self._wake.set()
        self._wake = asyncio.Event()

    def _is_wanted(self) -> bool:
        """Go on reading. The client's `wait_for` may swallow a cancellation (Python 3.11): it is asked for here."""
        task = asyncio.current_task()
        is_cancelled = task is not None and task.cancelling() > 0
        return not self.is_closing and not is_cancelled and time.monotonic() - self._used_at < IDLE_STOP_S

    async def _run(self) -> None:
        wait_s, faults = RETRY_FIRST_S, 0
        while self._is_wanted():
            client = connect(self._url)
            try:
                await self._fill(client)
                self._answers()
                wait_s, faults = RETRY_FIRST_S, 0
                await self._follow(client)
            except (RedisError, OSError, TimeoutError) as fault:
                faults += 1
                if faults >= FAULTS_UNTIL_DOWN:
                    self._set_source(is_up=False, why=repr(fault))
                await asyncio.sleep(wait_s * (0.5 + random.random()))  # noqa: S311  # jitter, no secret
                wait_s = min(wait_s * 2, RETRY_MOST_S)
            finally:
                with contextlib.suppress(RedisError, OSError):
                    await client.aclose()

    def _answers(self) -> None:
        """The past is read: whoever waits for that may go on."""
        self._set_source(is_up=True)
        self._is_filled = True
        self._notify()

    async def _follow(self, client: Redis) -> None:
        """Frame after frame, until closed, idle or a fault."""
        while self._is_wanted():
            answer: Any = await client.xread({keys.FRAMES: self._last_id}, count=CHUNK, block=BLOCK_MS)
            for _stream, entries in answer or ():
                self._take(entries)

    async def _fill(self, client: Redis) -> None:
        """What is in the stream and not in memory. A stream that starts again (all was flushed) is read whole."""
        newest: Any = await client.xrevrange(keys.FRAMES, count=1)
        if not newest:
            self._last_id = b"0-0"
            return
        end_ms, _, end_seq = newest[0][0].partition(b"-")
        last_ms, _, last_seq = self._last_id.partition(b"-")
        if (int(end_ms), int(end_seq)) < (int(last_ms), int(last_seq)):
            self._last_id = b"0-0"
        oldest = b"%d-0" % max(0, int(end_ms) - KEPT_S * 1000)
        start = b"(" + self._last_id if self._last_id > oldest and self._last_id != b"0-0" else oldest
        while True:
            entries: Any = await client.xrange(keys.FRAMES, min=start, max="+", count=CHUNK)
            self._take(entries)
            if len(entries) < CHUNK:
                return
            start = b"(" + entries[-1][0]
            await asyncio.sleep(0)

    def _take(self, entries: list[tuple[bytes, dict[bytes, bytes]]]) -> None:
        is_newer = False
        for entry_id, fields in entries:
            self._last_id = entry_id
            body = (fields or {}).get(b"f", b"")
            try:
                frame = _decoder.decode(body)
            except (msgspec.DecodeError, RecursionError) as fault:
                self.refused_frames += 1
                if self.refused_frames == 1:
                    log.warning("frame_refused", why=str(fault))
                continue
            is_newer = self._history.add(frame, body, entry_id.decode()) or is_newer
        if is_newer:
            self.version += 1
            self._parts.clear()
            self._notify()

    def _set_source(self, *, is_up: bool, why: str = "") -> None:
        if is_up == self.source.is_up:
            return
        self.source = Source(is_up, self._clock())
        if is_up:
            log.info("valkey_back")
        else:
            log.warning("valkey_down", why=why)
        self._notify()


def connect(url: str) -> Redis:
    """A client whose every call ends within `TIMEOUT_S` and which never tries again by itself."""
    return Redis.from_url(
        url,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        health_check_interval=0,
        single_connection_client=True,
    )


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = WeakKeyDictionary()


def current_hub() -> Hub:
    """The hub of the running event loop: one per web process."""
    loop = asyncio.get_running_loop()
    hub = _hubs.get(loop)
    if hub is None:
        hub = _hubs[loop] = Hub(settings.REDIS_URL)
    return hub
