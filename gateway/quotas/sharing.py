"""The background of the quotas: tells Valkey what is used and asks for more, in coalesced batches.

One batch is under way at a time; what becomes necessary meanwhile goes with the next one: at once where a ticket waits,
which therefore waits for one or two round trips, otherwise after `PACE_S`.
A sweep every `SWEEP_S` finds what time alone has made necessary: leases to give back, heartbeats, hungry accounts.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from gateway.contract import keys
from gateway.quotas.accounts import Account
from gateway.quotas.leases import Lease, Month, Seats
from gateway.quotas.quotas import Quotas
from gateway.quotas.scripts import BY_DIGEST, MONTH, SEATS, bucket, two_numbers
from gateway.valkey import Command, Connection, Link, Reply, ReplyError

SWEEP_S = 0.1
PACE_S = 0.005  # between batches that nobody waits for

log = logging.getLogger("sluicegate.quotas")

Taker = Callable[[float, float], None]


@dataclass(frozen=True, slots=True)
class Step:
    """One script to run, and who takes its two numbers."""

    account: Account
    command: Command
    take: Taker


@dataclass(slots=True)
class Sharing:
    """Shares the quotas of this process (`gateway`, started as `boot`) with those of the others."""

    quotas: Quotas
    gateway: str
    boot: str
    sweep_s: float = SWEEP_S

    async def run(self, link: Link) -> None:
        """For ever."""
        link.on_change.append(self._changed)
        await link.run(lambda connection: self._session(connection, link))

    def _changed(self, is_up: bool) -> None:  # noqa: FBT001  # Link's signature
        if not is_up:
            self.quotas.go_alone()

    async def _session(self, connection: Connection, link: Link) -> None:
        bell = _Bell(asyncio.get_running_loop())
        await connection.call("PING")
        self.quotas.is_alone = False
        self.quotas.dirty.update(self.quotas.accounts)
        self.quotas.on_dirty = bell.ring
        link.came_up()
        try:
            while True:
                has_asked = await self._exchange(connection)
                if has_asked and self.quotas.has_waiting:
                    continue
                await bell.wait(self.sweep_s)
                if bell.is_sweep_due:
                    self.quotas.dirty.update(self.quotas.accounts)
        finally:
            bell.close()

    async def _exchange(self, connection: Connection) -> bool:
        """Tell and ask whatever there is; True where there was anything."""
        names, self.quotas.dirty = self.quotas.dirty, set()
        accounts = [a for name in names if (a := self.quotas.accounts.get(name)) is not None]
        steps = [step for account in accounts for step in self._steps(account)]
        if steps:
            replies = await self._run(connection, [step.command for step in steps])
            self.quotas.is_alone = False
            for step, reply in zip(steps, replies, strict=True):
                self._take(step, reply)
        for account in accounts:
            self.quotas.resolve(account)
        return bool(steps)

    def _take(self, step: Step, reply: Reply) -> None:
        """Hand over an answer. A refused one (no memory left, a wrong type) or nonsense leaves its account on its own."""
        try:
            if isinstance(reply, ReplyError):
                raise reply
            taken, rest = two_numbers(reply)
        except (ReplyError, ValueError) as fault:
            log.warning("quota of %s in %s: %s", *step.account.name, fault)
            step.account.go_alone(self._now(), self.quotas.state.gateways)
            return
        step.take(taken, rest)

    async def _run(self, connection: Connection, commands: list[Command]) -> list[Reply]:
        replies = await connection.batch(commands)
        unknown = [i for i, reply in enumerate(replies) if _is_unknown_script(reply)]
        if unknown:
            again = await connection.batch(
                [BY_DIGEST[str(commands[i][1])].by_text(commands[i]) for i in unknown]
            )
            for i, reply in zip(unknown, again, strict=True):
                replies[i] = reply
        return replies

    async def farewell(self, connection: Connection) -> None:
        """Give everything back: this process ends and nothing is in flight any more.

        Raises:
            ValkeyGone: Valkey does not answer; what was held is nobody's after `FORGOTTEN_S`.
        """
        for account in self.quotas.accounts.values():
            for lease in account.leases:
                lease.rest()
            if account.seats is not None:
                account.seats.rest()
        self.quotas.dirty.update(self.quotas.accounts)
        await self._exchange(connection)

    # -- what there is to do for one account ----------------------------------------------------------------------

    def _steps(self, account: Account) -> Iterable[Step]:
        waiting = account.pending
        if account.requests is not None:
            yield from self._lease_step(account, account.requests, "requests", float(len(waiting)))
        if account.tokens is not None:
            yield from self._lease_step(account, account.tokens, "tokens", float(sum(waiting.values())))
        if account.seats is not None:
            yield from self._seats_step(account, account.seats)
        if account.month is not None:
            yield from self._month_step(account, account.month)

    def _now(self) -> float:
        return self.quotas.clocks.monotonic()

    def _lease_step(self, account: Account, lease: Lease, kind: str, pending: float) -> Iterable[Step]:
        request = lease.request(self._now(), pending)
        if request is not None:
            key = keys.quota(account.grant.tenant, f"{kind}:{account.grant.pool}")
            command = bucket(key, self.gateway, lease.shared.rate_per_s, lease.shared.burst, request)

            def take(taken: float, level: float) -> None:
                lease.exchanged(request, taken, level, self._now())

            yield Step(account, command, take)

    def _seats_step(self, account: Account, seats: Seats) -> Iterable[Step]:
        wanted = seats.request(self._now(), len(account.pending))
        if wanted is not None:
            key = keys.quota(account.grant.tenant, f"concurrency:{account.grant.pool}")
            command = SEATS.by_digest(key, self.gateway, seats.limit, wanted, seats.in_use)

            def take(allotted: float, others: float) -> None:
                seats.exchanged(int(allotted), int(others), self._now())

            yield Step(account, command, take)

    def _month_step(self, account: Account, month: Month) -> Iterable[Step]:
        calendar = self.quotas.clocks.month()
        if calendar != month.month:
            month.enter(calendar, 0)
        if month.must_be_told(self._now()):
            key = keys.quota(account.grant.tenant, f"monthly:{account.grant.pool}")
            who = f"{self.gateway}:{self.boot}"
            sent = month.used_here
            command = MONTH.by_digest(key, who, month.month, month.known_elsewhere, sent, month.sent)
            yield Step(account, command, partial(self._month_told, month, calendar))

    def _month_told(self, month: Month, calendar: str, total: float, sent: float) -> None:
        if month.month == calendar:
            month.exchanged(int(sent), int(total), self._now())


def _is_unknown_script(reply: Reply) -> bool:
    return isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT")


class _Bell:
    """When to exchange again: at once where a ticket waits, soon where something changed, else with the next sweep."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._rung = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._swept_at = loop.time()
        self.is_sweep_due = False

    def ring(self, is_urgent: bool) -> None:  # noqa: FBT001  # called once per request: plain and quick
        """Something changed."""
        if is_urgent:
            self._rung.set()
        elif self._timer is None:
            self._timer = self._loop.call_later(PACE_S, self._rung.set)

    async def wait(self, sweep_s: float) -> None:
        """Until rung, or until the sweep is due."""
        sweep = self._loop.call_at(self._swept_at + sweep_s, self._rung.set)
        try:
            await self._rung.wait()
        finally:
            sweep.cancel()
            self.close()
        self._rung.clear()
        self.is_sweep_due = self._loop.time() >= self._swept_at + sweep_s
        if self.is_sweep_due:
            self._swept_at = self._loop.time()

    def close(self) -> None:
        """Forget the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
