"""One dispatch of a request: open the exchange, judge the head of its answer, see its body through.

Judgement, in the words of the gate:
    200 to 203                answered
    429, 503                  pushed back: the engine is alive and busy; the ticket goes back to its queue
    401, 403, 407             the backend's fault: it does not accept *our* credential; its words stay here
    other 4xx                 the caller's error, passed on as it came; neutral for the breaker
    everything else           the backend's fault, 502; time-outs 504
An error event before any output is judged by the status that it names.
"""

import asyncio
import re
from collections.abc import Sequence
from enum import Enum

from gateway.clocks import Clocks
from gateway.core.commands import Dispatch
from gateway.core.vocabulary import Fault
from gateway.faults import CallerError
from gateway.gatekeeper import Gatekeeper
from gateway.proxy.call import Call
from gateway.proxy.meter import Meter
from gateway.proxy.relay import EngineError, Relay
from gateway.proxy.whole import Builder, read
from gateway.proxy.wire import Targets, answer_headers, request_headers
from gateway.refusals.answers import JSON, Answer, of_caller_error, of_fault
from gateway.requests.body import rebuild
from gateway.upstream import Exchange, ProtocolError, Target, Upstream, UpstreamError

_ANSWERED = frozenset(
    {200, 201, 202, 203}
)  # 204 and 205 have no body, 206 a part of one: not what was asked for
_BUSY = frozenset({429, 503})
_OUR_CREDENTIAL = frozenset({401, 403, 407})
_REFUSAL_BYTES = 256 * 1024
_match_seconds = re.compile(rb"\s*([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*").fullmatch
RETRY_SHARE = 0.1
RETRY_BURST = 3.0


class Next(Enum):
    """What follows an attempt."""

    DONE = "done"  # the caller has its answer
    AGAIN = "again"  # pushed back: wait for another verdict
    ELSEWHERE = "elsewhere"  # never sent: may be tried once on another backend


class RetryBudget:
    """At most one repeated dispatch for ten ordinary ones, with a burst of three."""

    __slots__ = ("_credit",)

    def __init__(self) -> None:
        self._credit = RETRY_BURST

    def earn(self) -> None:
        """A first attempt was made."""
        self._credit = min(RETRY_BURST, self._credit + RETRY_SHARE)

    def spend(self) -> bool:
        """Take one repetition; False where there is none left."""
        if self._credit < 1:
            return False
        self._credit -= 1
        return True


