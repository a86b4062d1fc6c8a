"""The state machine: takes each event to the module that knows it, and keeps time."""

import math
from collections.abc import Callable
from heapq import heappop

from gateway.core.commands import Command, new_wake
from gateway.core.events import (
    Abandoned,
    Arrived,
    BoundsReceived,
    Configured,
    DrainStarted,
    Event,
    Failed,
    Finished,
    OverridesReceived,
    Progress,
    PushedBack,
    QuotaDenied,
    QuotaGranted,
    Ticked,
)
from gateway.core.gate import admission, configuration, lifecycle, overview
from gateway.core.gate.dispatching import pump_all
from gateway.core.gate.lifecycle import report
from gateway.core.gate.state import TICK_S, State
from gateway.core.gauges import GateView
from gateway.core.policy import GatePolicy
from gateway.core.recorder import Recorder

EARLY_S = 0.01  # a tick that comes so much early is taken as the tick


class Gate:
    """Queues, valves and breakers of all pools of one gateway process."""

    __slots__ = ("_state", "recorder")

    def __init__(
        self,
        policy: GatePolicy,
        *,
        now: float,
        dice: Callable[[], float],
        recorder: Recorder | None = None,
    ) -> None:
        """Start empty. `dice` returns uniform numbers in [0, 1): the same dice and events give the same commands.

        Raises:
            ValueError: where the policy has problems, naming the fields.
        """
        configuration.refuse_bad(policy)
        self.recorder = Recorder() if recorder is None else recorder
        self._state = State(policy, dice, self.recorder, now)
        configuration.configure(self._state, policy, now, is_start=True)

    def __repr__(self) -> str:
        state = self._state
        return f"<Gate tickets={len(state.tickets)} waiting={state.waiting} pools={list(state.pools)}>"

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take what happened at `now` (seconds, never backwards); return what is to be done, in order.

        Raises:
            ValueError: for `Configured` with a policy that has problems; nothing has changed then.
        """
        state = self._state
        if now < state.now:
            now = state.now
        state.now = now
        out: list[Command] = []
        state.out = out
        # what time alone does comes first: overrides that run out, waiting that ends
        if now >= state.override_ends:
            configuration.expire_overrides(state, now)
        if state.expiries and state.expiries[0][0] <= now:
            admission.expire(state, now)
        self._take(state, event, now)
        self._set_alarm(state, now)
        return out

    def view(self, now: float) -> GateView:
        """What waits, what is carried and what binds, without changing anything."""
        return overview.view(self._state, max(now, self._state.now))

    def pressure(self, pool: str, tier: int, now: float) -> float:
        """How near this (pool, tier) is to shedding, 0..1: told to callers in `x-sluicegate-pressure`."""
        known = self._state.pools.get(pool)
        if known is None or self._state.draining or known.in_fallback:
            return 1.0
        return known.pressure(known.queues.tier(tier), max(now, self._state.now))

    def _take(self, state: State, event: Event, now: float) -> None:  # noqa: C901, PLR0912, PLR0915  # a case per event
        match event:
            case Progress():
                lifecycle.progress(state, event, now)
            case Arrived():
                admission.arrive(state, event, now)
            case Finished():
                lifecycle.finished(state, event, now)
            case QuotaGranted():
                admission.granted(state, event, now)
            case QuotaDenied():
                admission.denied(state, event, now)
            case Abandoned():
                lifecycle.abandoned(state, event, now)
            case Failed():
                lifecycle.failed(state, event, now)
            case PushedBack():
                lifecycle.pushed_back(state, event, now)
            case Ticked():
                self._tick(now)
            case BoundsReceived():
                configuration.bound(state, event, now)
            case OverridesReceived():
                configuration.override(state, event, now)
            case Configured():
                configuration.configure(state, event.policy, now)
            case DrainStarted():  # pragma: no branch  # exhaustive
                state.draining = True

    def _tick(self, now: float) -> None:
        state = self._state
        while state.alarms and state.alarms[0] <= now:
            heappop(state.alarms)
        if now >= state.next_tick - EARLY_S:
            state.next_tick = now + TICK_S
            for backend in state.backends.values():
                backend.breaker.tick(now)
                report(state, backend, "time")
                backend.valve.tick(now)
        for pool in state.pools.values():
            pool.version += 1
            pool.roll(now)
        pump_all(state, now)

    @staticmethod
    def _set_alarm(state: State, now: float) -> None:
        """Ask to be woken: at the next tick while there is a ticket, and when something becomes possible."""
        due, wake_at = math.inf, state.wake_at
        if state.tickets:
            due = state.next_tick if state.next_tick > now else now + TICK_S
        if (
            now < wake_at <= due
            and (not state.expiries or state.expiries[0][0] >= wake_at)
            and (not state.alarms or state.alarms[0] >= wake_at)
        ):
            return  # as nearly always: nothing is due before the instant that was asked for
        if state.expiries:
            due = min(
                due, max(state.next_expiry(), now)
            )  # a ticket pushed back late may have expired in flight
        if state.alarms:
            due = min(due, max(state.alarms[0], now))
        if due < wake_at or (wake_at <= now and due < math.inf):
            state.wake_at = due
            state.out.append(new_wake(due))
