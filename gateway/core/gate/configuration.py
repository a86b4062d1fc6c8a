"""New policies, bounds and overrides: applied whole, with everything that waits or is in flight kept consistent."""

import math

from gateway.core.commands import Decision
from gateway.core.events import BackendBounds, BoundsReceived, Override, OverridesReceived
from gateway.core.gate import shedder
from gateway.core.gate.dispatching import pump_all
from gateway.core.gate.lifecycle import report
from gateway.core.gate.pool import Pool
from gateway.core.gate.state import State
from gateway.core.policy import BackendPolicy, GatePolicy, check
from gateway.core.routing import Backend
from gateway.core.shedding import Verdict
from gateway.core.tickets import Stage
from gateway.core.valve import new_valve
from gateway.core.vocabulary import BreakerState, OverrideKind, ShedReason


def refuse_bad(policy: GatePolicy) -> None:
    """Refuse a policy that has problems before anything is touched.

    Raises:
        ValueError: naming each field that is wrong.
    """
    problems = [f"{problem.field}: {problem.message}" for problem in check(policy) if not problem.is_warning]
    if problems:
        raise ValueError("; ".join(problems))


def configure(state: State, policy: GatePolicy, now: float, *, is_start: bool = False) -> None:
    """Take a policy whole: pools first, then their backends, then what overrides say about them."""
    refuse_bad(policy)
    before = state.policy
    state.policy = policy
    if not state.has_bounds:
        state.share = 1.0 / policy.gateways
    state.predictor.configure({pool.name: pool.default_output_tokens for pool in policy.pools})
    _configure_pools(state, before, now)
    _configure_backends(state, before, now, is_start=is_start)
    _enforce(state, now)
    pump_all(state, now)


def _configure_pools(state: State, before: GatePolicy, now: float) -> None:
    policy = state.policy
    for pool_policy in policy.pools:
        pool = state.pools.get(pool_policy.name)
        if pool is None:
            pool = state.pools[pool_policy.name] = Pool(pool_policy, policy, now)
        pool.policy = pool_policy
        pool.is_removed = False
        if policy.tiers != before.tiers:
            pool.reshape(policy.tiers, now)
        pool.shedding.retune(state.share)
    wanted = {pool_policy.name for pool_policy in policy.pools}
    for name, pool in list(state.pools.items()):
        if name not in wanted:
            _remove_pool(state, pool, now)
    in_use = {ticket.pool for ticket in state.tickets.values()}
    state.pools = {name: pool for name, pool in state.pools.items() if name in wanted or name in in_use}


def _remove_pool(state: State, pool: Pool, now: float) -> None:
    """Evict what waits; what is in flight ends as usual."""
    pool.is_removed = True
    verdict = Verdict(ShedReason.NO_BACKEND, Decision("pool-removed", 0.0, 0.0, 0, 0.0), is_load=False)
    for tier in pool.queues.tiers:
        for ticket in list(tier.tickets()):
            shedder.evict(state, pool, ticket, verdict, now)


def _configure_backends(state: State, before: GatePolicy, now: float, *, is_start: bool) -> None:
    wanted = {backend.name: backend for backend in state.policy.backends}
    for name, policy in wanted.items():
        backend = state.backends.get(name)
        if backend is None:
            _add_backend(state, policy, now, is_start=is_start)
            # A gate that had nothing to serve has only started itself: its backends are as warm as others left them.
            if not is_start and before.pools:
                state.backends[name].start_slowly(now)
        else:
            _change_backend(state, backend, policy, before, now)
    for name, backend in list(state.backends.items()):
        backend.is_removed = name not in wanted
        backend.settle()
        if backend.is_removed and not backend.seats.taken:
            del state.backends[name]
    for pool_name, pool in state.pools.items():
        pool.use([state.backends[name] for name, policy in wanted.items() if policy.pool == pool_name])


def _add_backend(state: State, policy: BackendPolicy, now: float, *, is_start: bool) -> None:
    pool = state.pools[policy.pool].policy
    valve = new_valve(pool, policy, state.policy.tiers, now, gateways=state.policy.gateways)
    backend = state.backends[policy.name] = Backend(policy, pool, valve, now)
    if not is_start:
        backend.bound(BackendBounds(backend=policy.name), state.share, now)


def _change_backend(
    state: State, backend: Backend, policy: BackendPolicy, before: GatePolicy, now: float
) -> None:
    pool = state.pools[policy.pool].policy
    was_configured = backend.is_configured
    is_moved = backend.pool.name != pool.name
    is_same = (
        backend.pool.limit == pool.limit
        and before.tiers == state.policy.tiers
        and _facts(backend.policy) == _facts(policy)
        and not is_moved
    )
    has_new_breaker = backend.pool.breaker != pool.breaker
    backend.policy = policy
    backend.pool = pool
    backend.is_removed = False
    backend.settle()
    if not is_same:
        _rebuild(state, backend, now)
    if has_new_breaker:
        backend.new_breaker(now)
    if is_moved or (backend.is_configured and not was_configured):
        backend.start_slowly(now)


