"""The driver alone: a scripted gate says what is to be done, and time is the test's."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gateway.core.commands import (
    Abort,
    BreakerChanged,
    Command,
    Decision,
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
    DrainStarted,
    Event,
    Failed,
    Finished,
    Progress,
    PushedBack,
    QuotaDenied,
    QuotaGranted,
    Ticked,
)
from gateway.core.vocabulary import BreakerState, Fault, ShedReason
from gateway.gatekeeper import INNER_TICK_S, Gatekeeper

WHY = Decision("rule", 1.0, 2.0, 0, 0.0)


class ScriptedGate:
    """Answers each kind of event with the commands that the test says."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        self.answers: dict[type, Callable[[Any], list[Command]]] = {}

    def handle(self, event: Event, now: float) -> list[Command]:
        self.seen.append(event)
        answer = self.answers.get(type(event))
        return answer(event) if answer is not None else []

    def view(self, now: float) -> None: ...

    def pressure(self, pool: str, tier: int, now: float) -> float:
        return 0.5


class Books:
    """Quotas that keep a list of what they were told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.answer: Any = None

    def reserve(self, ticket: str, tenant: str, pool: str, tokens: int) -> Any:
        self.told.append(("reserve", ticket, tenant, pool, tokens))
        return self.answer

    def settle(self, ticket: str, tokens: int) -> None:
        self.told.append(("settle", ticket, tokens))

    def refund(self, ticket: str) -> None:
        self.told.append(("refund", ticket))


class Time:
    """A clock that stands until it is moved; timers of the loop are recorded instead of run."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.loop = asyncio.get_running_loop()

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Any:
        entry = (self.now + delay_s, call)
        self.timers.append(entry)
        time = self

        class Handle:
            def cancel(self) -> None:
                if entry in time.timers:
                    time.timers.remove(entry)

        return Handle()

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.timers and (due := min(self.timers, key=lambda t: t[0]))[0] <= end:
            self.now = max(self.now, due[0])
            self.timers.remove(due)
            due[1]()
        self.now = end

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)


def arrived(name: str = "a") -> Arrived:
    return Arrived(ticket=name, pool="p", tier=1, tenant="t", prompt_tokens=5)


def made() -> tuple[Gatekeeper, ScriptedGate, Books, Time]:
    gate, books, time = ScriptedGate(), Books(), Time()
    return Gatekeeper(gate, books, loop=time, now=lambda: time.now), gate, books, time  # type: ignore[arg-type]


def dispatching(event: Any) -> list[Command]:
    return [Dispatch(event.ticket, "be1", 1, 0.0)]


async def test_a_verdict_that_is_there_needs_no_wait():
    keeper, gate, _, _ = made()
    gate.answers[Arrived] = dispatching
    verdict = await keeper.verdict(keeper.arrive(arrived()))
    assert verdict == Dispatch("a", "be1", 1, 0.0)
    assert keeper.open_tickets == 1


async def test_a_refused_ticket_is_forgotten_and_its_end_is_not_told_again():
    keeper, gate, _, _ = made()
    gate.answers[Arrived] = lambda e: [Refuse(e.ticket, ShedReason.QUEUE_FULL, None, WHY)]
    ticket = keeper.arrive(arrived())
    assert isinstance(await keeper.verdict(ticket), Refuse)
    keeper.leave(ticket)
    keeper.finished(ticket, 1, 1)
    keeper.failed(ticket, Fault.CONNECTION)
    assert [type(e) for e in gate.seen] == [Arrived]
    assert keeper.open_tickets == 0


async def test_a_waiter_is_woken_by_its_dispatch_or_eviction():
    keeper, gate, _, _ = made()
    first, second = keeper.arrive(arrived("a")), keeper.arrive(arrived("b"))
    waits = [asyncio.create_task(keeper.verdict(t)) for t in (first, second)]
    await asyncio.sleep(0)
    gate.answers[DrainStarted] = lambda _: [
        Evict("b", ShedReason.QUEUE_TIMEOUT, None, WHY),
        Dispatch("a", "be1", 1, 2.0),
    ]
    keeper.feed(DrainStarted())
    one, two = await asyncio.gather(*waits)
    assert isinstance(one, Dispatch)
    assert isinstance(two, Evict)
    assert keeper.is_draining


