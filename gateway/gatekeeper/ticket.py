"""A ticket as the shell knows it, and what the shell needs of the quotas."""

from typing import TYPE_CHECKING, Protocol

from gateway.core.commands import Dispatch, Evict, Refuse
from gateway.core.events import Arrived, QuotaDenied, QuotaGranted

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

Verdict = Dispatch | Refuse | Evict


class Quotas(Protocol):
    """What the gatekeeper needs of `quotas`: synchronous, and exactly one settle or refund per granted ticket."""

    def reserve(self, ticket: str, tenant: str, pool: str, tokens: int) -> QuotaGranted | QuotaDenied | None:
        """Take at once, refuse at once, or None: the answer comes as an event through `Gatekeeper.feed`."""

    def settle(self, ticket: str, tokens: int) -> None:
        """Give back what was reserved beyond `tokens`, or take what is missing."""

    def refund(self, ticket: str) -> None:
        """Give back everything."""


class Ticket:
    """One request inside the gate, as the shell knows it."""

    __slots__ = (
        "abort",
        "backend",
        "dispatch",
        "is_open",
        "name",
        "quota_of",
        "reset_at",
        "tenant",
        "verdict",
        "waiter",
    )

    def __init__(self, arrived: Arrived, quota_of: str) -> None:
        self.name = arrived.ticket
        self.tenant = arrived.tenant
        self.quota_of = quota_of  # the pool
        self.is_open = True  # the gate still holds it
        self.verdict: Verdict | None = None
        self.waiter: asyncio.Future[bool] | None = None
        self.backend = ""
        self.dispatch: Dispatch | None = None  # the one in force
        self.abort: Callable[[], None] | None = None  # stops the work at the backend, at once
        self.reset_at: float | None = None  # when a quota allows it again, on the gate's clock

    def wake(self) -> None:
        """Let the coroutine that waits for a verdict look again."""
        waiter = self.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(True)

    def hand_over(self) -> None:
        """Another request takes this ticket where it is: queued or in flight. Whoever had it is told, and stopped."""
        waiter, self.waiter = self.waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(False)
        abort, self.abort = self.abort, None
        if abort is not None:
            abort()
        if self.verdict is None:
            self.verdict = self.dispatch