class Attempts:
    """Makes attempts."""

    def __init__(
        self, upstream: Upstream, keeper: Gatekeeper, meter: Meter, clocks: Clocks, targets: Targets
    ) -> None:
        self._upstream = upstream
        self._targets = targets
        self._keeper = keeper
        self._meter = meter
        self._clocks = clocks
        self._budget = RetryBudget()

    async def run(self, call: Call, dispatch: Dispatch) -> Next:
        """Send the request to the backend that the gate chose, and pass on what it answers.

        Raises:
            AbortedError: this side aborted, because the caller left or another request took over.
        """
        self._meter.dispatched(call, dispatch.backend, dispatch.waited_s)
        if call.record.attempts == 1:
            self._budget.earn()
        target = self._targets.find(call.pool, dispatch.backend)
        if target is None:
            return await self._fault(call, Fault.CONNECTION)
        try:
            exchange = await self._open(call, target)
        except UpstreamError as error:
            return await self._not_opened(call, error)
        except CallerError as error:
            return await self._refused(call, of_caller_error(error, call.wording))
        return await self._passed_on(call, exchange)

    async def _passed_on(self, call: Call, exchange: Exchange) -> Next:
        try:
            return await self._answer(call, exchange)
        except EngineError as error:
            return await self._judge_event(call, error)
        except UpstreamError as error:
            call.record.error = str(error)
            return await self._fault(call, error.fault)
        finally:
            exchange.abort()  # changes nothing after the end

    async def _open(self, call: Call, target: Target) -> Exchange:
        body = rebuild(call.endpoint, call.ask, call.body, call.pool.models[0])
        ticket = call.ticket
        if ticket is None:
            raise asyncio.CancelledError
        call.opener = asyncio.current_task()
        ticket.abort = call.cancel_opening
        try:
            exchange = await self._upstream.open(
                target, "POST", call.endpoint.path, request_headers(call), body
            )
        finally:
            call.opener = None
            ticket.abort = None
        ticket.abort = exchange.abort
        return exchange

    async def _not_opened(self, call: Call, error: UpstreamError) -> Next:
        call.record.error = str(error)
        first = call.record.attempts == 1
        may = not error.request_sent and first and _has_another(call) and self._budget.spend()
        if not may:
            return await self._fault(call, error.fault)
        if call.ticket is not None:
            self._keeper.failed(call.ticket, error.fault)
        return Next.ELSEWHERE

    async def _answer(self, call: Call, exchange: Exchange) -> Next:
        status = exchange.status
        if status in _ANSWERED:
            await self._pass_on(call, exchange)
            return Next.DONE
        if status in _BUSY:
            return await self._pushed_back(call, exchange)
        if 400 <= status < 500 and status not in _OUR_CREDENTIAL:
            body = await exchange.read_all(_REFUSAL_BYTES)
            return await self._refused(call, Answer(status, answer_headers(exchange.headers), body))
        return await self._fault(call, Fault.SERVER_ERROR)

    async def _pass_on(self, call: Call, exchange: Exchange) -> None:
        if not _is_events(exchange.headers):
            if not _is_json(exchange.headers):  # say, a page of something else that listens there
                raise ProtocolError("the backend's answer is neither JSON nor events")
            body = await read(call, exchange)
            headers = answer_headers(exchange.headers)
        elif call.ask.stream:
            await Relay(call, exchange, self._meter, self._clocks.monotonic).run()
            return
        else:
            body = await Builder(call, self._meter).build(exchange)
            headers = [JSON]
        self._meter.ended(call, None)
        await call.reply.whole(Answer(exchange.status, headers, body))

    async def _pushed_back(self, call: Call, exchange: Exchange) -> Next:
        retry_after_s = _retry_after(exchange.headers)
        if call.ticket is not None:
            self._keeper.pushed_back(call.ticket, retry_after_s, exchange.status)
        return Next.AGAIN

    async def _judge_event(self, call: Call, error: EngineError) -> Next:
        code = error.event.code or 500
        if code in _BUSY and call.ticket is not None:
            self._keeper.pushed_back(call.ticket, None, code)
            return Next.AGAIN
        if 400 <= code < 500 and code not in _OUR_CREDENTIAL:
            return await self._refused(call, Answer(code, [JSON], error.event.payload))
        return await self._fault(call, Fault.SERVER_ERROR)

    async def _refused(self, call: Call, answer: Answer) -> Next:
        """The caller's error, as the engine or we say it."""
        self._meter.ended(call, Fault.CALLER_ERROR)
        await call.reply.whole(answer)
        return Next.DONE

    async def _fault(self, call: Call, fault: Fault) -> Next:
        self._meter.ended(call, fault)
        if not call.has_left:
            await call.reply.whole(of_fault(fault, call.wording))
        return Next.DONE


def _has_another(call: Call) -> bool:
    pool = call.pool.policy.name
    return sum(b.policy.pool == pool and b.policy.enabled for b in call.applied.backends.values()) > 1


def _is_events(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    return any(n == b"content-type" and v.startswith(b"text/event-stream") for n, v in headers)


def _is_json(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """True also where nothing is said: then nothing says otherwise."""
    kinds = [v.partition(b";")[0].strip().lower() for n, v in headers if n == b"content-type"]
    return all(kind == b"application/json" or kind.endswith(b"+json") for kind in kinds)


def _retry_after(headers: Sequence[tuple[bytes, bytes]]) -> float | None:
    """Seconds of a Retry-After; a date or nonsense counts as none."""
    for name, value in headers:
        if name == b"retry-after":
            match = _match_seconds(value)
            return float(match[1]) if match else None
    return None
