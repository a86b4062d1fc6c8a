"""What comes in before anything is decided: the body, bounded; the pool that is meant; the server's own messages."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from gateway.contract.snapshot import GrantSpec, PoolSpec
from gateway.faults import CallerError, CallerFault
from gateway.proxy import Bodies
from gateway.state import Applied

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

MOST_SHOWN = 100  # of a model name, in an error


class CallerLeftError(Exception):
    """The caller left while its body was being read: nobody is there to be answered."""


class OverloadedError(Exception):
    """This gateway itself has no memory left for what comes in."""


class Bounds(Protocol):
    """What the app needs to know of the settings."""

    @property
    def max_body_bytes(self) -> int:
        """Largest body that is read."""

    @property
    def buffer_budget_bytes(self) -> int:
        """Memory for all bodies together."""

    @property
    def key_pepper(self) -> bytes:
        """Under which keys are hashed."""

    @property
    def gateway_id(self) -> str:
        """Name of this gateway, for the access line."""


class Incoming:
    """A body that is being read: counted as it comes, so that many half-sent ones are bounded like whole ones.

    `drop` gives back what was counted, unless a call has taken it over.
    """

    __slots__ = ("_bodies", "_most_bytes", "_size")

    def __init__(self, bodies: Bodies, most_bytes: float) -> None:
        self._bodies = bodies
        self._most_bytes = most_bytes
        self._size = 0

    def add(self, size: int) -> None:
        """More of it has come.

        Raises:
            OverloadedError: the memory for bodies is used up.
        """
        self._size += size
        self._bodies.held_bytes += size
        if self._bodies.held_bytes > self._most_bytes:
            raise OverloadedError

    def hand_over(self) -> None:
        """A call holds it now, and gives it back."""
        self._size = 0

    def drop(self) -> None:
        """Nobody holds it any more."""
        self._bodies.held_bytes -= self._size
        self._size = 0


async def read_body(receive: Receive, limit: int, incoming: Incoming) -> bytes:
    """The whole body, bounded also where no length was announced.

    Raises:
        CallerError: larger than is allowed.
        CallerLeftError: nobody is there any more.
        OverloadedError: no memory is left for it.
    """
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise CallerLeftError
        part: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        parts.append(part)
        size += len(part)
        if size > limit:
            raise too_large(limit)
        incoming.add(len(part))
    return parts[0] if len(parts) == 1 else b"".join(parts)


def find_grant(applied: Applied, tenant: str, model: str) -> tuple[PoolSpec, GrantSpec]:
    """The pool that serves a model and the tenant's grant for it; without a model, the tenant's only one.

    Raises:
        CallerError: no such model, or none that this tenant may use: told in the same words.
    """
    if not model:
        grants = applied.grants_by_tenant.get(tenant, ())
        if len(grants) == 1:
            return applied.pools[grants[0].pool], grants[0]
        raise CallerError(CallerFault.INVALID, "Missing required parameter: 'model'.", "model")
    pool = applied.pool_by_model.get(model)
    grant = applied.grants.get((tenant, pool.policy.name)) if pool is not None else None
    if pool is None or grant is None:
        shown = model if len(model) <= MOST_SHOWN else model[:MOST_SHOWN] + "..."
        raise CallerError(
            CallerFault.UNKNOWN_MODEL,
            f"The model `{shown}` does not exist or you do not have access to it.",
            "model",
        )
    return pool, grant


def too_large(limit: int) -> CallerError:
    """What a body over the limit is told."""
    return CallerError(CallerFault.TOO_LARGE, f"The request body is larger than {limit} bytes.")


async def lifespan(receive: Receive, send: Send) -> None:
    """Nothing to start or stop: the entry point does that."""
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return
