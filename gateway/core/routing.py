"""Which backend takes a ticket: the least burdened one that can, of those that may be used at all.

A backend is skipped while it is disabled, drained, removed, paused (it said "busy"), held by the engine watermark, or
its breaker does not allow it. Of the rest the smallest `(burden + BASE) / effective weight` wins; `BASE` lets weights
count between idle backends. Ties go to the one that was used longest ago.

**Slow start.** A new or recovered backend has cold caches: its effective weight ramps from .1 to 1, and so does the
number of seats that it may fill (at least one).

**Cold start.** A backend that stood idle knows nothing about the load to come. For the first second after that the
lowest tier may fill a quarter of its seats (at least 2), all of them 4 s later: a step from nothing to ten times the
load must not fill every seat with long batch work.

**Engine watermark** (optional; off where the token valve runs): an engine that queues more than `safe` requests gets
nothing more for a jittered moment. Between scrapes its queue is taken to grow with what was sent since; gauges older
than 3 s are absent, and what this gateway has in flight beyond the last known running ones counts instead.
"""

import math
from collections.abc import Iterable

from gateway.core.breakers import Breaker
from gateway.core.events import BackendBounds
from gateway.core.policy import BackendPolicy, PoolPolicy
from gateway.core.seats import Seats
from gateway.core.tickets import Ticket
from gateway.core.valve import Ask, Valve
from gateway.core.vocabulary import Account, BreakerState

BASE = 0.05
RAMP_START = 0.1
COLD_RATIO = 0.25
COLD_SEATS = 2
COLD_HOLD_S = 1.0
COLD_END_S = 4.0
IDLE_S = 1.0
STALE_S = 3.0
PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0

# members of an Enum by name: looking one up in its class costs a quarter of a microsecond
_CLOSED = BreakerState.CLOSED
_SEQUENCES = Account.SEQUENCES


