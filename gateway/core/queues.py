"""The queues of one pool: FIFO inside a tenant, fair between the tenants of a tier, ordered between tiers.

**Inside a tier** the tenant with the smallest virtual token counter goes next (VTC: Sheng et al., "Fairness in
Serving Large Language Models", 2024). A dispatch charges its predicted cost, divided by the tenant's weight; the end
of the work settles the charge by the real cost. A tenant that starts to wait is lifted to the smallest counter of
those that wait (to the last one that left, where nobody does), so idleness is no credit. Of two tenants that always
wait the counters differ by at most the largest single charge plus the unsettled errors of prediction.

**Between tiers** rank 0 goes first while its recent share of the dispatched cost is below its cap or nobody else
waits; over the cap it waits for the lower tiers. Nobody passes its blocked head: where prompts are as large as the
prefill window, small ones of a lower tier would take the room that it waits for. Of the lower tiers only one is tried:
the one below its floor, else the one with the smallest counter (charged cost / weight). There is no bypass, or the
smaller hold-back of one tier would starve the other.

Cost of every operation: O(log tenants that wait), except `waiting_by_tenant` and `reshape`. Idle tenants cost nothing.
"""

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from gateway.core.policy import TierPolicy
from gateway.core.rates import CostShares
from gateway.core.tickets import Ticket

Entry = tuple[float, int, "TenantQueue"]


class TenantQueue:
    """What one tenant has waiting in one tier, oldest first, and its counter."""

    __slots__ = ("backlog_cost", "counter", "entry", "name", "tickets", "weight")

    def __init__(self, name: str, weight: float) -> None:
        """Start with nothing waiting."""
        self.name = name
        self.weight = weight
        self.counter = 0.0
        self.backlog_cost = 0
        self.tickets: OrderedDict[str, Ticket] = OrderedDict()
        self.entry: Entry | None = None  # its valid entry in the heap of the tier