async def test_quota_answers_are_events_in_order():
    keeper, gate, books, _ = made()
    gate.answers[Arrived] = lambda e: [ReserveQuota(e.ticket, 42)]
    gate.answers[QuotaGranted] = dispatching
    gate.answers[Finished] = lambda e: [SettleQuota(e.ticket, 7)]
    gate.answers[Abandoned] = lambda e: [RefundQuota(e.ticket)]
    books.answer = QuotaGranted("a")
    ticket = keeper.arrive(arrived())
    assert isinstance(ticket.verdict, Dispatch)
    keeper.finished(ticket, 3, 4)
    books.answer = None
    waiting = keeper.arrive(arrived("b"))
    assert waiting.verdict is None
    keeper.feed(QuotaGranted("b"))
    assert isinstance(waiting.verdict, Dispatch)
    keeper.leave(waiting)
    assert books.told == [
        ("reserve", "a", "t", "p", 42),
        ("settle", "a", 7),
        ("reserve", "b", "t", "p", 42),
        ("refund", "b"),
    ]


async def test_when_a_denied_quota_allows_again_is_remembered():
    keeper, gate, books, _ = made()
    gate.answers[Arrived] = lambda e: [ReserveQuota(e.ticket, 1)]
    gate.answers[QuotaDenied] = lambda e: [Refuse(e.ticket, e.reason, None, WHY)]
    books.answer = QuotaDenied("a", ShedReason.TOKEN_LIMITED, 190.0)
    ticket = keeper.arrive(arrived())
    assert isinstance(ticket.verdict, Refuse)
    assert ticket.reset_at == 190.0


async def test_events_caused_by_commands_are_handled_after_all_commands_of_their_cause():
    keeper, gate, books, _ = made()
    order: list[str] = []
    books.answer = QuotaGranted("a")
    gate.answers[Arrived] = lambda e: [
        ReserveQuota(e.ticket, 1),
        BreakerChanged("be1", BreakerState.CLOSED, BreakerState.OPEN, "x"),
    ]
    gate.answers[QuotaGranted] = lambda e: order.append("granted") or []  # type: ignore[func-returns-value]
    keeper.on_breaker = lambda change: order.append(change.why)
    keeper.arrive(arrived())
    assert order == ["x", "granted"]


async def test_tokens_reach_the_gate_once_per_backend_and_pass():
    keeper, gate, _, _ = made()
    gate.answers[Arrived] = lambda e: [Dispatch(e.ticket, "be2" if e.ticket == "c" else "be1", 1, 0.0)]
    a, b, c = (keeper.arrive(arrived(n)) for n in "abc")
    for ticket in (a, b, a, c):
        keeper.progress(ticket, 1)
    assert not [e for e in gate.seen if isinstance(e, Progress)]
    await asyncio.sleep(0)
    assert [e for e in gate.seen if isinstance(e, Progress)] == [
        Progress("be1", (("a", 2), ("b", 1))),
        Progress("be2", (("c", 1),)),
    ]
    await asyncio.sleep(0)
    assert len([e for e in gate.seen if isinstance(e, Progress)]) == 2


async def test_tokens_of_a_late_pass_or_a_slow_reader_are_marked():
    keeper, gate, _, time = made()
    gate.answers[Arrived] = dispatching
    ticket = keeper.arrive(arrived())
    keeper.progress(ticket, 1, lagged=True)
    await asyncio.sleep(0)
    keeper.progress(ticket, 1)
    time.now += 0.05
    await asyncio.sleep(0)
    keeper.progress(ticket, 1)
    await asyncio.sleep(0)
    assert [e.lagged for e in gate.seen if isinstance(e, Progress)] == [True, True, False]


@pytest.mark.parametrize("end", ["finished", "failed", "leave", "pushed_back"])
async def test_tokens_are_told_before_the_end_that_follows_them(end: str):
    keeper, gate, _, _ = made()
    gate.answers[Arrived] = dispatching
    ticket = keeper.arrive(arrived())
    keeper.progress(ticket, 3)
    calls: dict[str, Callable[[], None]] = {
        "finished": lambda: keeper.finished(ticket, 1, 2),
        "failed": lambda: keeper.failed(ticket, Fault.MIDSTREAM, None, 2),
        "leave": lambda: keeper.leave(ticket, 2),
        "pushed_back": lambda: keeper.pushed_back(ticket, 1.0, 503),
    }
    calls[end]()
    kinds = [type(e) for e in gate.seen]
    assert kinds == [
        Arrived,
        Progress,
        {"finished": Finished, "failed": Failed, "leave": Abandoned}.get(end, PushedBack),
    ]
    await asyncio.sleep(0)
    assert len(gate.seen) == 3


