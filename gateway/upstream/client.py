"""Opens exchanges: keeps idle connections per target, connects where there is none, never queues.

Decides which connection a request goes out on, and the single case in which it is sent twice: an idle connection that
the backend had closed before our bytes arrived. That shows as a close without any byte of an answer, at once; a later
close means that the backend died at work, and its request is not repeated.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from re import compile as compile_pattern

from gateway.upstream.connection import Connection
from gateway.upstream.errors import ConnectError
from gateway.upstream.exchange import Exchange
from gateway.upstream.target import Target, resolve

#: Idle connections are closed before the engines do it (uvicorn, and so vLLM: 5 s): that makes stale ones rare.
KEEP_IDLE_S = 4.0
MOST_IDLE = 256
#: An idle connection that had been closed shows within a round trip.
STALE_WITHIN_S = 1.0

_METHOD = compile_pattern(r"GET|POST|PUT|PATCH|DELETE|OPTIONS")
_PATH = compile_pattern(r"/[!-~]*")
_NAME = compile_pattern(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = compile_pattern(rb"[\t -~\x80-\xff]*")
# Written here and nowhere else, so that no caller's field can change how a message is framed or routed.
_OURS = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"connection", b"accept-encoding", b"upgrade"}
)

Key = tuple[str, int, bool, str | None]


class Upstream:
    """All connections to backends of one process.

    Redirects are not followed, and no proxy is taken from the environment.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        tls: ssl.SSLContext | None = None,
        keep_idle_s: float = KEEP_IDLE_S,
        most_idle: int = MOST_IDLE,
    ) -> None:
        """Nothing is connected yet.

        Args:
            clock: monotonic seconds.
            tls: for https targets; the system's trust store by default, loaded at first use.
            keep_idle_s: how long an unused connection is kept.
            most_idle: how many unused connections are kept per target.
        """
        self._clock = clock
        self._tls = tls
        self._keep_idle_s = keep_idle_s
        self._most_idle = most_idle
        self._idle: dict[Key, list[Connection]] = {}
        self._connections: set[Connection] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        idle = sum(map(len, self._idle.values()))
        return f"<Upstream connections={len(self._connections)} idle={idle}>"

    @property
    def open_connections(self) -> int:
        """Sockets in use or idle; what a leak would show in."""
        return len(self._connections)

    async def open(
        self,
        target: Target,
        method: str,
        path: str,
        headers: Sequence[tuple[bytes, bytes]] = (),
        body: bytes = b"",
    ) -> Exchange:
        """Send a request and wait for the head of its answer. Whoever gets the exchange must end or abort it.

        Host, framing, Accept-Encoding and the credential are added here. A cancelled call leaves nothing behind.

        Raises:
            ValueError: for a method, path or header field that cannot be sent as it is.
            UpstreamError: when the backend cannot be reached or does not answer properly.
        """
        request = _request(target, method, path, headers, body)
        started = self._clock()
        total = started + target.timeouts.total_s
        connection = self._take_idle(target.key)
        if connection is not None:
            sent = self._clock()
            try:
                return await self._exchange(connection, target, request, total)
            except ConnectError:
                if connection.answered or self._clock() - sent > STALE_WITHIN_S:
                    raise
        return await self._exchange(await self._connect(target), target, request, total)

    def close(self) -> None:
        """Close every connection, in use or not."""
        for connection in list(self._connections):
            connection.discard()
        self._idle.clear()
        self._stop_sweeping()

    async def _exchange(
        self, connection: Connection, target: Target, request: bytes, total: float
    ) -> Exchange:
        exchange = Exchange(connection, target.timeouts, self._clock, total)
        opened = False
        try:
            connection.start(exchange, request)
            await exchange.answered()
            opened = True
        finally:
            if not opened:
                exchange.abort()
        return exchange

    async def _connect(self, target: Target) -> Connection:
        connection = Connection(lambda one: self._keep(target.key, one), self._connections.discard)
        connected = False
        try:
            async with asyncio.timeout(target.timeouts.connect_s):
                await self._connect_to(target, connection)
            connected = not connection.closed
        except TimeoutError:
            raise ConnectError(
                "the backend did not accept the connection in time", request_sent=False
            ) from None
        finally:
            if not connected:
                connection.discard()
        if not connected:
            raise ConnectError("the backend closed the connection at once", request_sent=False)
        self._connections.add(connection)
        return connection

    async def _connect_to(self, target: Target, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        failure: OSError | None = None
        if target.unix_path is not None:
            try:
                await loop.create_unix_connection(lambda: connection, target.unix_path)
            except OSError as error:
                failure = error
            else:
                return
        else:
            tls = self._tls_context() if target.tls else None
            name = target.host if target.tls else None
            for address in await resolve(target):
                try:
                    await loop.create_connection(
                        lambda: connection, address, target.port, ssl=tls, server_hostname=name
                    )
                except OSError as error:
                    failure = error
                else:
                    return
        raise ConnectError("the backend cannot be connected to", request_sent=False) from failure

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    # idle connections: the newest first, so that the rest can grow old and go

    def _take_idle(self, key: Key) -> Connection | None:
        idle = self._idle.get(key)
        oldest = self._clock() - self._keep_idle_s
        while idle:
            connection = idle.pop()
            if not connection.closed and connection.idle_since >= oldest:
                return connection
            connection.discard()
        return None

    def _keep(self, key: Key, connection: Connection) -> None:
        idle = self._idle.setdefault(key, [])
        if len(idle) >= self._most_idle:
            connection.discard()
            return
        connection.idle_since = self._clock()
        idle.append(connection)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(self._keep_idle_s, self._sweep)

    def _sweep(self) -> None:
        oldest = self._clock() - self._keep_idle_s
        for key, idle in list(self._idle.items()):
            kept = [one for one in idle if one.idle_since > oldest and not one.closed]
            for connection in idle:
                if connection not in kept:
                    connection.discard()
            if kept:
                self._idle[key] = kept
            else:
                del self._idle[key]
        self._sweeper = None
        if self._idle:
            self._sweeper = asyncio.get_running_loop().call_later(self._keep_idle_s / 2, self._sweep)

    def _stop_sweeping(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None


def _request(
    target: Target, method: str, path: str, headers: Sequence[tuple[bytes, bytes]], body: bytes
) -> bytes:
    path = target.base_path + path
    if not _METHOD.fullmatch(method) or not _PATH.fullmatch(path):
        raise ValueError("a method or path that cannot be sent to a backend")
    lines = [
        f"{method} {path} HTTP/1.1\r\nhost: ".encode("ascii"),
        target.host_header,
        b"\r\naccept-encoding: identity\r\n",
    ]
    if body or method != "GET":
        lines.append(b"content-length: %d\r\n" % len(body))
    for name, value in (*headers, target.credential) if target.credential is not None else headers:
        if name.lower() in _OURS or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValueError("a header field that cannot be sent to a backend")
        lines += (name, b": ", value, b"\r\n")
    lines += (b"\r\n", body)
    return b"".join(lines)
