"""How the gateway talks to Valkey: the one connection policy, and the one loop that reconnects.

A frozen or absent Valkey may cost the background something, a request nothing. So: connecting and every batch of
commands end within `TIMEOUT_S`, nothing is retried inside the connection, and each background job runs in a `Link`,
which connects, lets the job run until it fails, waits a jittered while and begins anew. Jobs keep nothing of a
connection.

The connection is a hundred lines on hiredis' parser rather than redis-py's client: that one (8.1) was seen to swallow
a cancellation during a timed read, which leaves a process that does not end; and a call there costs several times
as much, most of it memory and start-up time. RESP2, no HELLO.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import hiredis

from gateway.places import Place

TIMEOUT_S = 0.25
FIRST_WAIT_S = 0.05
LONGEST_WAIT_S = 1.0

log = logging.getLogger("sluicegate.valkey")

Word = str | int | float | bytes | memoryview
Command = tuple[Word, ...]
Reply = object  # bytes, int, None, a list of replies, or a ReplyError in its place
ReplyError = hiredis.ReplyError


class ValkeyGone(Exception):  # noqa: N818  # named for what happened, as everywhere here
    """Valkey is away, slow or unwell: the connection is of no more use."""


class _Batch:
    """Commands sent together: their replies in order, and who waits for all of them."""

    __slots__ = ("done", "replies", "size")

    def __init__(self, size: int, done: "asyncio.Future[list[Reply]]") -> None:
        self.size = size
        self.replies: list[Reply] = []
        self.done = done


class Connection(asyncio.Protocol):
    """One connection. Use `open_connection`; `close` is immediate and asks nobody."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=Ellipsis)
        self._transport: asyncio.Transport | None = None
        self._batches: deque[_Batch] = deque()
        self.on_message: Callable[[bytes], None] | None = None  # what is published on a subscribed channel
        self.on_lost: Callable[[], None] | None = None

    async def call(self, *command: Word) -> Reply:
        """One command, one reply.

        Raises:
            ValkeyGone: no reply within `TIMEOUT_S`, or no connection.
            ReplyError: Valkey refused the command.
        """
        reply = (await self.batch([command]))[0]
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    async def batch(self, commands: Sequence[Command]) -> list[Reply]:
        """Commands in one write; replies in their order, a `ReplyError` standing where one was refused.

        Raises:
            ValkeyGone: not all replies came within `TIMEOUT_S`, or there is no connection.
        """
        if self._transport is None or self._transport.is_closing():
            raise ValkeyGone("not connected")
        batch = _Batch(len(commands), self._loop.create_future())
        self._batches.append(batch)
        packed = b"".join(hiredis.pack_command(c) for c in commands)  # type: ignore[arg-type]  # stubs say 1-tuple
        self._transport.write(packed)
        timer = self._loop.call_later(TIMEOUT_S, self._lose, "no answer in time")
        try:
            return await batch.done
        finally:
            timer.cancel()

    def close(self) -> None:
        """Let go of the socket at once."""
        self._lose("closed")

    def _lose(self, why: str) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._fail(ValkeyGone(why))

    def _fail(self, fault: ValkeyGone) -> None:
        batches, self._batches = self._batches, deque()
        for batch in batches:
            if not batch.done.done():
                batch.done.set_exception(fault)

    # -- asyncio.Protocol -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        """Bytes came: hand complete replies to those who wait for them."""
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not Ellipsis:
                self._take(reply)
        except hiredis.ProtocolError:
            self._lose("not the Redis protocol")

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed, by whomever."""
        self._fail(ValkeyGone(type(exc).__name__ if exc else "closed"))
        if self.on_lost is not None:
            self.on_lost()

    def _take(self, reply: Reply) -> None:
        if isinstance(reply, list) and reply and reply[0] == b"message":
            if self.on_message is not None:
                self.on_message(reply[2])
            return
        if not self._batches:
            return  # whoever asked has been told that the connection is lost
        batch = self._batches[0]
        batch.replies.append(reply)
        if len(batch.replies) == batch.size:
            self._batches.popleft()
            if not batch.done.done():
                batch.done.set_result(batch.replies)


async def open_connection(place: Place, *, name: str) -> Connection:
    """Connect and introduce ourselves.

    Raises:
        ValkeyGone: not within `TIMEOUT_S`, or refused.
    """
    try:
        async with asyncio.timeout(TIMEOUT_S):
            connection = await _open(place)
    except OSError as fault:  # TimeoutError is one
        raise ValkeyGone(type(fault).__name__) from None
    hello: list[Command] = [("CLIENT", "SETNAME", name)]
    if place.database:
        hello.insert(0, ("SELECT", place.database))
    if place.password:
        hello.insert(0, ("AUTH", place.user or "default", place.password))
    try:
        replies = await connection.batch(hello)
    except BaseException:
        connection.close()
        raise
    refused = next((r for r in replies if isinstance(r, ReplyError)), None)
    if refused is not None:
        connection.close()
        raise ValkeyGone(f"refused: {refused}")
    return connection


async def _open(place: Place) -> Connection:
    loop = asyncio.get_running_loop()
    if place.path:
        return (await loop.create_unix_connection(Connection, place.path))[1]
    context = ssl.create_default_context() if place.is_tls else None
    return (await loop.create_connection(Connection, place.host, place.port, ssl=context))[1]


Session = Callable[[Connection], Awaitable[None]]


class Link:
    """One background job's connection. `is_up` tells whether the job's last exchange succeeded."""

    def __init__(self, place: Place, *, name: str, dice: Callable[[], float]) -> None:
        self._place = place
        self._name = name
        self._dice = dice
        self._wait_s = FIRST_WAIT_S
        self.is_up = False
        self.faults = 0  # sessions that ended with a fault
        self.on_change: list[Callable[[bool], None]] = []

    async def run(self, session: Session) -> None:
        """Run `session` for ever, on a new connection each time that it fails. Ends by cancellation only."""
        while True:
            try:
                connection = await open_connection(self._place, name=self._name)
                try:
                    await session(connection)
                finally:
                    connection.close()
            except (ValkeyGone, ReplyError) as fault:
                self.went_down(fault)
            await asyncio.sleep(self._next_wait_s())

    async def second(self) -> Connection:
        """A second connection for a session that has its first one listening; the session closes it.

        Raises:
            ValkeyGone: as `open_connection`.
        """
        return await open_connection(self._place, name=self._name)

    def came_up(self) -> None:
        """The session says that Valkey answers."""
        self._wait_s = FIRST_WAIT_S
        if not self.is_up:
            self.is_up = True
            log.info("%s: connected to Valkey", self._name)
            self._tell()

    def went_down(self, fault: Exception) -> None:
        """An exchange failed. Said once per change of state."""
        self.faults += 1
        if self.is_up or self.faults == 1:
            log.warning("%s: Valkey does not answer (%s)", self._name, fault)
        if self.is_up or self.faults == 1:
            self.is_up = False
            self._tell()

    def _tell(self) -> None:
        for tell in self.on_change:
            tell(self.is_up)

    def _next_wait_s(self) -> float:
        """Jitter above a quarter, doubling up to `LONGEST_WAIT_S`: gateways do not come back in step."""
        wait_s = self._wait_s * (0.25 + 0.75 * self._dice())
        self._wait_s = min(self._wait_s * 2, LONGEST_WAIT_S)
        return wait_s