async def test_departure_aborts_at_once_and_only_once():
    keeper, gate, _, _ = made()
    gate.answers[Arrived] = dispatching
    gate.answers[Abandoned] = lambda e: [Abort(e.ticket, "be1")]
    aborted: list[str] = []
    ticket = keeper.arrive(arrived())
    ticket.abort = lambda: aborted.append("a")
    keeper.leave(ticket)
    assert aborted == ["a"]
    keeper.leave(ticket)
    assert aborted == ["a"]
    assert [type(e) for e in gate.seen] == [Arrived, Abandoned]
    assert await keeper.verdict(ticket) is not None  # the dispatch that nobody had looked at
    assert await keeper.verdict(ticket) is None


async def test_an_ended_ticket_leaves_no_work_behind_even_if_the_gate_says_nothing():
    keeper, gate, _, _ = made()
    gate.answers[Arrived] = dispatching
    aborted: list[str] = []
    ticket = keeper.arrive(arrived())
    ticket.abort = lambda: aborted.append("a")
    keeper.failed(ticket, Fault.SERVER_ERROR)
    assert aborted == ["a"]


async def test_departure_wakes_who_waits():
    keeper, _, _, _ = made()
    ticket = keeper.arrive(arrived())
    waiting = asyncio.create_task(keeper.verdict(ticket))
    await asyncio.sleep(0)
    keeper.leave(ticket)
    assert await waiting is None


async def test_a_cancelled_waiter_leaves_no_future_behind():
    keeper, _, _, _ = made()
    ticket = keeper.arrive(arrived())
    waiting = asyncio.create_task(keeper.verdict(ticket))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ticket.waiter is None


async def test_a_ticket_is_handed_over_where_it_is():
    keeper, gate, _, _ = made()
    queued = keeper.arrive(arrived())
    older = asyncio.create_task(keeper.verdict(queued))
    await asyncio.sleep(0)
    queued.hand_over()
    newer = asyncio.create_task(keeper.verdict(queued))
    assert await older is None
    gate.answers[DrainStarted] = lambda _: [Dispatch("a", "be1", 1, 0.0)]
    keeper.feed(DrainStarted())
    dispatch = await newer
    assert isinstance(dispatch, Dispatch)
    aborted: list[str] = []
    queued.abort = lambda: aborted.append("older")
    queued.hand_over()
    assert aborted == ["older"]
    assert await keeper.verdict(queued) == dispatch  # the newest sends it again, under the same seat


async def test_one_timer_wakes_the_gate_when_it_asked_and_each_inner_tick_while_it_holds_tickets():
    keeper, gate, _, time = made()
    ticks: list[float] = []
    gate.answers[Ticked] = lambda _: ticks.append(time.now) or []  # type: ignore[func-returns-value]
    gate.answers[DrainStarted] = lambda _: [WakeAt(time.now + 1.0)]
    keeper.feed(DrainStarted())
    time.advance(0.9)
    assert ticks == []  # nothing is held: nothing ticks
    time.advance(0.2)
    assert ticks == [101.0]
    ticket = keeper.arrive(arrived())
    gate.answers[DrainStarted] = lambda _: [WakeAt(time.now + 0.01)]
    keeper.feed(DrainStarted())
    assert len(time.timers) == 1
    time.advance(0.005 + 4 * INNER_TICK_S)
    assert len(ticks) >= 5
    keeper.leave(ticket)
    seen = len(ticks)
    time.advance(5.0)
    assert len(ticks) <= seen + 1
    assert len(time.timers) <= 1
    keeper.close()
    assert not time.timers


async def test_a_later_wish_to_be_woken_replaces_an_earlier_one():
    keeper, gate, _, time = made()
    ticks: list[float] = []
    gate.answers[Ticked] = lambda _: ticks.append(time.now) or []  # type: ignore[func-returns-value]
    at = [101.0, 103.0]
    gate.answers[DrainStarted] = lambda _: [WakeAt(at.pop(0))]
    keeper.feed(DrainStarted())
    keeper.feed(DrainStarted())
    time.advance(2.5)
    assert ticks == []
    time.advance(1.0)
    assert ticks == [103.0]


async def test_pressure_is_the_gates():
    keeper, _, _, _ = made()
    assert keeper.pressure("p", 1) == 0.5