class TierQueue:
    """What waits in one (pool, tier)."""

    __slots__ = (
        "_floor",
        "_heap",
        "_order",
        "_sizes",
        "_swept",
        "active_weight",
        "counter",
        "index",
        "is_lowest",
        "largest",
        "policy",
        "tenants",
        "waiting",
        "waiting_cost",
    )

    SWEEP = 4

    def __init__(self, policy: TierPolicy, index: int) -> None:
        """Start empty. `index` is the position among the tiers of the pool, by rank."""
        self.policy = policy
        self.index = index
        self.is_lowest = False  # the last of several
        self.counter = 0.0  # among the lower tiers
        self.tenants: dict[str, TenantQueue] = {}
        self.waiting = 0
        self.waiting_cost = 0
        self.active_weight = 0.0
        self.largest = 0  # size of the largest tenant queue
        self._sizes: dict[int, dict[str, TenantQueue]] = {}
        self._heap: list[Entry] = []
        self._order = 0
        self._floor = 0.0
        self._swept: Iterator[str] | None = None

    def __repr__(self) -> str:
        return f"<TierQueue {self.policy.rank} waiting={self.waiting} tenants={len(self._heap)}>"

    def tenant(self, name: str, weight: float) -> TenantQueue:
        """The queue of a tenant; its weight becomes `weight`."""
        tenant = self.tenants.get(name)
        if tenant is None:
            tenant = self.tenants[name] = TenantQueue(name, weight)
            tenant.counter = self.least()
        elif tenant.weight != weight:
            if tenant.entry is not None:
                self.active_weight += weight - tenant.weight
            tenant.weight = weight
        return tenant

    def least(self) -> float:
        """The smallest counter of those that wait; of the last one that left where nobody does."""
        entry = self._top()
        return self._floor if entry is None else entry[0]

    def head(self) -> Ticket | None:
        """The ticket that goes next."""
        entry = self._top()
        return None if entry is None else next(iter(entry[2].tickets.values()))

    def first(self) -> Ticket:
        """The head of a tier where something waits.

        Raises:
            IndexError: where nothing does.
        """
        entry = self._heap[0]
        if entry[2].entry is not entry:  # stale: `_top` drops those
            self._top()
            entry = self._heap[0]
        return next(iter(entry[2].tickets.values()))

    def push(self, ticket: Ticket, tenant: TenantQueue, *, front: bool = False) -> None:
        """Let a ticket wait, at the end or (once pushed back) at the front of its tenant's queue."""
        if tenant.entry is None:
            tenant.counter = max(tenant.counter, self.least())
            self.active_weight += tenant.weight
            self._enter(tenant)
        tenant.tickets[ticket.id] = ticket
        if front:
            tenant.tickets.move_to_end(ticket.id, last=False)
        tenant.backlog_cost += ticket.cost
        self.waiting += 1
        self.waiting_cost += ticket.cost
        self._resize(tenant, len(tenant.tickets) - 1)

    def remove(self, ticket: Ticket) -> None:
        """Take a waiting ticket out, wherever it is."""
        tenant = self.tenants[ticket.tenant]
        del tenant.tickets[ticket.id]
        tenant.backlog_cost -= ticket.cost
        self.waiting -= 1
        self.waiting_cost -= ticket.cost
        self._resize(tenant, len(tenant.tickets) + 1)
        if not tenant.tickets:
            self.left_with(tenant.counter)
            tenant.entry = None
            self.active_weight = self.active_weight - tenant.weight if self.waiting else 0.0

    def charge(self, name: str, amount: float) -> None:
        """Move a tenant's counter by `amount` (cost / weight), which is negative where a charge was too high."""
        tenant = self.tenants.get(name)
        if tenant is not None:
            tenant.counter += amount
            if tenant.entry is not None:
                self._enter(tenant)

    def left_with(self, counter: float) -> None:
        """A tenant waits no longer: who comes next, while nobody waits, starts where it left."""
        if counter > self._floor:
            self._floor = counter

    def newest_of_largest(self) -> Ticket:
        """The ticket that goes where a full queue must make room: the newest of the tenant with most waiting."""
        tenant = next(iter(self._sizes[self.largest].values()))
        return next(reversed(tenant.tickets.values()))

    def tickets(self) -> Iterator[Ticket]:
        """All that wait, tenant by tenant."""
        for tenant in self.tenants.values():
            yield from tenant.tickets.values()

    def sweep(self) -> None:
        """Forget some idle tenants whose counter means nothing any more: bounded work per call."""
        for name in self._next_names():
            tenant = self.tenants.get(name)
            if tenant is not None and tenant.entry is None and tenant.counter <= self.least():
                del self.tenants[name]

    def _next_names(self) -> list[str]:
        if self._swept is None:
            self._swept = iter(list(self.tenants))
        names = [name for _, name in zip(range(self.SWEEP), self._swept, strict=False)]
        if len(names) < self.SWEEP:
            self._swept = None
        return names

    def _top(self) -> Entry | None:
        heap = self._heap
        while heap:
            entry = heap[0]
            if entry[2].entry is entry:
                return entry
            heappop(heap)
        return None

    def _enter(self, tenant: TenantQueue) -> None:
        self._order += 1
        entry = tenant.entry = (tenant.counter, self._order, tenant)
        heappush(self._heap, entry)
        if len(self._heap) > 64 + 4 * self.waiting:  # stale entries: rebuild, paid by the pushes
            self._heap = [entry for entry in self._heap if entry[2].entry is entry]
            heapify(self._heap)

    def _resize(self, tenant: TenantQueue, before: int) -> None:
        sizes = self._sizes
        after = len(tenant.tickets)
        if before:
            bucket = sizes[before]
            del bucket[tenant.name]
            if not bucket:
                del sizes[before]
        if after:
            known = sizes.get(after)
            if known is None:
                sizes[after] = {tenant.name: tenant}
            else:
                known[tenant.name] = tenant
        if after > self.largest or self.largest not in sizes:
            self.largest = after


