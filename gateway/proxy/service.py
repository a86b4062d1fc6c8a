"""Asks the gate for a request, carries out what it says, and sees to it that everything is given back and told once."""

import asyncio

from gateway.clocks import Clocks
from gateway.core.commands import Dispatch, Evict, Refuse
from gateway.core.events import Arrived
from gateway.core.vocabulary import Outcome, ShedReason
from gateway.fallback import HEADER, text_answer
from gateway.faults import CallerError, CallerFault
from gateway.gatekeeper import Gatekeeper, Ticket, Verdict
from gateway.proxy.attempt import Attempts, Next
from gateway.proxy.call import Call
from gateway.proxy.inflight import InFlight
from gateway.proxy.meter import Meter
from gateway.proxy.wire import Targets
from gateway.refusals.answers import Shed, of_caller_error, of_shed
from gateway.refusals.months import next_month
from gateway.tally import Tally
from gateway.upstream import AbortedError, Upstream

CLIENT_CLOSED_STATUS = 499  # in logs and counters only: nobody was there to be answered
_SUPERSEDED = CallerError(
    CallerFault.SUPERSEDED, "A newer request with the same Idempotency-Key has taken over.", "Idempotency-Key"
)


class Proxy:
    """See the package. `serve` once per request."""

    def __init__(
        self, keeper: Gatekeeper, targets: Targets, upstream: Upstream, tally: Tally, clocks: Clocks
    ) -> None:
        self._keeper = keeper
        self._tally = tally
        self._clocks = clocks
        self.meter = Meter(keeper, tally, clocks)
        self.in_flight = InFlight()
        self._attempts = Attempts(upstream, keeper, self.meter, clocks, targets)

    async def serve(self, call: Call) -> None:
        """From the ticket to the last byte. The caller's departure is told by `call.leave()`, at any time.

        Raises:
            CallerError: before anything began, where the idempotency key is in use for another body.
        """
        call.prompt_estimate = call.record.prompt_tokens = self.meter.estimate_prompt(call)
        taken = self.in_flight.enter(call)
        self._tally.arrived(call.record)
        try:
            if not call.has_left:
                call.ticket = taken if taken is not None else self._arrive(call, call.record.request_id)
                await self._run(call)
            if call.is_superseded and not call.reply.is_started:
                await call.reply.whole(of_caller_error(_SUPERSEDED, call.wording))
        finally:
            self._close(call)

    def _arrive(self, call: Call, name: str, avoid: str | None = None) -> Ticket:
        timeout_s = call.hints.timeout_s
        grant = call.grant
        return self._keeper.arrive(
            Arrived(
                ticket=name,
                pool=call.pool.policy.name,
                tier=call.tier,
                tenant=call.record.tenant,
                prompt_tokens=call.prompt_estimate,
                max_output_tokens=_output_bound(call),
                weight=grant.weight if grant is not None else 1.0,
                deadline_at=None if timeout_s is None else call.arrived_at + timeout_s,
                is_retry=call.hints.is_retry,
                avoid=avoid,
                has_quota=grant is not None
                and (
                    grant.requests_per_min is not None
                    or grant.tokens_per_min is not None
                    or grant.concurrency is not None
                    or grant.monthly_tokens is not None
                ),
            ),
            grant.pool if grant is not None else call.pool.policy.name,
        )

    async def _run(self, call: Call) -> None:
        """Verdict after verdict until the request is answered, or nobody is there to be answered."""
        try:
            while call.ticket is not None:
                verdict = await self._keeper.verdict(call.ticket)
                if verdict is None or call.has_left or await self._carried_out(call, verdict):
                    return
        except AbortedError:
            return
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not call.is_cancelled or task is None or task.uncancel() > 0:
                raise

    async def _carried_out(self, call: Call, verdict: Verdict) -> bool:
        """Do what the gate says; False where another verdict follows."""
        if not isinstance(verdict, Dispatch):
            await self._shed(call, verdict)
            return True
        after = await self._attempts.run(call, verdict)
        if after is Next.ELSEWHERE:
            call.ticket = self._arrive(call, f"{call.record.request_id}.2", verdict.backend)
        return after is Next.DONE

    def _close(self, call: Call) -> None:
        """Whatever happened: nothing stays held, and the request is told once."""
        ticket = call.ticket
        if ticket is not None and ticket.is_open:
            self._keeper.leave(ticket, call.tokens_to_charge())
        self.in_flight.leave(call)
        record = call.record
        if not record.outcome:
            self.meter.left(call)
            if not call.reply.is_started:
                record.status = CLIENT_CLOSED_STATUS
        record.total_s = self._clocks.monotonic() - call.arrived_at
        self._tally.ended(record)

    # --- saying no ----------------------------------------------------------------------------------------------

    async def _shed(self, call: Call, verdict: Refuse | Evict) -> None:
        record = call.record
        record.outcome = Outcome.REFUSED if isinstance(verdict, Refuse) else Outcome.EVICTED
        record.reason = verdict.reason.value
        record.decision = verdict.decision
        now = self._clocks.monotonic()
        if record.outcome == Outcome.EVICTED:
            record.wait_s = now - call.arrived_at
        if verdict.reason is ShedReason.BREAKER_OPEN and await self._answered_by_fallback(call):
            return
        retry = verdict.retry_after
        record.retry_after_s = retry.after_s if retry is not None else None
        shed = Shed(
            verdict.reason,
            retry,
            None if retry is None else retry.at - now,
            self._reset_at(call, verdict, now),
        )
        await call.reply.whole(of_shed(shed, call.wording))

    def _reset_at(self, call: Call, verdict: Refuse | Evict, now: float) -> float | None:
        """Epoch seconds at which another try makes sense, None where nobody knows."""
        if verdict.reason is ShedReason.QUOTA_EXHAUSTED:
            return next_month(self._clocks.wall())
        reset_at = call.ticket.reset_at if call.ticket is not None else None
        at = verdict.retry_after.at if verdict.retry_after is not None else reset_at
        return None if at is None else self._clocks.wall() + at - now

    # --- fallback -----------------------------------------------------------------------------------------------

    async def _answered_by_fallback(self, call: Call) -> bool:
        """Answer from the pool's fallback, where it has one for this tier. The outcome of the ticket stays a refusal."""
        spec = call.pool.fallback
        if call.record.fallback or call.tier not in spec.tiers:
            return False
        if spec.pool is not None and spec.pool in call.applied.pools:
            return await self._answered_by_pool(call, spec.pool)
        if spec.text is None:
            return False
        answer = text_answer(call.endpoint.kind, call.ask, spec.text, call.record)
        if answer is None:
            return False
        call.record.fallback = True
        await call.reply.whole(answer)
        return True

    async def _answered_by_pool(self, call: Call, pool: str) -> bool:
        """Ask the other pool; whatever it says is the answer. Its own fallback is not looked at, a grant there is.

        Without one the grant for the main pool counts: a breaker that opens must not lift anybody's quota.
        """
        record, main, grant = call.record, call.pool, call.grant
        outcome, reason, decision = record.outcome, record.reason, record.decision
        call.pool, call.grant = (
            call.applied.pools[pool],
            call.applied.grants.get((record.tenant, pool), grant),
        )
        record.fallback = True
        call.reply.extra = [(HEADER, b"pool")]
        call.ticket = self._arrive(call, f"{record.request_id}.f")
        try:
            await self._run(call)
        finally:
            call.pool, call.grant = main, grant
        if not call.has_left:
            record.outcome, record.reason, record.decision = outcome, reason, decision
        return True


def _output_bound(call: Call) -> int | None:
    """The caller's own bound, never above what the pool's models can say; endpoints without output have none."""
    bound = call.ask.max_output_tokens
    most = call.pool.policy.max_output_tokens
    return bound if bound is None or bound <= most else most
