"""What a pool sheds, and what it tells those it sheds. Judges one ticket at a time; removes nothing itself.

Expected wait of a new ticket = its tenant's backlog / the tenant's part of the tier's rate. The tier's rate is what it
was served at, or its entitlement to the total where that is more; nothing measured yet: 0.

Drop policies, at arrival:

- `early-drop-on-pressure` refuses what is expected to wait longer than the tier's delay budget; while waiting, the
  objective deadline ends it (.8 x TTFT objective - .2 s, at least .3 s, after arrival).
- `tail` knows the size bound and the time-out only.
- `fast-reject` refuses while the pressure is at .9 (until below .8) or a higher tier waits; but a tenant without a
  waiting ticket may always let one wait while the tier is under its floor.

Whatever the policy: waiting ends at the time-out or when the caller's deadline could no longer be met; a retry without
credit is refused while its tier waits or is under pressure; a full queue sheds the newest arrival, unless another
tenant holds more of it: then that one's newest ticket is displaced.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway.core.backoff import Pacer, RetryLedger, retry_after
from gateway.core.commands import Decision, RetryAfter, new_decision
from gateway.core.frozen import maker
from gateway.core.policy import TierPolicy
from gateway.core.queues import PoolQueues, TierQueue
from gateway.core.rates import ServiceRates
from gateway.core.seats import whole_share
from gateway.core.tickets import Ticket
from gateway.core.vocabulary import DropPolicy, ShedReason

HIGH_PRESSURE = 0.9
LOW_PRESSURE = 0.8
TTFT_WEIGHT = 0.1
LEAST_SHARE = 0.01  # below, this gateway's rate says nothing about the cluster's
TTFT_FADE = 0.7  # per second without a sample

# members of an Enum by name: looking one up in its class costs a quarter of a microsecond
_DEADLINE = ShedReason.DEADLINE
_DISPLACED = ShedReason.DISPLACED
_EARLY_DROP = ShedReason.EARLY_DROP
_FAST_REJECT = ShedReason.FAST_REJECT
_QUEUE_FULL = ShedReason.QUEUE_FULL
_QUEUE_TIMEOUT = ShedReason.QUEUE_TIMEOUT
_RETRY_BUDGET = ShedReason.RETRY_BUDGET


@dataclass(frozen=True, slots=True)
class Verdict:
    """No, and why. `is_load`: it is a refusal for load, to be paced and paid for with a retry credit."""

    reason: ShedReason
    decision: Decision
    is_load: bool = True


new_verdict = maker(Verdict)


def delay_budget_s(tier: TierPolicy) -> float:
    """How long a ticket of a tier may be expected to wait."""
    budget = tier.queue.delay_budget_s
    return tier.delay_budget_factor * tier.ttft_objective_s if budget is None else budget


def objective_wait_s(tier: TierPolicy) -> float:
    """How long after its arrival a ticket can still start and meet its tier's TTFT objective."""
    return max(0.3, 0.8 * tier.ttft_objective_s - 0.2)


class Facts:
    """What the policy of a tier comes to for one gateway."""

    __slots__ = (
        "budget_s",
        "drops_early",
        "part",
        "rejects_fast",
        "retry_after_max_s",
        "size",
        "tenant_size",
    )

    def __init__(self, tier: TierPolicy, share: float, low_weight: float) -> None:
        """`low_weight`: the weights of all tiers below rank 0."""
        queue = tier.queue
        self.budget_s = delay_budget_s(tier)
        self.retry_after_max_s = queue.retry_after_max_s
        self.drops_early = queue.drop is DropPolicy.EARLY_DROP
        self.rejects_fast = queue.drop is DropPolicy.FAST_REJECT
        self.part = tier.share_cap if tier.rank == 0 else tier.weight / low_weight
        self.size = whole_share(queue.max_size, share)
        self.tenant_size = self.size + 1
        if queue.max_size_per_tenant is not None:
            self.tenant_size = whole_share(queue.max_size_per_tenant, share)


