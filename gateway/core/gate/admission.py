"""Letting in: from the arrival over the quota into the queue; and the end of waiting."""

from gateway.core.commands import Decision, RefundQuota, new_reserve
from gateway.core.events import Arrived, QuotaDenied, QuotaGranted
from gateway.core.gate import shedder
from gateway.core.gate.dispatching import pump, send_at_once
from gateway.core.gate.pool import Pool
from gateway.core.gate.state import State
from gateway.core.policy import WatermarkPolicy
from gateway.core.queues import TierQueue
from gateway.core.shedding import Verdict
from gateway.core.tickets import Stage, Ticket
from gateway.core.valve import new_ask
from gateway.core.vocabulary import BreakerState, ShedReason

# members of an Enum by name: looking one up in its class costs a quarter of a microsecond
_QUOTA = Stage.QUOTA
_WAITING = Stage.WAITING
_CLOSED = BreakerState.CLOSED
_BREAKER_OPEN = ShedReason.BREAKER_OPEN
_DRAINING = ShedReason.DRAINING
_NO_BACKEND = ShedReason.NO_BACKEND
_WATERMARK = ShedReason.WATERMARK


def arrive(state: State, event: Arrived, now: float) -> None:
    """A request came in. A second ticket of the same id, while the first lives, is ignored."""
    if event.ticket in state.tickets:
        return
    ticket = Ticket(event, now)
    pool = state.pools.get(event.pool)
    verdict = _closed(state, pool, now)
    if pool is None or verdict is not None:
        shedder.refuse(state, pool, ticket, verdict or _no(_NO_BACKEND, "unknown-pool"), now)
        return
    output = _predict(state, pool, ticket, event.max_output_tokens)
    tier = pool.queues.tier(ticket.tier)
    verdict = _judge(state, pool, ticket, tier, now)
    if verdict is not None:
        shedder.refuse(state, pool, ticket, verdict, now)
        return
    ticket.ask = new_ask(tier.policy.rank, ticket.prompt_tokens, output)
    ticket.tier = tier.policy.rank
    state.tickets[ticket.id] = ticket
    pool.shedding.limit_wait(ticket)
    if ticket.has_quota:
        state.waiting += 1
        state.expire_at(ticket)
        state.out.append(new_reserve(ticket.id, ticket.prompt_tokens + output))
        return
    _enqueue(state, pool, ticket, now)


def _judge(state: State, pool: Pool, ticket: Ticket, tier: TierQueue, now: float) -> Verdict | None:
    watermark = pool.policy.watermark
    if watermark is not None:
        verdict = _busy(pool, watermark, now)
        if verdict is not None:
            return verdict
    weight = state.weight_of(ticket) if state.weight_factors else ticket.weight
    return pool.shedding.judge(ticket, tier, weight, now)


def granted(state: State, event: QuotaGranted, now: float) -> None:
    """The quota was reserved: judge again, for the queue may have filled. A late grant is given back."""
    ticket = state.tickets.get(event.ticket)
    if ticket is None:
        state.out.append(RefundQuota(event.ticket))
        return
    if ticket.stage is not _QUOTA:
        return
    ticket.stage = _WAITING
    state.waiting -= 1
    pool = state.pools[ticket.pool]
    tier = pool.queues.tier(ticket.tier)
    verdict = _closed(state, pool, now) or _judge(state, pool, ticket, tier, now)
    if verdict is not None:
        shedder.refuse(state, pool, ticket, verdict, now)
        return
    _enqueue(state, pool, ticket, now)


def denied(state: State, event: QuotaDenied, now: float) -> None:
    """The quota said no."""
    ticket = state.tickets.get(event.ticket)
    if ticket is not None and ticket.stage is _QUOTA:
        shedder.deny(state, ticket, event, now)


def expire(state: State, now: float) -> None:
    """End the waiting of all whose time is over."""
    pools: dict[str, Pool] = {}
    while (ticket := state.pop_expired(now)) is not None:
        pool = pools[ticket.pool] = state.pools[ticket.pool]
        verdict = pool.shedding.late(ticket, now)
        if ticket.stage is _WAITING:
            shedder.evict(state, pool, ticket, verdict, now)
        else:
            state.waiting -= 1
            shedder.refuse(state, pool, ticket, verdict, now)
    for pool in pools.values():
        pump(state, pool, now)


def _enqueue(state: State, pool: Pool, ticket: Ticket, now: float) -> None:
    """Let a ticket wait, or go at once where nobody does."""
    ticket.queued_at = now
    tier = pool.queues.tier(ticket.tier)
    if not tier.waiting and pool.queues.is_empty and send_at_once(state, pool, tier, ticket):
        return
    weight = state.weight_of(ticket) if state.weight_factors else ticket.weight
    displaced = pool.shedding.displaced(tier)
    if displaced is not None:  # what `judge` expected of the wait holds no longer
        shedder.evict(state, pool, *displaced, now)
        ticket.expected_wait_s = pool.shedding.expected_wait_s(tier, ticket.tenant, weight)
    ticket.stage = _WAITING
    state.waiting += 1
    state.expire_at(ticket)
    ticket.place = tier.waiting
    pool.queues.push(ticket, weight)
    if tier.first() is ticket:
        pump(state, pool, now)


def _predict(state: State, pool: Pool, ticket: Ticket, bound: int | None) -> int:
    """The output that is expected, and what the whole costs then."""
    policy = pool.policy
    output = state.predictor.predict(ticket.tenant, policy.name)
    if bound is None:
        bound = policy.max_output_tokens
    if output > bound:
        output = bound if bound > 0 else 0
    ticket.cost = int(ticket.prompt_tokens + policy.output_cost * output) or 1
    return output


def _closed(state: State, pool: Pool | None, now: float) -> Verdict | None:
    """Whether nothing is let in at all."""
    if state.draining:
        return _no(_DRAINING, "drain")
    if pool is None or pool.is_removed:
        return _no(_NO_BACKEND, "unknown-pool")
    if pool.in_fallback:
        return _no(_BREAKER_OPEN, "pool-fallback")
    is_broken = False
    for backend in pool.backends:
        if backend.is_configured:
            if backend.breaker.state is _CLOSED or not backend.is_open(now):
                return None
            is_broken = True
    return _no(_BREAKER_OPEN, "all-breakers-open") if is_broken else _no(_NO_BACKEND, "no-backend")


def _busy(pool: Pool, watermark: WatermarkPolicy, now: float) -> Verdict | None:
    """The engine watermark's bound on everything that waits, here and in the engines."""
    total = pool.waiting + sum(backend.engine_waiting(now) for backend in pool.backends)
    if total <= watermark.maximum:
        return None
    return Verdict(_WATERMARK, Decision("watermark", total, watermark.maximum, pool.waiting, 0.0))


def _no(reason: ShedReason, rule: str) -> Verdict:
    return Verdict(reason, Decision(rule, 0.0, 0.0, 0, 0.0), is_load=False)