def _facts(policy: BackendPolicy) -> tuple[int | None, int | None, int | None]:
    return policy.max_seqs, policy.kv_capacity_tokens, policy.context_tokens


def _rebuild(state: State, backend: Backend, now: float) -> None:
    """A new valve that carries what the old one carried."""
    valve = new_valve(backend.pool, backend.policy, state.policy.tiers, now, gateways=state.policy.gateways)
    backend.valve = valve
    valve.bound(backend.bounds or BackendBounds(backend=backend.policy.name), state.share, now)
    for ticket in state.tickets.values():
        if ticket.stage is Stage.IN_FLIGHT and ticket.backend == backend.policy.name:
            valve.dispatch(ticket.attempt, ticket.ask, now)
            if ticket.generated:
                valve.progress([(ticket.attempt, ticket.generated)], now, lagged=True)


def bound(state: State, event: BoundsReceived, now: float) -> None:
    """Fresh bounds: the share goes to every backend, the rest to those that are named. A share out of 0..1: ignored."""
    if 0.0 <= event.share <= 1.0:
        state.share = event.share
        state.has_bounds = True
    named = {bounds.backend: bounds for bounds in event.backends}
    for name, backend in state.backends.items():
        backend.bound(named.get(name) or BackendBounds(backend=name), state.share, now)
        report(state, backend, "voted")
    for pool in state.pools.values():
        pool.shedding.retune(state.share)
        pool.shedding.credits.hold_back(event.retry_factors)
        pool.version += 1
    pump_all(state, now)


def override(state: State, event: OverridesReceived, now: float) -> None:
    """All overrides in force; those not named are released."""
    state.overrides = event.overrides
    _enforce(state, now)
    pump_all(state, now)


def expire_overrides(state: State, now: float) -> None:
    """Release what has run out."""
    _enforce(state, now)
    pump_all(state, now)


def _enforce(state: State, now: float) -> None:
    live = [entry for entry in state.overrides if entry.expires_at > now]
    state.overrides = tuple(live)
    state.override_ends = min((entry.expires_at for entry in live), default=math.inf)
    if state.override_ends < math.inf:
        state.alarm(state.override_ends)
    by_kind = {kind: {entry.target: entry for entry in live if entry.kind is kind} for kind in OverrideKind}
    for backend in state.backends.values():
        _enforce_backend(state, backend, by_kind, now)
    throttles = _throttles(by_kind[OverrideKind.TIER_THROTTLE])
    for name, pool in state.pools.items():
        pool.in_fallback = name in by_kind[OverrideKind.POOL_FALLBACK]
        pool.shedding.throttle(throttles)
    _weigh(state, by_kind[OverrideKind.TENANT_WEIGHT])


def _enforce_backend(
    state: State, backend: Backend, by_kind: dict[OverrideKind, dict[str, Override]], now: float
) -> None:
    name = backend.policy.name
    was_configured = backend.is_configured
    backend.is_disabled = name in by_kind[OverrideKind.BACKEND_DISABLE]
    backend.is_drained = name in by_kind[OverrideKind.BACKEND_DRAIN]
    backend.settle()
    if backend.is_configured and not was_configured:
        backend.start_slowly(now)
    pin = _number(by_kind[OverrideKind.LIMIT_PIN].get(name))
    backend.valve.pin(None if pin is None or pin < 0 else int(pin))
    forced = by_kind[OverrideKind.BREAKER].get(name)
    if forced is None or forced.value not in ("open", "closed"):
        backend.breaker.force(None, now)
    else:
        backend.breaker.force(BreakerState.OPEN if forced.value == "open" else BreakerState.CLOSED, now)
    report(state, backend, "override")


def _number(entry: Override | None) -> float | None:
    """The number that an override sets, None where it is nonsense."""
    if entry is None:
        return None
    try:
        value = float(entry.value)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _throttles(overrides: dict[str, Override]) -> dict[int, float]:
    parts: dict[int, float] = {}
    for target, entry in overrides.items():
        part = _number(entry)
        if target.isdecimal() and part is not None and 0.0 <= part < 1.0:
            parts[int(target)] = part
    return parts


def _weigh(state: State, overrides: dict[str, Override]) -> None:
    """Weight factors of tenants, also for what already waits."""
    factors = {}
    for tenant, entry in overrides.items():
        factor = _number(entry)
        if factor is not None and factor > 0.0:
            factors[tenant] = factor
    touched = state.weight_factors.keys() | factors.keys()
    state.weight_factors = factors
    for pool in state.pools.values():
        for tier in pool.queues.tiers:
            for name in touched & tier.tenants.keys():
                for ticket in tier.tenants[name].tickets.values():
                    tier.tenant(name, state.weight_of(ticket))