class Throttle:
    """Lets a fixed part of arrivals pass, evenly spread."""

    __slots__ = ("_sum", "part")

    def __init__(self, part: float) -> None:
        """`part`: 0 (nobody) to 1 (all)."""
        self.part = part
        self._sum = 0.0

    def lets_pass(self) -> bool:
        """Whether the next arrival goes through."""
        self._sum += self.part
        if self._sum >= 1.0 - 1e-9:
            self._sum -= 1.0
            return True
        return False


class Shedding:
    """Judges tickets for one pool."""

    __slots__ = (
        "_cluster_part",
        "_facts",
        "_has_first",
        "_is_latched",
        "_pacers",
        "_pressure",
        "_saw_ttft",
        "credits",
        "queues",
        "rates",
        "share",
        "throttles",
        "ttft_s",
    )

    def __init__(
        self, queues: PoolQueues, rates: ServiceRates, pressure: Callable[[TierQueue, float], float]
    ) -> None:
        """`pressure(tier, now)`: the smallest pressure over the open backends, 0..1."""
        self.queues = queues
        self.rates = rates
        self.credits = RetryLedger()
        self.share = 1.0
        self.throttles: dict[int, Throttle] = {}  # by rank
        self.ttft_s = 0.0  # expected from dispatch to first token
        self._saw_ttft = False
        self._pressure = pressure
        self._pacers = {tier.policy.rank: Pacer() for tier in queues.tiers}
        self._is_latched = dict.fromkeys(self._pacers, False)
        self.retune(1.0)

    def reshape(self, queues: PoolQueues, rates: ServiceRates) -> None:
        """Take new tiers; pacing, credits and latches of ranks that stay are kept."""
        self.queues = queues
        self.rates = rates
        ranks = [tier.policy.rank for tier in queues.tiers]
        self._pacers = {rank: self._pacers.get(rank) or Pacer() for rank in ranks}
        self._is_latched = {rank: self._is_latched.get(rank, False) for rank in ranks}
        self.retune(self.share)

    def throttle(self, parts: Mapping[int, float]) -> None:
        """Let only a part of the arrivals of some tiers (by rank) pass; all of the others."""
        kept = self.throttles
        self.throttles = {}
        for rank, part in parts.items():
            known = kept.get(rank)
            self.throttles[rank] = known if known is not None and known.part == part else Throttle(part)

    def see_ttft(self, ttft_s: float) -> None:
        """A first token came that long after its dispatch."""
        self.ttft_s += TTFT_WEIGHT * (ttft_s - self.ttft_s)
        self._saw_ttft = True

    def calm(self) -> None:
        """A second passed: without first tokens the expectation fades, or callers in a hurry were locked out for good."""
        if not self._saw_ttft:
            self.ttft_s *= TTFT_FADE
        self._saw_ttft = False

    def retune(self, share: float) -> None:
        """Work out what only changes with the policy or this gateway's share."""
        self.share = share
        self._cluster_part = max(share, LEAST_SHARE)
        tiers = self.queues.tiers
        self._has_first = tiers[0].policy.rank == 0
        low_weight = sum(tier.policy.weight for tier in tiers if tier.policy.rank != 0)
        self._facts = [Facts(tier.policy, share, low_weight) for tier in tiers]

    def tier_rate(self, tier: TierQueue) -> float:
        """Cost per second at which this gateway serves a tier, or could; 0.0 while nothing was measured."""
        index, rates = tier.index, self.rates
        entitled = self._facts[index].part * rates.total
        if self._has_first and index:
            entitled *= 1.0 - self.queues.shares.parts[0]
        measured = rates.tiers[index]
        return measured if measured > entitled else entitled

    def expected_wait_s(self, tier: TierQueue, name: str, weight: float) -> float:
        """Seconds until a ticket that a tenant adds now would be dispatched."""
        tenant = tier.tenants.get(name)
        if tenant is None or not tenant.backlog_cost:
            return 0.0
        rate = self.tier_rate(tier)
        if rate <= 0.0:
            return 0.0
        active = tier.active_weight - tenant.weight + weight
        return tenant.backlog_cost * active / (rate * weight)

    def judge(self, ticket: Ticket, tier: TierQueue, weight: float, now: float) -> Verdict | None:
        """Whether an arrival is refused. None: it may wait (where its queue is full, after `displaced` made room).

        Writes down on the ticket how long it is expected to wait.
        """
        wait = ticket.expected_wait_s = self.expected_wait_s(tier, ticket.tenant, weight)
        facts = self._facts[tier.index]
        verdict = None
        if self.throttles or ticket.deadline_at is not None or not ticket.is_ordinary:
            verdict = self._judge_special(ticket, tier, wait, now)
        if verdict is None and facts.drops_early and wait > facts.budget_s:
            verdict = _no(_EARLY_DROP, "delay-budget", tier, wait, (wait, facts.budget_s))
        if verdict is None and facts.rejects_fast:
            verdict = self._judge_fast_reject(ticket, tier, wait, now)
        if verdict is None:
            verdict = self._judge_size(ticket, tier, wait)
        return verdict

    def _judge_special(self, ticket: Ticket, tier: TierQueue, wait: float, now: float) -> Verdict | None:
        """What few arrivals are judged by: a throttled tier, a deadline, being a retry."""
        verdict = None
        if self.throttles:
            verdict = self._judge_throttle(ticket, tier, wait)
        if verdict is None and ticket.deadline_at is not None:
            verdict = self._judge_deadline(ticket.deadline_at, tier, wait, now)
        if verdict is None and not ticket.is_ordinary:
            verdict = self._judge_retry(ticket, tier, wait, now)
        return verdict

    def _judge_throttle(self, ticket: Ticket, tier: TierQueue, wait: float) -> Verdict | None:
        throttle = self.throttles.get(tier.policy.rank)
        if throttle is None or ticket.is_let_in:
            return None
        if throttle.lets_pass():
            ticket.is_let_in = True
            return None
        return _no(_FAST_REJECT, "tier-throttle", tier, wait, (1.0, throttle.part))

    def _judge_deadline(self, deadline_at: float, tier: TierQueue, wait: float, now: float) -> Verdict | None:
        left = deadline_at - self.ttft_s - now
        needed = wait if self._facts[tier.index].drops_early else 0.0
        if left > needed:
            return None
        return _no(_DEADLINE, "deadline-at-arrival", tier, wait, (needed, left))

    def _judge_retry(self, ticket: Ticket, tier: TierQueue, wait: float, now: float) -> Verdict | None:
        if self.credits.take(ticket.tenant, tier.policy.rank, now):
            ticket.is_ordinary = True
            return None
        pressure = self._pressure(tier, now)
        if not tier.waiting and pressure < HIGH_PRESSURE:
            ticket.is_ordinary = True
            return None
        return _no(_RETRY_BUDGET, "retry-credit", tier, wait, (pressure, HIGH_PRESSURE))

    def _judge_fast_reject(self, ticket: Ticket, tier: TierQueue, wait: float, now: float) -> Verdict | None:
        higher = 0
        for other in self.queues.tiers[: tier.index]:
            higher += other.waiting
        if higher:
            rule, value, bound = "higher-tier-waits", float(higher), 0.0
        else:
            value, bound, rule = self._pressure(tier, now), HIGH_PRESSURE, "pressure"
            rank = tier.policy.rank
            if self._is_latched[rank]:
                bound = LOW_PRESSURE
            self._is_latched[rank] = value >= bound
            if value < bound:
                return None
        if self.queues.is_under_floor(tier):
            tenant = tier.tenants.get(ticket.tenant)
            if tenant is None or not tenant.tickets:
                return None
        return _no(_FAST_REJECT, rule, tier, wait, (value, bound))

    def _judge_size(self, ticket: Ticket, tier: TierQueue, wait: float) -> Verdict | None:
        facts = self._facts[tier.index]
        tenant = tier.tenants.get(ticket.tenant)
        own = 0 if tenant is None else len(tenant.tickets)
        if own >= facts.tenant_size:
            return _no(_QUEUE_FULL, "tenant-size", tier, wait, (own, facts.tenant_size))
        if tier.waiting < facts.size or self._makes_room(tier, own):
            return None
        return _no(_QUEUE_FULL, "size", tier, wait, (tier.waiting, facts.size))

    @staticmethod
    def _makes_room(tier: TierQueue, own: int) -> bool:
        """Whether a full queue displaces a ticket of its largest tenant for one who has `own` waiting."""
        largest = tier.largest
        return largest > own + 1 or (own == 0 and largest == tier.waiting)

    def displaced(self, tier: TierQueue) -> tuple[Ticket, Verdict] | None:
        """Who goes from a full queue in favour of an arrival that `judge` let in; None where there is room."""
        if tier.waiting < self._facts[tier.index].size:
            return None
        ticket = tier.newest_of_largest()
        wait = self.expected_wait_s(tier, ticket.tenant, tier.tenants[ticket.tenant].weight)
        return ticket, _no(_DISPLACED, "largest-backlog", tier, wait, (tier.largest, 1))

    def limit_wait(self, ticket: Ticket) -> None:
        """Write down when the waiting of an admitted ticket ends, and by which rule."""
        tier = self.queues.tier(ticket.tier)
        ticket.expires_at = ticket.arrived_at + tier.policy.queue.timeout_s
        ticket.late_reason = _QUEUE_TIMEOUT
        if ticket.deadline_at is not None and ticket.deadline_at - self.ttft_s < ticket.expires_at:
            ticket.expires_at = ticket.deadline_at - self.ttft_s
            ticket.late_reason = _DEADLINE
        if self._facts[tier.index].drops_early:
            objective = ticket.arrived_at + objective_wait_s(tier.policy)
            if objective < ticket.expires_at:
                ticket.expires_at = objective
                ticket.late_reason = _DEADLINE

    def late(self, ticket: Ticket, now: float) -> Verdict:
        """Why a ticket that waited too long is evicted."""
        tier = self.queues.tier(ticket.tier)
        tenant = tier.tenants.get(ticket.tenant)
        wait = self.expected_wait_s(tier, ticket.tenant, tenant.weight) if tenant else 0.0
        rule = "timeout" if ticket.late_reason is _QUEUE_TIMEOUT else "deadline-at-dequeue"
        numbers = (now - ticket.arrived_at, ticket.expires_at - ticket.arrived_at)
        return _no(ticket.late_reason, rule, tier, wait, numbers)

    def come_back(self, ticket: Ticket, verdict: Verdict, now: float, roll: float) -> RetryAfter:
        """The paced slot of a refusal for load; it grants ordinary traffic a retry credit from that slot."""
        tier = self.queues.tier(ticket.tier)
        facts, rank = self._facts[tier.index], tier.policy.rank
        rate = self.tier_rate(tier) / self._cluster_part
        step = ticket.cost / rate if rate > 0.0 else 0.0
        excess = verdict.decision.expected_wait_s - facts.budget_s
        slot = self._pacers[rank].slot(excess, step, facts.retry_after_max_s, now, roll)
        if ticket.is_ordinary:
            self.credits.grant(ticket.tenant, rank, 1.0, slot)
        return retry_after(slot, now)


def spread(cap_s: int, now: float, roll: float) -> RetryAfter:
    """An instant in the upper half of a cap, where no service rate tells more."""
    return retry_after(now + cap_s * (0.5 + 0.5 * roll), now)


def _no(reason: ShedReason, rule: str, tier: TierQueue, wait: float, numbers: tuple[float, float]) -> Verdict:
    value, bound = numbers
    return new_verdict(reason, new_decision(rule, value, bound, tier.waiting, wait))
