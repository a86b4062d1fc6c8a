"""Events in, commands out, in order. See the package."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from gateway.core.commands import (
    Abort,
    BreakerChanged,
    Command,
    Dispatch,
    Evict,
    RefundQuota,
    Refuse,
    ReserveQuota,
    SettleQuota,
    WakeAt,
)
from gateway.core.events import (
    Abandoned,
    Arrived,
    DrainStarted,
    Event,
    Failed,
    Finished,
    Progress,
    PushedBack,
    QuotaDenied,
    Ticked,
)
from gateway.core.gate import Gate
from gateway.core.gauges import GateView
from gateway.core.vocabulary import Fault
from gateway.gatekeeper.alarm import Alarm
from gateway.gatekeeper.ticket import Quotas, Ticket, Verdict

log = logging.getLogger("sluicegate.gate")

LAG_S = 0.02  # a pass that came later than this measures this process, not the engine


class Gatekeeper:
    """See the module. `now` is the gate's clock: monotonic seconds."""

    def __init__(
        self, gate: Gate, quotas: Quotas, *, loop: asyncio.AbstractEventLoop, now: Callable[[], float]
    ) -> None:
        self._gate = gate
        self._quotas = quotas
        self._loop = loop
        self._now = now
        self._tickets: dict[str, Ticket] = {}
        self._inbox: deque[Event] = deque()
        self._is_handling = False
        self._progress: dict[
            str, dict[str, int]
        ] = {}  # by backend: LLM tokens by ticket, since the last pass
        self._lagged: set[str] = set()
        self._flush_due_at: float | None = None
        self._alarm = Alarm(loop, now, lambda: self.feed(Ticked()), lambda: bool(self._tickets))
        self.on_breaker: Callable[[BreakerChanged], None] | None = None
        self.is_draining = False  # the gate refuses whatever arrives

    # --- what the request path says -----------------------------------------------------------------------------

    def arrive(self, arrived: Arrived, quota_of: str = "") -> Ticket:
        """A request came in; in the usual case its verdict is already there afterwards.

        `quota_of`: the pool whose quota it takes, where that is not its own: a fallback without a grant.
        """
        ticket = self._tickets[arrived.ticket] = Ticket(arrived, quota_of or arrived.pool)
        self.feed(arrived)
        return ticket

    async def verdict(self, ticket: Ticket) -> Verdict | None:
        """Wait for the next verdict about a ticket; None where its caller left or another request took it over."""
        while ticket.verdict is None and ticket.is_open:
            waiter = ticket.waiter = self._loop.create_future()
            try:
                if not await waiter:
                    return None
            finally:
                if ticket.waiter is waiter:
                    ticket.waiter = None
        verdict, ticket.verdict = ticket.verdict, None
        return verdict

    def progress(self, ticket: Ticket, tokens: int, *, lagged: bool = False) -> None:
        """LLM tokens came for a ticket; they reach the gate with those of its backend's other tickets."""
        if not ticket.is_open:
            return
        of_backend = self._progress.get(ticket.backend)
        if of_backend is None:
            of_backend = self._progress[ticket.backend] = {}
        of_backend[ticket.name] = of_backend.get(ticket.name, 0) + tokens
        if lagged:
            self._lagged.add(ticket.backend)
        if self._flush_due_at is None:
            self._flush_due_at = self._now()
            self._loop.call_soon(self._flush)

    def finished(self, ticket: Ticket, prompt_tokens: int | None, output_tokens: int | None) -> None:
        """A dispatched ticket was answered in full."""
        self._end(ticket, Finished(ticket.name, prompt_tokens, output_tokens))

    def failed(
        self, ticket: Ticket, fault: Fault, prompt_tokens: int | None = None, output_tokens: int | None = None
    ) -> None:
        """A dispatched ticket failed at its backend, for good."""
        self._end(ticket, Failed(ticket.name, fault, prompt_tokens, output_tokens))

    def pushed_back(self, ticket: Ticket, retry_after_s: float | None, status: int) -> None:
        """The engine itself said no before the first byte: wait for another verdict afterwards."""
        if ticket.is_open:
            ticket.abort = ticket.dispatch = None
            self._flush_backend(ticket.backend)
            self.feed(PushedBack(ticket.name, retry_after_s, status))

    def leave(self, ticket: Ticket, output_tokens: int | None = None) -> None:
        """The caller left, wherever its ticket is: queued, in flight, or ended already."""
        self._end(ticket, Abandoned(ticket.name, output_tokens))
        ticket.wake()

    def pressure(self, pool: str, tier: int) -> float:
        """How near this (pool, tier) is to shedding, 0..1."""
        return self._gate.pressure(pool, tier, self._now())

    def view(self) -> GateView:
        """Frozen gauges of the whole gate."""
        return self._gate.view(self._now())

    @property
    def open_tickets(self) -> int:
        """Tickets that the gate still holds, as the shell knows it."""
        return len(self._tickets)

    # --- events in, commands out --------------------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        """Any event: handle it, and whatever carrying out its commands causes, in order."""
        self._inbox.append(event)
        if event.__class__ is DrainStarted:
            self.is_draining = True
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._inbox:
                event = self._inbox.popleft()
                if event.__class__ is QuotaDenied:
                    self._note_reset(event)
                for command in self._gate.handle(event, self._now()):
                    self._carry_out(command)
        finally:
            self._is_handling = False
        self._alarm.keep()

    def close(self) -> None:
        """Stop the timer: nothing is handled by itself any more."""
        self._alarm.stop()

    def _note_reset(self, denied: QuotaDenied) -> None:
        ticket = self._tickets.get(denied.ticket)
        if ticket is not None:
            ticket.reset_at = denied.retry_at

    def _carry_out(self, command: Command) -> None:
        match command:
            case Dispatch():
                ticket = self._tickets[command.ticket]
                ticket.backend = command.backend
                ticket.dispatch = command
                self._decided(ticket, command)
            case Refuse() | Evict():
                ticket = self._tickets.pop(command.ticket)
                ticket.is_open = False
                self._decided(ticket, command)
            case Abort():
                self._abort(command.ticket)
            case WakeAt():
                self._alarm.wake_at(command.at)
            case BreakerChanged():
                log.warning(
                    "breaker of %s: %s -> %s (%s)",
                    command.backend,
                    command.before,
                    command.after,
                    command.why,
                )
                if self.on_breaker is not None:
                    self.on_breaker(command)
            case _:
                self._carry_out_quota(command)

    def _carry_out_quota(self, command: ReserveQuota | SettleQuota | RefundQuota) -> None:
        match command:
            case ReserveQuota():
                ticket = self._tickets[command.ticket]
                answer = self._quotas.reserve(ticket.name, ticket.tenant, ticket.quota_of, command.tokens)
                if answer is not None:
                    self._inbox.append(answer)
            case SettleQuota():
                self._quotas.settle(command.ticket, command.tokens)
            case RefundQuota():
                self._quotas.refund(command.ticket)

    def _decided(self, ticket: Ticket, verdict: Verdict) -> None:
        ticket.verdict = verdict
        ticket.wake()

    def _abort(self, name: str) -> None:
        ticket = self._tickets.get(name)
        if ticket is not None and ticket.abort is not None:
            abort, ticket.abort = ticket.abort, None
            abort()

    def _end(self, ticket: Ticket, event: Finished | Failed | Abandoned) -> None:
        if not ticket.is_open:
            return
        if ticket.backend:
            self._flush_backend(ticket.backend)
        ticket.is_open = False
        try:
            self.feed(event)
        finally:
            self._tickets.pop(ticket.name, None)
            if ticket.abort is not None:
                self._stop(ticket)

    def _stop(self, ticket: Ticket) -> None:
        """An ended ticket leaves no work behind, whatever the gate thought of it."""
        abort, ticket.abort = ticket.abort, None
        if abort is not None:
            abort()

    # --- tokens -------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        due_at, self._flush_due_at = self._flush_due_at, None
        late = due_at is not None and self._now() - due_at > LAG_S
        for backend in list(self._progress):
            self._flush_backend(backend, late=late)

    def _flush_backend(self, backend: str, *, late: bool = False) -> None:
        tokens = self._progress.pop(backend, None)
        lagged = backend in self._lagged
        self._lagged.discard(backend)
        if tokens:
            self.feed(Progress(backend, tuple(tokens.items()), late or lagged))
