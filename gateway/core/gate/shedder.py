"""Saying no: refusals and evictions, with their pacing, refund and record."""

from gateway.core.backoff import exact_retry_after
from gateway.core.commands import (
    Decision,
    RefundQuota,
    RetryAfter,
    new_evict,
    new_refuse,
)
from gateway.core.events import QuotaDenied
from gateway.core.gate.pool import Pool
from gateway.core.gate.state import State
from gateway.core.shedding import Verdict, spread
from gateway.core.tickets import Stage, Ticket
from gateway.core.vocabulary import ShedReason

ELSEWHERE_S = 2  # draining: another gateway takes over at once
UNKNOWN_CAP_S = 60

# members of an Enum by name: looking one up in its class costs a quarter of a microsecond
_QUOTA = Stage.QUOTA
_DRAINING = ShedReason.DRAINING


def refuse(state: State, pool: Pool | None, ticket: Ticket, verdict: Verdict, now: float) -> None:
    """No, before queueing. Whatever was reserved is given back."""
    retry = _retry_after(state, pool, ticket, verdict, now)
    if ticket.has_quota:  # without, it has not been let in yet: there is nothing to forget
        _forget(state, ticket)
    reason, decision = verdict.reason, verdict.decision
    state.out.append(new_refuse(ticket.id, reason, retry, decision))
    state.record(ticket, reason, decision)


def deny(state: State, ticket: Ticket, event: QuotaDenied, now: float) -> None:
    """No, because a quota said so: nothing was reserved, and the instant of the refill is exact."""
    left = 0.0 if event.retry_at is None else event.retry_at - now
    decision = Decision("quota", left, 0.0, 0, 0.0)
    retry = exact_retry_after(event.retry_at, now)
    state.waiting -= 1
    del state.tickets[ticket.id]
    state.out.append(new_refuse(ticket.id, event.reason, retry, decision))
    state.record(ticket, event.reason, decision)


def evict(state: State, pool: Pool, ticket: Ticket, verdict: Verdict, now: float) -> None:
    """No, after queueing: removed from the queue, refunded."""
    retry = _retry_after(state, pool, ticket, verdict, now)
    pool.queues.tier(ticket.tier).remove(ticket)
    _forget(state, ticket)
    state.waiting -= 1
    state.out.append(new_evict(ticket.id, verdict.reason, retry, verdict.decision))
    state.record(ticket, verdict.reason, verdict.decision)


def turn_away(state: State, pool: Pool, ticket: Ticket, verdict: Verdict, now: float) -> None:
    """No, after a dispatch that the engine pushed back: it holds nothing any more."""
    retry = _retry_after(state, pool, ticket, verdict, now)
    _forget(state, ticket)
    state.out.append(new_evict(ticket.id, verdict.reason, retry, verdict.decision))
    state.record(ticket, verdict.reason, verdict.decision)


def _forget(state: State, ticket: Ticket) -> None:
    state.tickets.pop(ticket.id, None)
    if ticket.has_quota and ticket.stage is not _QUOTA:
        state.out.append(RefundQuota(ticket.id))


def _retry_after(
    state: State, pool: Pool | None, ticket: Ticket, verdict: Verdict, now: float
) -> RetryAfter | None:
    roll = state.dice()
    if pool is None:
        return spread(UNKNOWN_CAP_S, now, roll)
    if verdict.is_load:
        return pool.shedding.come_back(ticket, verdict, now, roll)
    if verdict.reason is _DRAINING:
        return spread(ELSEWHERE_S, now, roll)
    return spread(pool.queues.tier(ticket.tier).policy.queue.retry_after_max_s, now, roll)
