"""Sending tickets on: as many heads as the backends can take, in the order of the queues."""

from collections.abc import Sequence

from gateway.core.commands import Decision, new_dispatch
from gateway.core.gate.pool import Pool
from gateway.core.gate.shedder import evict
from gateway.core.gate.state import State
from gateway.core.policy import WatermarkPolicy
from gateway.core.queues import TierQueue
from gateway.core.recorder import is_sampled
from gateway.core.routing import Backend, choose
from gateway.core.tickets import Stage, Ticket
from gateway.core.vocabulary import ShedReason

# members of an Enum by name: looking one up in its class costs a quarter of a microsecond
_IN_FLIGHT = Stage.IN_FLIGHT
_DEADLINE = ShedReason.DEADLINE


def pump(state: State, pool: Pool, now: float) -> None:
    """Dispatch until nothing more fits."""
    next_tier = pool.queues.next_tier
    while (tier := next_tier()) is not None and _try(state, pool, tier, tier.first(), now):
        pass


def pump_all(state: State, now: float) -> None:
    """Try everything again: time or settings have changed."""
    for pool in state.pools.values():
        pool.forget_blocked()
        pump(state, pool, now)


def _try(state: State, pool: Pool, tier: TierQueue, head: Ticket, now: float) -> bool:
    """Dispatch (or evict) the head of a tier; False where it is blocked.

    A head that was blocked is tried again only on the backends that have freed something since.
    """
    memo = pool.blocked[tier.index]
    is_known = memo.head is head
    if is_known and memo.seen == pool.freed:
        return False
    if now >= head.expires_at or (head.deadline_at is not None and _is_too_late(pool, head, now)):
        evict(state, pool, head, pool.shedding.late(head, now), now)
        return True
    backends: Sequence[Backend] = pool.backends
    if is_known:
        backends = [backend for backend in backends if backend.freed > memo.seen]
    watermark = pool.policy.watermark
    if watermark is not None:
        _hold(state, watermark, backends, now)
    if head.avoid is not None:
        backends = _elsewhere(pool, backends, head.avoid, now)
    backend, account = choose(backends, head.ask, now, tier.is_lowest, pool.longest_context)
    if backend is None:
        memo.head, memo.seen = head, pool.freed
        head.account = account or head.account
        return False
    _dispatch(state, pool, tier, head, backend)
    return True


def _elsewhere(pool: Pool, backends: Sequence[Backend], avoid: str, now: float) -> Sequence[Backend]:
    """Without the one that has just failed this ticket, as long as another one serves at all."""
    others = [backend for backend in pool.backends if backend.policy.name != avoid]
    if not any(backend.is_configured and not backend.is_open(now) for backend in others):
        return backends
    return [backend for backend in backends if backend.policy.name != avoid]


def _is_too_late(pool: Pool, head: Ticket, now: float) -> bool:
    """Whether the caller's deadline can't be met any more: first tokens may have slowed since it was let in."""
    if head.deadline_at is None or now + pool.shedding.ttft_s < head.deadline_at:
        return False
    head.expires_at = now
    head.late_reason = _DEADLINE
    return True


def _hold(state: State, watermark: WatermarkPolicy, backends: Sequence[Backend], now: float) -> None:
    """The engine watermark: nothing more for a jittered moment where the engine itself queues."""
    for backend in backends:
        if now >= backend.held_until and backend.engine_waiting(now) > watermark.safe:
            backend.held_until = now + watermark.jitter_s * (0.5 + 0.5 * state.dice())
            state.alarm(backend.held_until)


def send_at_once(state: State, pool: Pool, tier: TierQueue, ticket: Ticket) -> bool:
    """The short way of a ticket where nobody waits: False where it must wait after all."""
    if pool.policy.watermark is not None or ticket.avoid is not None:
        return False
    backend, _ = choose(pool.backends, ticket.ask, state.now, tier.is_lowest, pool.longest_context)
    if backend is None:
        return False
    weight = state.weight_of(ticket) if state.weight_factors else ticket.weight
    pool.queues.pass_through(ticket, weight)
    _send(state, pool, tier, ticket, backend, weight)
    return True


def _dispatch(state: State, pool: Pool, tier: TierQueue, ticket: Ticket, backend: Backend) -> None:
    weight = state.weight_of(ticket) if state.weight_factors else ticket.weight
    pool.queues.charge(ticket, ticket.cost, weight)
    tier.remove(ticket)
    state.waiting -= 1
    _send(state, pool, tier, ticket, backend, weight)


def _send(  # noqa: PLR0913  # what a dispatch is made of
    state: State, pool: Pool, tier: TierQueue, ticket: Ticket, backend: Backend, weight: float
) -> None:
    """Book everything that a dispatch takes, and say so."""
    now = state.now
    cost, index = ticket.cost, tier.index
    state.attempts += 1
    ticket.attempt = state.attempts
    ticket.stage = _IN_FLIGHT
    ticket.backend = backend.policy.name
    ticket.dispatched_at = now
    ticket.charged = cost
    ticket.charged_weight = weight
    pool.charged += cost
    pool.queues.shares.add(index, cost)
    pool.rates.add(index, cost)
    pool.in_flight += 1
    pool.version += 1
    backend.take(ticket, ticket.ask, now)
    state.out.append(new_dispatch(ticket.id, ticket.backend, ticket.attempt, now - ticket.queued_at))
    if is_sampled(ticket.id):
        decision = Decision(
            "dispatch", backend.valve.in_flight, backend.valve.limit, ticket.place, ticket.expected_wait_s,
            ticket.account, ticket.backend,
        )  # fmt: skip
        state.record(ticket, None, decision)
