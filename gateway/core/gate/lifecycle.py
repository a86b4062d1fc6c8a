"""What is in flight: tokens, ends, and giving everything back exactly once."""

from gateway.core.backoff import ABANDONED_CREDIT, FAILED_CREDIT
from gateway.core.commands import Abort, BreakerChanged, Decision, RefundQuota, SettleQuota, new_settle
from gateway.core.events import Abandoned, Failed, Finished, Progress, PushedBack
from gateway.core.gate import shedder
from gateway.core.gate.dispatching import pump
from gateway.core.gate.pool import Pool
from gateway.core.gate.state import State
from gateway.core.routing import Backend
from gateway.core.shedding import Verdict
from gateway.core.tickets import Stage, Ticket
from gateway.core.vocabulary import Fault, ShedReason

# members of an Enum by name: looking one up in its class costs a quarter of a microsecond
_IN_FLIGHT = Stage.IN_FLIGHT
_WAITING = Stage.WAITING
_CALLER_ERROR = Fault.CALLER_ERROR
_ENGINE_BUSY = ShedReason.ENGINE_BUSY


def progress(state: State, event: Progress, now: float) -> None:
    """LLM tokens arrived. Entries of tickets that are not in flight at this backend are ignored."""
    backend = state.backends.get(event.backend)
    if backend is None:
        return
    name = event.backend
    tickets = state.tickets
    samples: list[tuple[int, int]] = []
    for ticket_id, count in event.tokens:
        ticket = tickets.get(ticket_id)
        if ticket is None or ticket.backend != name:
            continue
        if not ticket.generated:
            _answered(state, backend, ticket, now)
        ticket.generated += count
        samples.append((ticket.attempt, count))
    if not samples:
        return
    backend.valve.progress(samples, now, lagged=event.lagged)
    _freed(state, backend, now)


def finished(state: State, event: Finished, now: float) -> None:
    """Answered in full: settle by real usage, learn from it."""
    ticket = _in_flight(state, event.ticket)
    if ticket is None:
        return
    prompt = ticket.prompt_tokens if event.prompt_tokens is None else event.prompt_tokens
    output = ticket.generated if event.output_tokens is None else event.output_tokens
    backend = state.backends[ticket.backend]
    state.predictor.learn(ticket.tenant, ticket.pool, ticket.ask.output_tokens, output)
    _end(state, backend, ticket, (prompt, output), now)
    backend.breaker.succeeded(ticket.attempt, now)
    if backend.breaker.state is not backend.reported:
        report(state, backend, "answered in full")
    if ticket.has_quota:
        state.out.append(new_settle(ticket.id, prompt + output))
    _freed(state, backend, now)


def failed(state: State, event: Failed, now: float) -> None:
    """Failed at the backend: what the engine really did is charged; without a token it costs nothing."""
    ticket = _in_flight(state, event.ticket)
    if ticket is None:
        return
    prompt, output = _used(ticket, event.prompt_tokens, event.output_tokens)
    backend = state.backends[ticket.backend]
    _end(state, backend, ticket, (prompt, output), now)
    backend.breaker.failed(ticket.attempt, event.fault, now)
    report(state, backend, event.fault.value)
    if event.fault is not _CALLER_ERROR:
        _grant(state, ticket, FAILED_CREDIT, now)
    if ticket.has_quota:
        is_free = event.fault is not _CALLER_ERROR and not output
        state.out.append(RefundQuota(ticket.id) if is_free else SettleQuota(ticket.id, prompt + output))
    _freed(state, backend, now)


def pushed_back(state: State, event: PushedBack, now: float) -> None:
    """The engine said "busy": back to the head of the queue once, then `engine_busy`; the backend rests."""
    ticket = _in_flight(state, event.ticket)
    if ticket is None:
        return
    backend = state.backends[ticket.backend]
    pool = state.pools[ticket.pool]
    _return(pool, backend, ticket, now)
    backend.breaker.neutral(ticket.attempt, now, status=event.status)
    report(state, backend, f"status {event.status}")
    backend.pause(event.retry_after_s, now)
    state.alarm(backend.paused_until)
    if ticket.was_pushed_back or pool.is_removed:
        rest = backend.paused_until - now
        place = pool.queues.tier(ticket.tier).waiting
        decision = Decision("pushed-back-twice", 2.0, 1.0, place, rest, None, backend.policy.name)
        shedder.turn_away(state, pool, ticket, Verdict(_ENGINE_BUSY, decision), now)
    else:
        ticket.was_pushed_back = True
        _wait_again(state, pool, ticket)
    pump(state, pool, now)


def abandoned(state: State, event: Abandoned, now: float) -> None:
    """The caller left, wherever its ticket was."""
    ticket = state.tickets.get(event.ticket)
    if ticket is None:
        return
    match ticket.stage:
        case Stage.IN_FLIGHT:
            _abandon_in_flight(state, ticket, event, now)
        case Stage.WAITING:
            pool = state.pools[ticket.pool]
            pool.queues.tier(ticket.tier).remove(ticket)
            state.waiting -= 1
            del state.tickets[ticket.id]
            if ticket.has_quota:
                state.out.append(RefundQuota(ticket.id))
            pump(state, pool, now)
        case Stage.QUOTA:  # pragma: no branch  # exhaustive; `granted` gives back the reservation to come
            state.waiting -= 1
            del state.tickets[ticket.id]


