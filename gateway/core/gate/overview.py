"""What the gate shows of itself. Reading changes nothing."""

from gateway.core.gate.pool import Pool
from gateway.core.gate.state import State
from gateway.core.gauges import BackendGauge, GateView, QueueGauge
from gateway.core.queues import TierQueue
from gateway.core.routing import Backend
from gateway.core.tickets import Stage


def view(state: State, now: float) -> GateView:
    """The whole gate at one instant."""
    ranks = [tier.rank for tier in state.policy.tiers]
    return GateView(
        queues=tuple(
            _queue(state, pool, tier, now)
            for pool in state.pools.values()
            if not pool.is_removed
            for tier in pool.queues.tiers
        ),
        backends=tuple(_backend(backend, ranks, now) for backend in state.backends.values()),
        tickets=len(state.tickets),
        ledger_imbalance=imbalance(state),
        draining=state.draining,
    )


def imbalance(state: State) -> int:
    """Seats, places and charges that belong to no live ticket, counted from both sides."""
    held = dict.fromkeys(state.backends, 0)
    charged = dict.fromkeys(state.pools, 0)
    queued = dict.fromkeys(state.pools, 0)
    waiting = 0
    for ticket in state.tickets.values():
        waiting += ticket.stage is not Stage.IN_FLIGHT
        charged[ticket.pool] += ticket.charged
        if ticket.stage is Stage.IN_FLIGHT:
            held[ticket.backend] += 1
        elif ticket.stage is Stage.WAITING:
            queued[ticket.pool] += 1
    total = abs(state.waiting - waiting)
    for name, backend in state.backends.items():
        total += abs(backend.valve.in_flight - held[name]) + abs(backend.seats.taken - held[name])
    for name, pool in state.pools.items():
        total += abs(pool.charged - charged[name]) + abs(pool.waiting - queued[name])
    return total


def _queue(state: State, pool: Pool, tier: TierQueue, now: float) -> QueueGauge:
    by_tenant = {}
    oldest = now
    for name, tenant in tier.tenants.items():
        if tenant.tickets:
            by_tenant[name] = len(tenant.tickets)
            oldest = min(oldest, next(iter(tenant.tickets.values())).arrived_at)
    return QueueGauge(
        pool=pool.policy.name,
        tier=tier.policy.rank,
        waiting=tier.waiting,
        oldest_wait_s=now - oldest,
        pressure=1.0 if state.draining or pool.in_fallback else pool.pressure(tier, now),
        waiting_by_tenant=tuple(sorted(by_tenant.items())),
        waiting_cost=tier.waiting_cost,
    )


def _backend(backend: Backend, ranks: list[int], now: float) -> BackendGauge:
    valve = backend.valve
    accounts = valve.gauge(now)
    seats = backend.seats
    breaker = backend.breaker
    return BackendGauge(
        backend=backend.policy.name,
        pool=backend.pool.name,
        limit=valve.limit,
        reserved_seats=accounts.reserved_seats,
        in_flight=valve.in_flight,
        in_flight_by_tier=tuple(seats.by_tier.get(rank, 0) for rank in ranks),
        in_flight_by_tenant=tuple(sorted(seats.by_tenant.items())),
        kv_tokens=accounts.kv_tokens,
        prefill_tokens=accounts.prefill_tokens,
        prefill_ratio=accounts.prefill_ratio,
        kv_use_ratio=accounts.kv_use_ratio,
        sequences_ratio=accounts.sequences_ratio,
        binding=accounts.binding,
        slow=accounts.slow,
        tpot_s=accounts.tpot_s,
        breaker=breaker.state,
        breaker_until=breaker.until,
        failures=breaker.failures,
        successes=breaker.successes,
        demand_cost=float(backend.demand_cost),
        prefill_window_tokens=accounts.prefill_window_tokens,
    )
