"""Reserve, settle, refund: what the gatekeeper calls. Synchronous; the background shares what is held (`sharing`)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.clocks import Clocks
from gateway.core.events import QuotaDenied, QuotaGranted
from gateway.quotas.accounts import Account, No, Standing
from gateway.quotas.leases import Verdict
from gateway.state import Applied, State

PATIENCE_S = 0.045  # with the grace, the longest that any request waits for a lease: 50 ms
GRACE_S = 0.005

Answer = QuotaGranted | QuotaDenied


@dataclass(slots=True)
class Quotas:
    """Every account of this gateway.

    `answer` takes what `reserve` could not say at once: an event for the gate. `decisions` counts how requests were
    decided: `memory` at once, `valkey` after a renewal, `alone` by the local share.
    """

    state: State
    clocks: Clocks
    loop: asyncio.AbstractEventLoop
    answer: Callable[[Answer], None]
    patience_s: float = PATIENCE_S
    accounts: dict[tuple[str, str], Account] = field(default_factory=dict)
    decisions: dict[tuple[str, str], int] = field(default_factory=dict)
    dirty: set[tuple[str, str]] = field(default_factory=set)
    on_dirty: Callable[[bool], None] = field(default=lambda _is_urgent: None)
    is_alone: bool = False  # Valkey does not answer
    _held: dict[str, tuple[Account, int]] = field(default_factory=dict)  # account and LLM tokens, by ticket
    _timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)

    def apply(self, applied: Applied) -> None:
        """Take a snapshot's grants. Reservations made before settle on the accounts that they were made on."""
        now, month = self.clocks.monotonic(), self.clocks.month()
        accounts: dict[tuple[str, str], Account] = {}
        for name, grant in applied.grants.items():
            account = self.accounts.get(name) or Account(grant)
            account.configure(grant, month, now)
            if self.is_alone:
                account.go_alone(now, self.state.gateways)
            if account.leases or account.seats is not None or account.month is not None:
                accounts[name] = account
        gone = [account for name, account in self.accounts.items() if name not in accounts]
        self.accounts = accounts
        for account in gone:
            self._resolve_all(account)

    def reserve(self, ticket: str, tenant: str, pool: str, tokens: int) -> Answer | None:
        """Take one request and `tokens` LLM tokens at once, refuse at once, or None: `answer` gets it soon."""
        account = self.accounts.get((tenant, pool))
        if account is None:
            return QuotaGranted(ticket)
        tokens = max(0, tokens)
        decision = account.decide(tokens, self.clocks.monotonic(), self.state.gateways)
        if decision is Verdict.ASK:
            account.pending[ticket] = tokens
            self._timers[ticket] = self.loop.call_later(self.patience_s, self._almost_too_late, ticket)
            self.touch(account)
            return None
        return self._decided(account, ticket, tokens, decision, "alone" if self.is_alone else "memory")

    def settle(self, ticket: str, tokens: int) -> None:
        """Give back what was reserved beyond `tokens`, or owe what is missing. Only the first call counts."""
        held = self._held.pop(ticket, None)
        if held is not None:
            account, reserved = held
            account.settle(reserved, max(0, tokens), self.clocks.monotonic())
            self.touch(account)

    def refund(self, ticket: str) -> None:
        """Give back everything, or stop waiting for it. Only the first call counts."""
        held = self._held.pop(ticket, None)
        if held is not None:
            account, reserved = held
            account.refund(reserved, self.clocks.monotonic())
            self.touch(account)
        elif ticket in self._timers:
            self._timers.pop(ticket).cancel()
            for account in self.accounts.values():
                account.pending.pop(ticket, None)

    def standing(self, tenant: str, pool: str) -> Standing | None:
        """What a tenant has left in a pool; None where neither requests nor LLM tokens are bounded."""
        account = self.accounts.get((tenant, pool))
        if account is None or not account.leases:
            return None
        return account.standing(self.clocks.monotonic())

    @property
    def open_reservations(self) -> int:
        """Reservations neither settled nor refunded."""
        return len(self._held)

    @property
    def has_waiting(self) -> bool:
        """Some ticket waits for a renewal."""
        return bool(self._timers)

    # -- for the background ---------------------------------------------------------------------------------------

    def touch(self, account: Account) -> None:
        """The account may have something to tell; urgent while tickets wait for it."""
        self.dirty.add(account.name)
        self.on_dirty(bool(account.pending))

    def go_alone(self) -> None:
        """Valkey does not answer: decide everything by the local share, what waits first."""
        now = self.clocks.monotonic()
        self.is_alone = True
        for account in self.accounts.values():
            account.go_alone(now, self.state.gateways)
        for account in self.accounts.values():
            self._resolve_all(account, "alone")

    def resolve(self, account: Account) -> None:
        """Valkey has answered for this account: decide what waits, in order of arrival."""
        for ticket, tokens in list(account.pending.items()):
            decision = account.decide(tokens, self.clocks.monotonic(), self.state.gateways)
            if decision is Verdict.ASK:
                self.dirty.add(account.name)
            else:
                self._tell(account, ticket, decision, "valkey")

    def _resolve_all(self, account: Account, how: str = "memory") -> None:
        """Nothing may wait any longer: what still has to be asked is granted by an account that is no more."""
        for ticket, tokens in list(account.pending.items()):
            decision = account.decide(tokens, self.clocks.monotonic(), self.state.gateways)
            self._tell(account, ticket, Verdict.HAS if decision is Verdict.ASK else decision, how)

    def _almost_too_late(self, ticket: str) -> None:
        """Where this process was late itself, the answer lies in the socket: let it be read first."""
        self._timers[ticket] = self.loop.call_later(GRACE_S, self._too_late)

    def _too_late(self) -> None:
        """The oldest waiting ticket has waited long enough, so Valkey is too slow to be asked."""
        self.go_alone()

    def _tell(self, account: Account, ticket: str, decision: No | Verdict, how: str) -> None:
        tokens = account.pending.pop(ticket)
        self._timers.pop(ticket).cancel()
        self.answer(self._decided(account, ticket, tokens, decision, how))

    def _decided(
        self, account: Account, ticket: str, tokens: int, decision: No | Verdict, how: str
    ) -> Answer:  # one fact each
        verdict = "denied" if isinstance(decision, No) else "granted"
        self.decisions[how, verdict] = self.decisions.get((how, verdict), 0) + 1
        if isinstance(decision, No):
            return QuotaDenied(ticket, decision.reason, decision.retry_at)
        account.take(tokens)
        self._held[ticket] = (account, tokens)
        if not self.is_alone:
            self.touch(account)
        return QuotaGranted(ticket)