class Backend:
    """One backend as the gate sees it: its valve, its breaker, and what keeps it from being used."""

    __slots__ = (
        "bounds",
        "bounds_at",
        "breaker",
        "cold_since",
        "demand_cost",
        "freed",
        "held_until",
        "idle_since",
        "in_flight_at_bounds",
        "is_configured",
        "is_disabled",
        "is_drained",
        "is_removed",
        "last_used",
        "paused_until",
        "policy",
        "pool",
        "ramp_from",
        "reported",
        "seats",
        "valve",
        "young_until",
    )

    def __init__(self, policy: BackendPolicy, pool: PoolPolicy, valve: Valve, now: float) -> None:
        """Start idle, with a closed breaker."""
        self.policy = policy
        self.pool = pool
        self.valve = valve
        self.breaker = Breaker(pool.breaker, now)
        self.reported = self.breaker.state
        self.seats = Seats()
        self.paused_until = now
        self.held_until = now
        self.ramp_from: float | None = None
        self.idle_since = now - IDLE_S
        self.cold_since = now
        self.is_disabled = False  # by override
        self.is_drained = False  # by override
        self.is_removed = False
        self.is_configured = False
        self.young_until = now + COLD_END_S  # slow and cold start are over
        self.settle()
        self.last_used = 0
        self.demand_cost = 0
        self.freed = 0  # the count of its pool when it last freed something
        self.bounds: BackendBounds | None = None
        self.bounds_at = now
        self.in_flight_at_bounds = 0

    def __repr__(self) -> str:
        return (
            f"<Backend {self.policy.name} in_flight={self.valve.in_flight} limit={self.valve.limit:.1f}"
            f" {self.breaker.state.value}>"
        )

    def settle(self) -> None:
        """Work out whether policy and overrides let it be used at all: `is_configured`."""
        policy = self.policy
        self.is_configured = policy.enabled and not policy.drained
        if self.is_disabled or self.is_drained or self.is_removed:
            self.is_configured = False

    def is_open(self, now: float) -> bool:
        """Whether its breaker lets nothing through, not even a probe: nobody queues behind the probes of others."""
        breaker = self.breaker
        if breaker.state is _CLOSED:
            return False
        match breaker.state:
            case BreakerState.FORCED_OPEN:
                return True
            case BreakerState.OPEN:
                return breaker.until is None or now < breaker.until
            case BreakerState.HALF_OPEN:
                return not breaker.has_place(now)
            case _:
                return False

    def is_usable(self, now: float) -> bool:
        """Whether it may be given a ticket now, as far as anything but its valve is concerned."""
        if self.is_configured and now >= self.paused_until and now >= self.held_until:
            breaker = self.breaker
            return (breaker.state is _CLOSED and not breaker.not_ready) or breaker.allows(now)
        return False

    def fits(self, ask: Ask, longest_context: int) -> bool:
        """Whether its context holds the prompt. What fits nowhere goes anywhere: the engine's error says it best."""
        context = self.policy.context_tokens
        return context is None or ask.prompt_tokens < context or ask.prompt_tokens >= longest_context > 0

    def start_slowly(self, now: float) -> None:
        """It is new, or was out of use: its caches are cold."""
        self.ramp_from = now
        self.young_until = max(self.young_until, now + self.pool.breaker.ramp_s)

    def ramp(self, now: float) -> float:
        """Part of its usual load that a new or recovered backend may have, 0..1."""
        ramp = self.breaker.ramp(now)
        if self.ramp_from is not None:
            length = self.pool.breaker.ramp_s
            part = (now - self.ramp_from) / length if length > 0.0 else 1.0
            if part >= 1.0:
                self.ramp_from = None
            else:
                ramp = min(ramp, max(RAMP_START, part))
        return ramp

    def new_breaker(self, now: float) -> None:
        """Start its breaker anew with the constants of the pool; one that does not let through stays as it is."""
        if self.breaker.state is _CLOSED:
            self.breaker = Breaker(self.pool.breaker, now)

    def pause(self, retry_after_s: float | None, now: float) -> None:
        """The engine said "busy": leave it alone for as long as it asks, within 30 s."""
        wanted = PAUSE_S if retry_after_s is None or not retry_after_s >= 0 else retry_after_s
        self.paused_until = max(self.paused_until, now + min(wanted, LONGEST_PAUSE_S))

    def take(self, ticket: Ticket, ask: Ask, now: float) -> None:
        """Carry a ticket: seat, tokens, probe."""
        if not self.seats.taken and now - self.idle_since >= IDLE_S:
            self.cold_since = now
            self.young_until = max(self.young_until, now + COLD_END_S)
        self.valve.dispatch(ticket.attempt, ask, now)
        if self.breaker.state is not _CLOSED or self.breaker.not_ready:
            self.breaker.dispatched(ticket.attempt, now)
        self.seats.take(ticket.tier, ticket.tenant)
        self.demand_cost += ticket.cost
        self.last_used = ticket.attempt

    def give_back(self, ticket: Ticket, now: float) -> None:
        """Carry it no longer."""
        self.valve.release(ticket.attempt, now)
        self.seats.give_back(ticket.tier, ticket.tenant)
        if not self.seats.taken:
            self.idle_since = now

    def score(self, now: float) -> float:
        """What its burden is for its weight: the smallest takes the next ticket."""
        weight = self.policy.weight
        if weight < 1e-9:
            weight = 1e-9
        if now < self.young_until:
            weight *= self.ramp(now)
        return (self.valve.burden(now) + BASE) / weight

    # Flags are passed by position where tickets are chosen: by keyword a call costs half as much again.

    def binds(self, ask: Ask, now: float, is_lowest: bool) -> Account | None:  # noqa: FBT001  # see above
        """What holds a ticket back here: the ramps, else the valve."""
        if now < self.young_until and self.seats.taken and self._is_held_young(ask, now, is_lowest=is_lowest):
            return _SEQUENCES
        return self.valve.binds(ask, now)

    def _is_held_young(self, ask: Ask, now: float, *, is_lowest: bool) -> bool:
        ramp = self.ramp(now)
        if ramp < 1.0 and self.seats.taken >= max(1.0, self.valve.limit * ramp):
            return True
        return is_lowest and self._is_cold(ask.tier, now)

    def _is_cold(self, tier: int, now: float) -> bool:
        """Whether it stood idle a moment ago and the lowest tier has its part of the seats."""
        if now - self.cold_since >= COLD_END_S:  # young for another reason
            return False
        return self.seats.by_tier.get(tier, 0) >= self._cold_seats(now)

    def _cold_seats(self, now: float) -> int:
        age = now - self.cold_since - COLD_HOLD_S
        part = COLD_RATIO + (1.0 - COLD_RATIO) * max(0.0, age) / (COLD_END_S - COLD_HOLD_S)
        return max(COLD_SEATS, math.ceil(self.valve.limit * part))

    def bound(self, bounds: BackendBounds, share: float, now: float) -> None:
        """Obey fresh bounds; keep their telemetry for the watermark."""
        self.valve.bound(bounds, share, now)
        self.bounds = bounds
        self.bounds_at = now
        self.in_flight_at_bounds = self.seats.taken
        self.breaker.published(bounds.breaker, now)

    def engine_waiting(self, now: float) -> int:
        """Requests that the engine is believed to queue."""
        bounds = self.bounds
        taken = self.seats.taken
        if bounds is None or bounds.engine_waiting is None or bounds.engine_waiting < 0:
            return self._beyond_running()
        age = (bounds.telemetry_age_s or 0.0) + now - self.bounds_at
        if not age <= STALE_S:
            return self._beyond_running()
        return max(0, bounds.engine_waiting + taken - self.in_flight_at_bounds)

    def _beyond_running(self) -> int:
        if self.bounds is None or self.bounds.engine_running is None:
            return 0  # nothing was ever seen: absent telemetry is neither saturated nor idle
        return max(0, self.seats.taken - self.bounds.engine_running)


def choose(
    backends: Iterable[Backend],
    ask: Ask,
    now: float,
    is_lowest: bool,  # noqa: FBT001  # see Backend.binds
    longest_context: int = 0,
) -> tuple[Backend | None, Account | None]:
    """The backend that takes a ticket now, or None and what held it back at the last one tried.

    `longest_context`: the longest context of the pool, 0 where one is unknown.
    """
    fitting = []
    account: Account | None = None
    for backend in backends:
        if not backend.is_usable(now):
            continue
        if backend.policy.context_tokens is not None and not backend.fits(ask, longest_context):
            continue
        held = backend.binds(ask, now, is_lowest)
        if held is None:
            fitting.append(backend)
        else:
            account = held
    if len(fitting) > 1:
        return _least(fitting, now), None
    return (fitting[0] if fitting else None), account


def _least(backends: list[Backend], now: float) -> Backend:
    """The one with the smallest score; of equal ones the one that was used longest ago."""
    best, least = backends[0], math.inf
    for backend in backends:
        score = backend.score(now)
        if score < least or (score == least and backend.last_used < best.last_used):
            best, least = backend, score
    return best
