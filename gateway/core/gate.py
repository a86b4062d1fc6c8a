"""The gate: one state machine that decides who goes, who waits, who is refused, and when to come back.

    commands = gate.handle(event, now)

Nothing else changes admission state. Every ticket gets exactly one outcome: refused before queueing, evicted after
it, or dispatched and then completed, failed or abandoned.
"""

from collections.abc import Callable

from gateway.core.commands import Command
from gateway.core.events import Event
from gateway.core.gauges import GateView
from gateway.core.policy import GatePolicy


class Gate:
    """Queues, valves and breakers of all pools of one gateway process."""

    def __init__(self, policy: GatePolicy, *, now: float, dice: Callable[[], float]) -> None:
        """Start empty. `dice` returns uniform numbers in [0, 1): the same dice and events give the same commands."""

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take what happened at `now` (seconds, never backwards); return what is to be done, in order."""
        raise NotImplementedError

    def view(self, now: float) -> GateView:
        """What waits, what is carried and what binds, without changing anything."""
        raise NotImplementedError

    def pressure(self, pool: str, tier: int, now: float) -> float:
        """How near this (pool, tier) is to shedding, 0..1: told to callers in `x-sluicegate-pressure`."""
        raise NotImplementedError
