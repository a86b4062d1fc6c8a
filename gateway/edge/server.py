"""Listens for callers and, apart from them, for operations; drains on demand.

Decides when the process accepts connections and when it may end. Signals are the entry point's.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import TYPE_CHECKING, Protocol

from uvicorn.config import Config
from uvicorn.server import ServerState

from gateway.edge.limits import Limits
from gateway.edge.protocol import EdgeProtocol, Serving

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

_LOG = logging.getLogger("gateway.edge")
_BACKLOG = 4096
_ENDING_S = 1.0


class Address(Protocol):
    """Where to listen (`settings.Address`)."""

    @property
    def host(self) -> str:
        """Name or IP address."""

    @property
    def port(self) -> int:
        """0: the system chooses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where to listen, what a connection may cost, and how to end.

    Attributes:
        drain_delay_s: how long new connections are still accepted after the stop, for load balancers to notice.
        drain_s: when everything ends, counted from the stop.
        new_id: request ids for the answers of the edge itself.
        ready: called with the ports of both listeners once connections are accepted.
    """

    listen: Address
    ops_listen: Address
    limits: Limits = field(default_factory=Limits)
    drain_delay_s: float = 5.0
    drain_s: float = 30.0
    new_id: Callable[[], str] = str
    ready: Callable[[int, int], None] = lambda _listen, _ops_listen: None


class Listener:
    """One listening socket and the connections it has accepted."""

    def __init__(self, app: "ASGI3Application", limits: Limits, new_id: Callable[[], str] = str) -> None:
        """Nothing is bound yet. `app` is an ASGI application."""
        self.serving = Serving(limits, new_id=new_id)
        self._state = ServerState()
        self._config = Config(
            app,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
        )
        self._config.load()
        self._server: asyncio.Server | None = None
        self._dater: asyncio.TimerHandle | None = None
        self.port = 0

    def __repr__(self) -> str:
        state = "open" if self._server is not None else "closed"
        return f"<Listener :{self.port} {state} connections={self.connections} requests={self.requests}>"

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._state.connections)

    @property
    def requests(self) -> int:
        """Requests that an application is working on."""
        return len(self._state.tasks)

    async def open(self, address: Address) -> None:
        """Bind and accept.

        Raises:
            OSError: when the address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        bound = _bind(address, self.serving.limits.send_buffer)
        self.port = bound.getsockname()[1]
        self._date()
        self._server = await loop.create_server(self._connection, sock=bound, backlog=_BACKLOG)

    def refuse(self) -> None:
        """Accept no more connections; close those without a request, the others after their answer."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.serving.draining = True
        for connection in list(self._state.connections):
            connection.shutdown()

    async def end(self) -> None:
        """Cut what is left and wait until nothing of it runs any more."""
        self.refuse()
        for connection in list(self._state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        tasks = set(self._state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_ENDING_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self.serving.emptied.wait()
        if self._dater is not None:
            self._dater.cancel()

    def _connection(self) -> EdgeProtocol:
        return EdgeProtocol(self._config, self._state, self.serving)

    def _date(self) -> None:
        """The Date field, made once per second."""
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode("ascii"))]
        self._dater = asyncio.get_running_loop().call_later(1.0, self._date)


async def run(
    app: "ASGI3Application",
    ops_app: "ASGI3Application",
    plan: Plan,
    stop: asyncio.Event,
    hurry: asyncio.Event | None = None,
) -> None:
    """Serve until `stop`, then drain and return.

    While draining, answers end their connections; the listener stays open for the delay, then refuses; what is being
    answered may go on until `drain_s`. The operations listener ends last.

    Args:
        app: the application for callers.
        ops_app: the application for operations; it says by itself that it is not ready once `stop` is set.
        plan: addresses, limits and times.
        stop: begin to drain.
        hurry: end at once, at any moment (a second SIGTERM).

    Raises:
        OSError: when an address cannot be bound; nothing is left open.
    """
    hurry = hurry or asyncio.Event()
    ops = Listener(ops_app, plan.limits, plan.new_id)
    traffic = Listener(app, plan.limits, plan.new_id)
    try:
        await ops.open(plan.ops_listen)
        await traffic.open(plan.listen)
        plan.ready(traffic.port, ops.port)
        await _first(stop, hurry, None)
        await _drain(traffic, plan, hurry)
    finally:
        await traffic.end()
        await ops.end()


async def _drain(traffic: Listener, plan: Plan, hurry: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    end_at = loop.time() + plan.drain_s
    traffic.serving.draining = True
    await _first(hurry, hurry, min(plan.drain_delay_s, plan.drain_s))
    traffic.refuse()
    if not hurry.is_set():
        await _first(traffic.serving.emptied, hurry, end_at - loop.time())
    if traffic.requests:
        _LOG.warning("drain ended with %d requests in progress", traffic.requests)


async def _first(one: asyncio.Event, other: asyncio.Event, timeout_s: float | None) -> None:
    """Wait for either of two events, or the time."""
    waits = {asyncio.ensure_future(event.wait()) for event in {one, other}}
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _bind(address: Address, send_buffer: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    bound = socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    # accepted sockets inherit both
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bound.setblocking(False)  # noqa: FBT003  # the standard library's signature
    return bound
