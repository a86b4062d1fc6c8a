"""A shell on a virtual clock that knows what a gate may say, and complains about everything else.

It feeds events, carries out the commands in its books and checks after every event what must always hold. What it
knows about the gate's inside it only reads, to ask "is this head blocked for a reason?".
"""

from collections.abc import Callable
from dataclasses import dataclass

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
    Configured,
    Event,
    Failed,
    Finished,
    Progress,
    PushedBack,
    QuotaDenied,
    QuotaGranted,
    Ticked,
)
from gateway.core.gate import Gate
from gateway.core.policy import GatePolicy
from gateway.core.rates import CostShares
from gateway.core.recorder import Tape, replay
from gateway.core.routing import choose
from gateway.core.seats import whole_share
from gateway.core.vocabulary import BreakerState, DropPolicy, Outcome
from tests.fakes.playbook import chance

LEGAL = {
    (BreakerState.CLOSED, BreakerState.OPEN),
    (BreakerState.OPEN, BreakerState.HALF_OPEN),
    (BreakerState.HALF_OPEN, BreakerState.OPEN),
    (BreakerState.HALF_OPEN, BreakerState.CLOSED),
    # a lapse and its probe within one look of the gate
    (BreakerState.OPEN, BreakerState.CLOSED),
}
FORCED = {BreakerState.FORCED_OPEN, BreakerState.FORCED_CLOSED}


@dataclass(slots=True)
class Known:
    """What the shell knows of a ticket."""

    event: Arrived
    arrived_at: float
    stage: str = "new"  # new, quota, waiting, in-flight
    backend: str = ""
    cost: int = 0
    has_reserved: bool = False
    pushed_back: int = 0


