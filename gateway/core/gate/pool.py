"""One pool inside the gate: its queues, its backends, and how near it is to shedding."""

from typing import TYPE_CHECKING

from gateway.core.policy import GatePolicy, PoolPolicy, TierPolicy
from gateway.core.queues import PoolQueues, TierQueue
from gateway.core.rates import ServiceRates
from gateway.core.routing import Backend
from gateway.core.shedding import Shedding

if TYPE_CHECKING:
    from gateway.core.tickets import Ticket

PRESSURE_VALID_S = 0.01


class Memo:
    """The head of a tier that no backend could take, and how much had been freed when it was tried last."""

    __slots__ = ("head", "seen")

    def __init__(self) -> None:
        """Start with no blocked head."""
        self.head: Ticket | None = None
        self.seen = 0


class Pool:
    """A served model: everything but the dispatching (`dispatching`)."""

    __slots__ = (
        "_pressures",
        "backends",
        "blocked",
        "charged",
        "freed",
        "in_fallback",
        "in_flight",
        "is_removed",
        "longest_context",
        "policy",
        "queues",
        "rates",
        "shedding",
        "version",
    )

    def __init__(self, policy: PoolPolicy, gate: GatePolicy, now: float) -> None:
        """Start empty and without backends."""
        self.policy = policy
        self.queues = PoolQueues(gate.tiers)
        self.rates = ServiceRates(len(self.queues.tiers), now)
        self.shedding = Shedding(self.queues, self.rates, self.recent_pressure)
        self.backends: list[Backend] = []
        self.blocked = [Memo() for _ in self.queues.tiers]
        self.freed = 0  # how often a backend has freed something
        self.longest_context = 0  # of all backends; 0: not limited
        self.in_flight = 0
        self.charged = 0  # cost in force for what is in flight
        self.in_fallback = False  # by override
        self.is_removed = False
        self.version = 0  # of what its backends carry
        self._pressures: dict[int, tuple[int, float, float]] = {}

    @property
    def waiting(self) -> int:
        """Tickets in its queues."""
        return sum(tier.waiting for tier in self.queues.tiers)

    def pressure(self, tier: TierQueue, now: float) -> float:
        """The smallest pressure over the backends that are open; 1.0 without one."""
        value = 1.0
        rank = tier.policy.rank
        for backend in self.backends:
            if backend.is_configured and now >= backend.paused_until and not backend.is_open(now):
                value = min(value, backend.valve.pressure(rank, now))
        return value

    def recent_pressure(self, tier: TierQueue, now: float) -> float:
        """The same for decisions: at most 10 ms old, and fresh once a backend's load has changed."""
        known = self._pressures.get(tier.index)
        if known is not None and known[0] == self.version and now - known[1] < PRESSURE_VALID_S:
            return known[2]
        value = self.pressure(tier, now)
        self._pressures[tier.index] = (self.version, now, value)
        return value

    def reshape(self, tiers: tuple[TierPolicy, ...], now: float) -> None:
        """Take new tiers: what waits, shares and rates of ranks that stay are kept."""
        before = {rank: tier.index for rank, tier in self.queues.by_rank.items()}
        self.queues.reshape(tiers)
        rates = ServiceRates(len(self.queues.tiers), now)
        rates.total = self.rates.total
        for tier in self.queues.tiers:
            index = before.get(tier.policy.rank)
            rates.tiers[tier.index] = 0.0 if index is None else self.rates.tiers[index]
        self.rates = rates
        self.shedding.reshape(self.queues, rates)
        self.blocked = [Memo() for _ in self.queues.tiers]
        self._pressures.clear()

    def use(self, backends: list[Backend]) -> None:
        """Take the backends that the policy names for it."""
        self.backends = backends
        contexts = [backend.policy.context_tokens or 0 for backend in backends]
        self.longest_context = 0 if 0 in contexts else max(contexts, default=0)
        self.version += 1

    def forget_blocked(self) -> None:
        """Something other than one backend's load has changed: try every head on every backend."""
        for memo in self.blocked:
            memo.head = None

    def roll(self, now: float) -> None:
        """Once a second: rates, and a little tidying."""
        if now < self.rates.period_ends:
            return
        tiers = self.queues.tiers
        self.rates.roll([tier.waiting for tier in tiers], now)
        self.shedding.calm()
        self.shedding.credits.sweep(now)
        for tier in tiers:
            tier.sweep()
