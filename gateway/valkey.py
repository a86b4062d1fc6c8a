"""How the gateway talks to Valkey: the one connection policy, and the one loop that reconnects.

A frozen or absent Valkey may cost the background something, a request nothing. So: every call ends within
`TIMEOUT_S`, nothing is retried inside the client, and each background job runs in a `Link`, which connects, lets the
job run until it fails, waits a jittered while and begins anew. Jobs hold no state of the connection.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

TIMEOUT_S = 0.25
FIRST_WAIT_S = 0.05
LONGEST_WAIT_S = 1.0

log = logging.getLogger("sluicegate.valkey")

# What a call may raise when Valkey is away, slow or unwell. Handle exactly these.
ValkeyFault = (RedisError, OSError, TimeoutError, EOFError)
Client = Redis
Session = Callable[[Client], Awaitable[None]]


async def get(client: Client, key: str) -> bytes | None:
    """A key's bytes, None where it is absent."""
    data = await client.get(key)
    return data if isinstance(data, bytes) else None


async def get_start(client: Client, key: str, size: int) -> bytes:
    """A key's first bytes, empty where it is absent."""
    data = await client.getrange(key, 0, size - 1)
    return data if isinstance(data, bytes) else b""


def connect(url: str, *, name: str) -> Client:
    """A client of its own. It connects on first use; every call returns or raises within `TIMEOUT_S`.

    RESP2, because no HELLO then stands between the connection and its first command.
    """
    return Redis.from_url(
        url,
        client_name=name,
        driver_info=None,
        protocol=2,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
        health_check_interval=0,
    )


class Link:
    """One background job's connection. `is_up` tells whether the job's last call succeeded."""

    def __init__(self, url: str, *, name: str, dice: Callable[[], float]) -> None:
        self._url = url
        self._name = name
        self._dice = dice
        self._wait_s = FIRST_WAIT_S
        self.is_up = False
        self.faults = 0  # sessions that ended with a fault
        self.on_change: list[Callable[[bool], None]] = []

    async def run(self, session: Session) -> None:
        """Run `session` for ever, with a new connection each time that it fails. Ends by cancellation only."""
        while True:
            client = connect(self._url, name=self._name)
            try:
                await session(client)
            except ValkeyFault as fault:
                self.went_down(fault)
            finally:
                await _close(client)
            await asyncio.sleep(self._next_wait_s())

    def came_up(self) -> None:
        """The session says that Valkey answers."""
        self._wait_s = FIRST_WAIT_S
        if not self.is_up:
            self.is_up = True
            log.info("%s: connected", self._name)
            self._tell()

    def went_down(self, fault: BaseException) -> None:
        """A call failed. Said once per change of state."""
        self.faults += 1
        if self.is_up or self.faults == 1:
            log.warning("%s: Valkey does not answer (%s)", self._name, type(fault).__name__)
        if self.is_up:
            self.is_up = False
            self._tell()

    def _tell(self) -> None:
        for tell in self.on_change:
            tell(self.is_up)

    def _next_wait_s(self) -> float:
        """Full jitter above a quarter, doubling up to `LONGEST_WAIT_S`: gateways don't come back in step."""
        wait_s = self._wait_s * (0.25 + 0.75 * self._dice())
        self._wait_s = min(self._wait_s * 2, LONGEST_WAIT_S)
        return wait_s


async def _close(client: Client) -> None:
    """Give the sockets back without asking a server that may be frozen."""
    try:
        await client.aclose()
    except ValkeyFault as fault:
        log.debug("closing: %s", type(fault).__name__)