class Shell:
    """Feeds a gate and keeps books of its own."""

    def __init__(self, policy: GatePolicy, *, seed: int = 1, tape: int = 20_000) -> None:
        self.policy = policy
        self.tape = Tape(tape)
        self.said: list[list[Command]] = []
        self.dice = self.tape.dice(chance(seed).random)
        self.gate = Gate(policy, now=0.0, dice=self.dice)
        self.state = self.gate._state
        self.now = 0.0
        self.first_policy = policy
        self.known: dict[str, Known] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.shares = {pool.name: CostShares(len(policy.tiers)) for pool in policy.pools}
        self.wake_at = float("inf")
        self.count = 0
        self.is_exact = True  # whether every blocked head was tried at this very instant

    # -- feeding

    def feed(self, event: Event) -> list[Command]:
        """Feed one event, obey, check."""
        before = {pool: [tier.waiting for tier in p.queues.tiers] for pool, p in self.state.pools.items()}
        live_before = len(self.known)
        self.tape.keep(event, self.now)
        commands = self.gate.handle(event, self.now)
        self.said.append(commands)
        for command in commands:
            self._obey(command)
        self._check_counts()
        self._check_bounds(before)
        if self.is_exact:
            self._check_work_conserving()
        if isinstance(event, Arrived) and any(isinstance(command, Refuse) for command in commands):
            self._check_nothing_left(event, live_before)
        return commands

    def pass_time(self, seconds: float) -> None:
        """Let time pass, waking the gate as it asked."""
        until = self.now + seconds
        while self.wake_at <= until:
            self.now = max(self.now, self.wake_at)
            self.wake_at = float("inf")
            self.feed(Ticked())
        self.now = until
        self.feed(Ticked())

    def arrive(self, **fields) -> str:
        """A request comes in; returns its ticket."""
        self.count += 1
        ticket = f"t{self.count}"
        event = Arrived(ticket=ticket, **fields)
        self.known[ticket] = Known(event, self.now)
        self.feed(event)
        return ticket

    def answer_quota(self, ticket: str, *, reason=None, retry_at: float | None = None) -> None:
        """The quota says yes, or (with a reason) no."""
        known = self.known[ticket]
        if reason is None:
            known.has_reserved = True
            self.feed(QuotaGranted(ticket))
        else:
            self.feed(QuotaDenied(ticket, reason, retry_at))

    def configure(self, policy: GatePolicy) -> None:
        """A new policy: what vanishes with it is counted anew."""
        if len(policy.tiers) != len(self.state.policy.tiers):
            self.shares = {}
        self.feed(Configured(policy))
        for pool in policy.pools:
            if pool.name not in self.shares:
                shares = self.state.pools[pool.name].queues.shares
                self.shares[pool.name] = CostShares(len(policy.tiers))
                for index in range(len(policy.tiers)):
                    self.shares[pool.name].put(index, shares[index])

    def progress(self, backend: str, tickets: list[str], *, lagged: bool = False) -> None:
        """One LLM token for each ticket."""
        self.feed(Progress(backend, tuple((ticket, 1) for ticket in tickets), lagged))

    def finish(self, ticket: str, output: int | None) -> None:
        """Answered in full."""
        known = self._end(ticket, Outcome.COMPLETED)
        self._settled(known, self.feed(Finished(ticket, known.event.prompt_tokens, output)))

    def fail(self, ticket: str, fault) -> None:
        """Failed at the backend."""
        known = self._end(ticket, Outcome.FAILED)
        self._settled(known, self.feed(Failed(ticket, fault)))

    def abandon(self, ticket: str) -> None:
        """The caller leaves."""
        known = self._end(ticket, Outcome.ABANDONED)
        commands = self.feed(Abandoned(ticket))
        assert (Abort(ticket, known.backend) in commands) == (known.stage == "in-flight")
        if known.has_reserved:
            self._settled(known, commands)

    def push_back(self, ticket: str, retry_after_s: float | None, status: int) -> None:
        """The engine says "busy"."""
        known = self.known[ticket]
        known.stage = "waiting"
        known.pushed_back += 1
        pool = known.event.pool
        if pool in self.shares:
            self.shares[pool].add(self._index(pool, ticket), -known.cost)
        self.feed(PushedBack(ticket, retry_after_s, status))

    def in_flight(self, backend: str | None = None) -> list[str]:
        """Tickets that are at a backend."""
        return [
            name
            for name, known in self.known.items()
            if known.stage == "in-flight" and backend in (None, known.backend)
        ]

    def staged(self, stage: str) -> list[str]:
        """Tickets in a stage."""
        return [name for name, known in self.known.items() if known.stage == stage]

    def come_to_rest(self) -> None:
        """End everything; then nothing is held by anybody."""
        for ticket in list(self.known):
            if ticket not in self.known:
                continue
            if self.known[ticket].stage == "in-flight":
                self.finish(ticket, 8)
            else:
                self.abandon(ticket)
        view = self.gate.view(self.now)
        assert view.tickets == 0
        assert view.ledger_imbalance == 0
        assert all(gauge.in_flight == 0 and gauge.prefill_tokens == 0 for gauge in view.backends)
        assert all(gauge.kv_tokens == 0 for gauge in view.backends)
        assert all(queue.waiting == 0 and queue.waiting_cost == 0 for queue in view.queues)
        assert all(pool.charged == 0 and pool.in_flight == 0 for pool in self.state.pools.values())

    def check_replay(self, start: Callable | None = None) -> None:
        """A gate started empty says the same to the same events."""
        start = start or (lambda dice: Gate(self.first_policy, now=0.0, dice=dice).handle)
        for place, (again, said) in enumerate(zip(replay(self.tape, start), self.said, strict=True)):
            assert again == said, f"event {place}: {self.tape.events[place]}"

    # -- obeying

    def _obey(self, command: Command) -> None:
        match command:
            case WakeAt():
                assert command.at >= self.now
                self.wake_at = command.at
            case ReserveQuota():
                known = self.known[command.ticket]
                assert known.stage == "new"
                assert known.event.has_quota
                known.stage = "quota"
            case Dispatch():
                self._dispatched(command)
            case Refuse() | Evict():
                self._shed(command)
            case BreakerChanged():
                flip = (command.before, command.after)
                assert flip in LEGAL or set(flip) & FORCED, flip
            case RefundQuota():
                self._refunded(command.ticket)
            case Abort() | SettleQuota():
                pass

    def _dispatched(self, command: Dispatch) -> None:
        known = self.known[command.ticket]
        event = known.event
        assert known.stage in ("new", "quota", "waiting"), "dispatched twice"
        assert not event.has_quota or known.has_reserved
        known.stage, known.backend = "in-flight", command.backend
        known.cost = self.state.tickets[command.ticket].cost
        backend = self.state.backends[command.backend]
        assert backend.valve.in_flight <= max(1, backend.valve.limit), "above the limit"
        assert backend.is_configured
        if backend.breaker.state is BreakerState.HALF_OPEN:
            assert len(backend.breaker._probes) <= backend.pool.breaker.half_open_probes
        assert backend.breaker.state not in (BreakerState.OPEN, BreakerState.FORCED_OPEN)
        self._check_deadline(known)
        self._check_tier_order(command.ticket)
        if event.pool in self.shares:
            self.shares[event.pool].add(self._index(event.pool, command.ticket), known.cost)

    def _check_deadline(self, known: Known) -> None:
        event = known.event
        tier = self.state.pools[event.pool].queues.tier(event.tier).policy
        waited = self.now - known.arrived_at
        assert event.deadline_at is None or self.now < event.deadline_at, "past its deadline"
        assert waited < tier.queue.timeout_s, "past its time-out"
        if tier.queue.drop is DropPolicy.EARLY_DROP:
            assert waited < max(0.3, 0.8 * tier.ttft_objective_s - 0.2) + 1e-9, "past its objective"

    def _check_tier_order(self, ticket: str) -> None:
        """A lower tier goes only while rank 0 does not wait, or is over its share."""
        event = self.known[ticket].event
        index = self._index(event.pool, ticket)
        if index == 0:
            return
        rank_0_waits = any(
            known.stage == "waiting" and known.event.pool == event.pool and self._index(event.pool, name) == 0
            for name, known in self.known.items()
        )
        cap = self.state.pools[event.pool].queues.tiers[0].policy.share_cap
        assert not rank_0_waits or event.pool not in self.shares or self.shares[event.pool][0] > cap, (
            "a lower tier passed rank 0"
        )

    def _shed(self, command: Refuse | Evict) -> None:
        known = self.known.pop(command.ticket)
        if isinstance(command, Evict):
            assert known.stage == "waiting", "evicted, but it never waited"
        else:
            assert known.stage in ("new", "quota"), "refused, but it had been let in"
        assert not known.has_reserved, "shed without a refund"
        self._outcome(command.ticket, Outcome.EVICTED if isinstance(command, Evict) else Outcome.REFUSED)
        retry = command.retry_after
        if retry is not None:
            assert 1 <= retry.after_s <= 60
            assert retry.at >= self.now
            assert self.now + retry.after_s >= retry.at, "told to come before the slot"

    def _refunded(self, ticket: str) -> None:
        known = self.known.get(ticket)
        if known is not None:
            assert known.has_reserved, "nothing was reserved"
            known.has_reserved = False

    def _end(self, ticket: str, outcome: Outcome) -> Known:
        known = self.known.pop(ticket)
        self._outcome(ticket, outcome)
        return known

    def _outcome(self, ticket: str, outcome: Outcome) -> None:
        assert ticket not in self.outcomes, "a second outcome"
        self.outcomes[ticket] = outcome

    @staticmethod
    def _settled(known: Known, commands: list[Command]) -> None:
        """Exactly one refund or settlement where something was reserved."""
        own = [
            command
            for command in commands
            if isinstance(command, RefundQuota | SettleQuota) and command.ticket == known.event.ticket
        ]
        assert len(own) == known.has_reserved

    def _index(self, pool: str, ticket: str) -> int:
        return self.state.pools[pool].queues.tier(self.known[ticket].event.tier).index

    # -- what must hold after every event

    def _check_counts(self) -> None:
        """Conservation: the gate knows exactly the tickets that have no outcome, where the shell knows them."""
        for known in self.known.values():
            if known.stage == "new" or (known.stage == "quota" and known.has_reserved):
                known.stage = "waiting"
        assert self.state.tickets.keys() == self.known.keys()
        view = self.gate.view(self.now)
        assert view.ledger_imbalance == 0
        assert sum(queue.waiting for queue in view.queues) == len(self.staged("waiting"))
        for gauge in view.backends:
            assert gauge.in_flight == len(self.in_flight(gauge.backend))
            assert sum(gauge.in_flight_by_tier) <= gauge.in_flight
            assert sum(count for _, count in gauge.in_flight_by_tenant) == gauge.in_flight
            assert 0 <= gauge.limit <= 1000
        assert all(0.0 <= queue.pressure <= 1.0 for queue in view.queues)

    def _check_bounds(self, before: dict[str, list[int]]) -> None:
        """A queue grows only up to its bound; what an engine pushed back comes on top."""
        for name, pool in self.state.pools.items():
            returned = sum(known.pushed_back > 0 for known in self.known.values() if known.stage == "waiting")
            if pool.is_removed or len(before.get(name, ())) != len(pool.queues.tiers):
                continue
            for tier, waiting in zip(pool.queues.tiers, before[name], strict=True):
                bound = whole_share(tier.policy.queue.max_size, pool.shedding.share)
                assert tier.waiting <= max(bound + returned, waiting), "above the bound of the queue"

    def _check_work_conserving(self) -> None:
        """The head that is next in order has no backend that could take it."""
        for pool in self.state.pools.values():
            tier = pool.queues.next_tier()
            head = None if tier is None else tier.head()
            if tier is None or head is None:
                continue
            is_lowest = 0 < tier.index == len(pool.queues.tiers) - 1
            backend, _ = choose(
                pool.backends, head.ask, self.now, is_lowest=is_lowest, longest_context=pool.longest_context
            )
            assert backend is None, f"{backend} could take {head}"

    def _check_nothing_left(self, event: Arrived, live_before: int) -> None:
        """A refused arrival leaves nothing behind: no ticket, no place, no tenant."""
        if event.ticket in self.known:
            return
        assert len(self.known) <= live_before
        assert event.ticket not in self.state.tickets
        pool = self.state.pools.get(event.pool)
        if pool is not None:
            for tier in pool.queues.tiers:
                for tenant in tier.tenants.values():
                    assert event.ticket not in tenant.tickets
