"""Playbooks for the gate: feed an event, expect commands. What a gate says must be expected before the next event.

WakeAt is left out unless a test asks for it with `wakes`: nearly every event moves it.
"""

import random
from dataclasses import replace

from gateway.core.commands import Command, Dispatch, Evict, Refuse, WakeAt
from gateway.core.events import Arrived, Event, Finished, Progress, Ticked
from gateway.core.gate import Gate
from gateway.core.policy import (
    BackendPolicy,
    GatePolicy,
    LimitPolicy,
    PoolPolicy,
    QueuePolicy,
    TierPolicy,
    default_tiers,
)
from gateway.core.vocabulary import DropPolicy, LimitAlgorithm, ShedReason


def chance(seed: int) -> random.Random:
    """Dice that fall the same way every time."""
    return random.Random(seed)  # noqa: S311  # a test, not a secret


def tail_tiers(size: int = 100, timeout_s: float = 60.0) -> tuple[TierPolicy, ...]:
    """The default tiers, but queues that only know their size and their time-out."""
    queue = QueuePolicy(max_size=size, timeout_s=timeout_s, drop=DropPolicy.TAIL)
    return tuple(replace(tier, queue=queue) for tier in default_tiers())


def seats_policy(
    *seats: int,
    tiers: tuple[TierPolicy, ...] | None = None,
    reserved: int = 0,
    pool: PoolPolicy | None = None,
) -> GatePolicy:
    """One pool `chat`; one backend `b0`, `b1`, ... per number, each with so many fixed seats."""
    limit = LimitPolicy(
        algorithm=LimitAlgorithm.FIXED, min_limit=1, max_limit=max(seats, default=1), reserved_seats=reserved
    )
    pool = replace(pool or PoolPolicy(name="chat"), limit=limit)
    return GatePolicy(
        tiers=tiers or tail_tiers(),
        pools=(pool,),
        backends=tuple(
            BackendPolicy(name=f"b{index}", pool=pool.name, max_seqs=count)
            for index, count in enumerate(seats)
        ),
    )


class UnexpectedError(AssertionError):
    """The gate said what nobody expected, or did not say what was expected."""


class Playbook:
    """A gate with its own clock and dice."""

    def __init__(self, policy: GatePolicy | None = None, *, seed: int = 1) -> None:
        self.gate = Gate(policy or seats_policy(1), now=0.0, dice=chance(seed).random)
        self.now = 0.0
        self.said: list[Command] = []
        self.wakes: list[float] = []
        self._count = 0

    def __enter__(self) -> "Playbook":
        return self

    def __exit__(self, kind, error, trace) -> None:
        if kind is None:
            self._must_be_asserted("the end")

    def _must_be_asserted(self, what: object) -> None:
        if self.said:
            raise UnexpectedError(f"before {what} nobody expected:\n" + "\n".join(map(repr, self.said)))

    def feed(self, event: Event, *, at: float | None = None) -> list[Command]:
        """Feed one event; its commands wait to be expected."""
        self._must_be_asserted(event)
        if at is not None:
            self.now = at
        commands = self.gate.handle(event, self.now)
        self.wakes.extend(command.at for command in commands if isinstance(command, WakeAt))
        self.said = [command for command in commands if not isinstance(command, WakeAt)]
        return self.said

    def expect(self, *commands: Command) -> None:
        """The last event's commands, whole and in order."""
        said, self.said = self.said, []
        if said != list(commands):
            lines = [f"- expected {command!r}" for command in commands] + [f"+ said {c!r}" for c in said]
            raise UnexpectedError("\n".join(lines))

    def take(self) -> list[Command]:
        """The last event's commands, to be looked at one by one."""
        said, self.said = self.said, []
        return said

    # -- short words for what happens in nearly every test

    def arrive(self, ticket: str, tier: int = 1, tenant: str = "acme", **fields) -> list[Command]:
        """A request comes in."""
        fields.setdefault("prompt_tokens", 100)
        fields.setdefault("pool", "chat")
        return self.feed(Arrived(ticket=ticket, tier=tier, tenant=tenant, **fields))

    def sent(self, *pairs: tuple[str, str]) -> None:
        """Exactly these (ticket, backend) were dispatched, and nothing else was said."""
        said = self.take()
        found = [(c.ticket, c.backend) for c in said if isinstance(c, Dispatch)]
        if found != list(pairs) or len(said) != len(found):
            raise UnexpectedError(f"expected dispatches {list(pairs)}, said {said}")

    def waits(self) -> None:
        """Nothing was said: the ticket waits."""
        self.expect()

    def shed(self, ticket: str, reason: ShedReason) -> Refuse | Evict:
        """Exactly one ticket was refused or evicted (refunds apart); returns the command."""
        said = [command for command in self.take() if isinstance(command, Refuse | Evict)]
        if len(said) != 1 or (said[0].ticket, said[0].reason) != (ticket, reason):
            raise UnexpectedError(f"expected {ticket} to be shed for {reason.value}, said {said}")
        return said[0]

    def fill(self, backend_seats: int, tier: int = 0) -> list[str]:
        """Take that many seats with tickets `full-0`, ...; returns their names."""
        names = [f"full-{index}" for index in range(backend_seats)]
        for name in names:
            self.arrive(name, tier=tier, tenant="filler")
            commands = self.take()
            if [type(command) for command in commands] != [Dispatch]:
                raise UnexpectedError(f"{name} found no seat: {commands}")
        return names

    def finish(self, ticket: str, prompt: int | None = None, output: int | None = None) -> list[Command]:
        """A ticket is answered in full."""
        return self.feed(Finished(ticket, prompt, output))

    def token(self, backend: str, *tickets: str) -> list[Command]:
        """One LLM token for each ticket."""
        return self.feed(Progress(backend, tuple((ticket, 1) for ticket in tickets)))

    def tick(self, at: float | None = None) -> list[Command]:
        """Time passes."""
        return self.feed(Ticked(), at=at)