class PoolQueues:
    """All tiers of one pool, by rank, and the order between them."""

    __slots__ = ("by_rank", "shares", "tiers")

    def __init__(self, tiers: tuple[TierPolicy, ...]) -> None:
        """Start empty."""
        ranked = sorted(tiers, key=lambda tier: tier.rank)
        self.tiers = [TierQueue(tier, index) for index, tier in enumerate(ranked)]
        self.tiers[-1].is_lowest = len(ranked) > 1
        self.by_rank = {tier.policy.rank: tier for tier in self.tiers}
        self.shares = CostShares(len(self.tiers))

    def tier(self, rank: int) -> TierQueue:
        """The tier of a rank; the lowest one for a rank that no policy knows."""
        return self.by_rank.get(rank) or self.tiers[-1]

    def next_tier(self) -> TierQueue | None:
        """The tier whose head is tried now; nothing else may be dispatched."""
        first = self.tiers[0]
        if first.policy.rank != 0:
            return self._next_low(None)
        if first.waiting and self.shares.parts[0] <= first.policy.share_cap:
            return first
        return self._next_low(first) or (first if first.waiting else None)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits in any tier."""
        for tier in self.tiers:  # noqa: SIM110  # a generator costs more than the answer
            if tier.waiting:
                return False
        return True

    def is_under_floor(self, tier: TierQueue) -> bool:
        """Whether a tier got less of the recent cost than it gets whatever happens above it."""
        return self.shares.parts[tier.index] < tier.policy.floor

    def charge(self, ticket: Ticket, cost: int, weight: float) -> None:
        """Charge a dispatch, or (negative) settle it: the counters of its tenant and of its tier."""
        tier = self.by_rank.get(ticket.tier) or self.tiers[-1]
        tier.charge(ticket.tenant, cost / weight)
        tier.counter += cost / tier.policy.weight

    def push(self, ticket: Ticket, weight: float, *, front: bool = False) -> None:
        """Let a ticket wait in its tier; a tier that starts to wait is lifted as tenants are."""
        tier = self.tier(ticket.tier)
        if ticket.tier != tier.policy.rank:
            ticket.lower_to(tier.policy.rank)
        if not tier.waiting:
            self._lift(tier)
        tier.push(ticket, tier.tenant(ticket.tenant, weight), front=front)

    def reshape(self, tiers: tuple[TierPolicy, ...]) -> None:
        """Take new tiers. What waits stays; tickets of a vanished rank go on in the lowest tier, oldest first."""
        old = self.by_rank
        shares = self.shares
        ranked = sorted(tiers, key=lambda tier: tier.rank)
        self.shares = CostShares(len(ranked))
        self.tiers = []
        for index, policy in enumerate(ranked):
            tier = old.pop(policy.rank, None)
            if tier is None:
                tier = TierQueue(policy, index)
            else:
                self.shares.put(index, shares[tier.index])
            tier.policy = policy
            tier.index = index
            tier.is_lowest = 0 < index == len(ranked) - 1
            self.tiers.append(tier)
        self.by_rank = {tier.policy.rank: tier for tier in self.tiers}
        homeless = [(ticket, tier) for tier in old.values() for ticket in tier.tickets()]
        for ticket, tier in sorted(homeless, key=lambda pair: pair[0].queued_at):
            self.push(ticket, tier.tenants[ticket.tenant].weight)

    def _lift(self, tier: TierQueue) -> None:
        counters = [other.counter for other in self.tiers if other.waiting and other.policy.rank != 0]
        if counters:
            tier.counter = max(tier.counter, min(counters))

    def pass_through(self, ticket: Ticket, weight: float) -> None:
        """What a ticket that goes at once leaves behind: as if it had waited for no time where nobody waits."""
        tier = self.tier(ticket.tier)
        tenant = tier.tenant(ticket.tenant, weight)
        amount = ticket.cost / weight
        tenant.counter = max(tenant.counter, tier.least()) + amount
        tier.left_with(tenant.counter)
        tier.counter += ticket.cost / tier.policy.weight

    def _next_low(self, first: TierQueue | None) -> TierQueue | None:
        parts = self.shares.parts
        best: TierQueue | None = None
        best_is_under = False
        for tier in self.tiers:
            if tier is first or not tier.waiting:
                continue
            is_under = parts[tier.index] < tier.policy.floor
            if best is not None:
                goes_first = tier.counter < best.counter if is_under is best_is_under else is_under
                if not goes_first:
                    continue
            best, best_is_under = tier, is_under
        return best
