"""One request inside the gate: what it asks for, where it is, and what it holds. Only the gate changes it."""

import math
from dataclasses import replace
from enum import Enum

from gateway.core.events import Arrived
from gateway.core.valve import Ask
from gateway.core.vocabulary import Account, ShedReason

NOTHING = Ask(0, 0, 0)

# members of an Enum by name: looking one up in its class costs a quarter of a microsecond
_QUEUE_TIMEOUT = ShedReason.QUEUE_TIMEOUT
_INFINITE = math.inf


class Stage(Enum):
    """Where a ticket is. A ticket that has its outcome is forgotten: it has no stage."""

    QUOTA = "quota"
    WAITING = "waiting"
    IN_FLIGHT = "in-flight"


_QUOTA = Stage.QUOTA


class Ticket:
    """A live ticket. Costs are in prompt tokens (an output token counts `PoolPolicy.output_cost` of them)."""

    __slots__ = (
        "account",
        "arrived_at",
        "ask",
        "attempt",
        "avoid",
        "backend",
        "charged",
        "charged_weight",
        "cost",
        "deadline_at",
        "dispatched_at",
        "expected_wait_s",
        "expires_at",
        "generated",
        "has_quota",
        "id",
        "is_let_in",
        "is_ordinary",
        "is_retry",
        "late_reason",
        "place",
        "pool",
        "prompt_tokens",
        "queued_at",
        "stage",
        "tenant",
        "tier",
        "was_pushed_back",
        "weight",
    )

    def __init__(self, event: Arrived, now: float) -> None:  # noqa: PLR0915  # one line per slot
        """Take what the caller asked for."""
        self.id = event.ticket
        self.pool = event.pool
        self.tier = event.tier
        self.tenant = event.tenant
        self.weight = event.weight if 0.0 < event.weight < _INFINITE else 1.0
        self.prompt_tokens = event.prompt_tokens if event.prompt_tokens > 0 else 0
        self.deadline_at = event.deadline_at
        self.is_retry = event.is_retry
        self.has_quota = event.has_quota
        self.avoid = event.avoid
        self.arrived_at = now
        self.stage = _QUOTA
        self.ask = NOTHING  # what it asks of a backend: said once it is let in
        self.cost = 0
        self.queued_at = now
        self.expires_at = 0.0
        self.late_reason = _QUEUE_TIMEOUT  # what ends its waiting
        self.place = 0  # how many of its tier waited when it came
        self.expected_wait_s = 0.0
        self.account: Account | None = None  # what held it back at the head of its queue
        self.is_ordinary = not event.is_retry  # or a retry that was paid for
        self.is_let_in = False  # passed the throttle of its tier
        self.backend = ""
        self.attempt = 0
        self.dispatched_at = 0.0
        self.generated = 0
        self.charged = 0  # cost in force in the fair-queue counters, 0 where nothing is charged
        self.charged_weight = 1.0
        self.was_pushed_back = False

    def lower_to(self, tier: int) -> None:
        """Go on in another tier: its own one is not known (any more)."""
        if tier != self.tier:
            self.tier = tier
            self.ask = replace(self.ask, tier=tier)

    def __repr__(self) -> str:
        return f"<Ticket {self.id} {self.tenant} tier={self.tier} {self.stage.value} cost={self.cost}>"