def _abandon_in_flight(state: State, ticket: Ticket, event: Abandoned, now: float) -> None:
    prompt, output = _used(ticket, None, event.output_tokens)
    if not output:
        prompt = _computed(state, ticket, now)
    backend = state.backends[ticket.backend]
    state.out.append(Abort(ticket.id, ticket.backend))
    _end(state, backend, ticket, (prompt, output), now)
    backend.breaker.neutral(ticket.attempt, now)
    _grant(state, ticket, ABANDONED_CREDIT, now)
    if ticket.has_quota:
        state.out.append(SettleQuota(ticket.id, prompt + output))
    _freed(state, backend, now)


def report(state: State, backend: Backend, why: str) -> None:
    """Report a flip of a breaker, and look again when it lets something through."""
    before, after = backend.reported, backend.breaker.state
    if after is before:
        return
    backend.reported = after
    backend.young_until = max(backend.young_until, state.now + backend.pool.breaker.ramp_s)
    state.out.append(BreakerChanged(backend.policy.name, before, after, why))
    if backend.breaker.until is not None:
        state.alarm(backend.breaker.until)


def _in_flight(state: State, ticket_id: str) -> Ticket | None:
    ticket = state.tickets.get(ticket_id)
    return ticket if ticket is not None and ticket.stage is _IN_FLIGHT else None


def _answered(state: State, backend: Backend, ticket: Ticket, now: float) -> None:
    """First token: the prompt is computed, and the backend is alive."""
    shedding = state.pools[ticket.pool].shedding
    shedding.see_ttft(now - ticket.dispatched_at)
    backend.breaker.answered(ticket.attempt, now)
    if backend.breaker.state is not backend.reported:
        report(state, backend, "probe answered")


def _used(ticket: Ticket, prompt: int | None, output: int | None) -> tuple[int, int]:
    """What an unfinished answer really cost."""
    if output is None:
        output = ticket.generated
    if prompt is None:
        prompt = ticket.prompt_tokens if output else 0
    return prompt, output


def _computed(state: State, ticket: Ticket, now: float) -> int:
    """How much of its prompt an engine has computed for a ticket whose first token has not come: by the time it had.

    Were this nothing, callers that always leave just before the first token would have the engine for themselves.
    """
    spent_s, usual_s = now - ticket.dispatched_at, state.pools[ticket.pool].shedding.ttft_s
    if spent_s <= 0.0:
        return 0
    return (
        round(ticket.prompt_tokens * min(1.0, spent_s / usual_s)) if usual_s > 0.0 else ticket.prompt_tokens
    )


def _end(state: State, backend: Backend, ticket: Ticket, used: tuple[int, int], now: float) -> None:
    """Give back the seat and the tokens, and settle the charge by what was really used."""
    del state.tickets[ticket.id]
    pool = state.pools[ticket.pool]
    _release(pool, backend, ticket, now)
    cost = round(used[0] + pool.policy.output_cost * used[1])
    pool.queues.charge(ticket, cost - ticket.charged, ticket.charged_weight)
    pool.charged -= ticket.charged
    ticket.charged = 0


def _return(pool: Pool, backend: Backend, ticket: Ticket, now: float) -> None:
    """Undo a dispatch that the engine did not take: it never cost anything."""
    _release(pool, backend, ticket, now)
    tier = pool.queues.tier(ticket.tier)
    pool.queues.charge(ticket, -ticket.charged, ticket.charged_weight)
    pool.queues.shares.add(tier.index, -ticket.charged)
    pool.rates.add(tier.index, -ticket.charged)
    pool.charged -= ticket.charged
    ticket.charged = 0


def _release(pool: Pool, backend: Backend, ticket: Ticket, now: float) -> None:
    pool.in_flight -= 1
    pool.version += 1
    backend.give_back(ticket, now)


def _wait_again(state: State, pool: Pool, ticket: Ticket) -> None:
    ticket.stage = _WAITING
    ticket.backend = ""
    pool.queues.push(ticket, state.weight_of(ticket), front=True)
    state.waiting += 1
    state.expire_at(ticket)


def _grant(state: State, ticket: Ticket, amount: float, now: float) -> None:
    state.pools[ticket.pool].shedding.credits.grant(ticket.tenant, ticket.tier, amount, now)


def _freed(state: State, backend: Backend, now: float) -> None:
    if backend.is_removed and not backend.seats.taken:
        del state.backends[backend.policy.name]
    pool = state.pools.get(backend.pool.name)
    if pool is None:
        return
    pool.version += 1
    pool.freed += 1
    backend.freed = pool.freed
    if now >= pool.rates.period_ends:
        pool.roll(now)
    pump(state, pool, now)
