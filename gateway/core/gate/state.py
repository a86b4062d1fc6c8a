"""All that a gate knows: live tickets, pools, backends, and the commands of the event at hand."""

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from gateway.core.commands import Command, Decision
from gateway.core.policy import GatePolicy
from gateway.core.predictor import OutputPredictor
from gateway.core.recorder import Recorder
from gateway.core.tickets import Stage, Ticket
from gateway.core.vocabulary import ShedReason

if TYPE_CHECKING:
    from gateway.core.events import Override
    from gateway.core.gate.pool import Pool
    from gateway.core.routing import Backend

TICK_S = 0.05

# members of an Enum by name: looking one up in its class costs a quarter of a microsecond
_IN_FLIGHT = Stage.IN_FLIGHT


class State:
    """Shared by the modules of the gate; changed only inside `Gate.handle`."""

    __slots__ = (
        "alarms",
        "attempts",
        "backends",
        "dice",
        "draining",
        "expiries",
        "expiry_order",
        "has_bounds",
        "next_tick",
        "now",
        "out",
        "override_ends",
        "overrides",
        "policy",
        "pools",
        "predictor",
        "recorder",
        "share",
        "tickets",
        "waiting",
        "wake_at",
        "weight_factors",
    )

    def __init__(self, policy: GatePolicy, dice: Callable[[], float], recorder: Recorder, now: float) -> None:
        """Start empty, without pools: `configuration.apply` adds them."""
        self.policy = policy
        self.dice = dice
        self.recorder = recorder
        self.now = now
        self.out: list[Command] = []
        self.tickets: dict[str, Ticket] = {}
        self.pools: dict[str, Pool] = {}
        self.backends: dict[str, Backend] = {}
        self.predictor = OutputPredictor({})
        self.attempts = 0
        self.waiting = 0  # tickets that wait for quota or in a queue: those with an expiry
        self.share = 1.0
        self.has_bounds = False
        self.draining = False
        self.overrides: tuple[Override, ...] = ()
        self.expiries: list[tuple[float, int, Ticket]] = []
        self.expiry_order = 0
        self.alarms: list[float] = []  # instants at which something becomes possible again
        self.weight_factors: dict[str, float] = {}  # of tenants, by override
        self.override_ends = math.inf
        self.next_tick = -math.inf
        self.wake_at = math.inf

    def weight_of(self, ticket: Ticket) -> float:
        """The weight of a ticket's tenant, with what a person set for a while."""
        factors = self.weight_factors
        return ticket.weight * factors.get(ticket.tenant, 1.0) if factors else ticket.weight

    def alarm(self, at: float) -> None:
        """Look at everything again at an instant."""
        if at not in self.alarms:
            heappush(self.alarms, at)

    def expire_at(self, ticket: Ticket) -> None:
        """Remember when a ticket's waiting ends."""
        self.expiry_order += 1
        heappush(self.expiries, (ticket.expires_at, self.expiry_order, ticket))
        if len(self.expiries) > 64 + 2 * self.waiting:  # mostly tickets that wait no longer
            self.expiries = [
                entry
                for entry in self.expiries
                if entry[2].expires_at == entry[0] and self.is_waiting(entry[2])
            ]
            heapify(self.expiries)

    def is_waiting(self, ticket: Ticket) -> bool:
        """Whether a ticket is alive and not in flight."""
        return ticket.stage is not _IN_FLIGHT and self.tickets.get(ticket.id) is ticket

    def pop_expired(self, now: float) -> Ticket | None:
        """The next ticket whose waiting has ended."""
        heap = self.expiries
        while heap and heap[0][0] <= now:
            at, _, ticket = heappop(heap)
            if ticket.expires_at == at and self.is_waiting(ticket):
                return ticket
        return None

    def next_expiry(self) -> float:
        """When the next waiting ends; infinity where nothing waits."""
        heap = self.expiries
        while heap:
            at, _, ticket = heap[0]
            if ticket.expires_at == at and self.is_waiting(ticket):
                return at
            heappop(heap)
        return math.inf

    def record(self, ticket: Ticket, reason: ShedReason | None, decision: Decision) -> None:
        """Write a decision down."""
        self.recorder.add((ticket.id, self.now, ticket.pool, ticket.tier, ticket.tenant, reason, decision))
