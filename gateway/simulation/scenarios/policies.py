"""The policies that are compared: the token valve, a static limit behind the same queue, and no protection at all."""

from dataclasses import replace

from gateway.core.policy import (
    BackendPolicy,
    GatePolicy,
    LimitPolicy,
    PoolPolicy,
    QueuePolicy,
    TierPolicy,
    default_tiers,
)
from gateway.core.vocabulary import DropPolicy, LimitAlgorithm
from gateway.simulation.profiles import Profile
from gateway.simulation.runner import POOL

BOUNDLESS = 100_000


def valve(profile: Profile, *, gateways: int = 1) -> GatePolicy:
    """What a new installation has: the token valve; P0 and P1 drop early, P2 is rejected fast."""
    limit = LimitPolicy(chunk_tokens=profile.engine.chunk_tokens)
    return _policy(profile, limit, _tiers(profile), gateways)


def fixed(profile: Profile, seats: int) -> GatePolicy:
    """A static limit behind the same queue; all tiers drop early."""
    limit = LimitPolicy(algorithm=LimitAlgorithm.FIXED, max_limit=seats, min_limit=1)
    tiers = tuple(
        replace(tier, queue=replace(tier.queue, drop=DropPolicy.EARLY_DROP)) for tier in _tiers(profile)
    )
    return _policy(profile, limit, tiers, 1)


def unprotected(profile: Profile) -> GatePolicy:
    """Everything goes to the engines at once."""
    limit = LimitPolicy(algorithm=LimitAlgorithm.FIXED, max_limit=BOUNDLESS)
    queue = QueuePolicy(max_size=BOUNDLESS, timeout_s=600.0, drop=DropPolicy.TAIL)
    tiers = tuple(replace(tier, queue=queue) for tier in _tiers(profile))
    policy = _policy(profile, limit, tiers, 1)
    return replace(policy, backends=tuple(replace(backend, max_seqs=None) for backend in policy.backends))


def _tiers(profile: Profile) -> tuple[TierPolicy, ...]:
    return tuple(
        replace(tier, ttft_objective_s=load.ttft_objective_s, tpot_objective_s=load.tpot_objective_s)
        for tier, load in zip(default_tiers(), profile.tiers, strict=True)
    )


def _policy(profile: Profile, limit: LimitPolicy, tiers: tuple[TierPolicy, ...], gateways: int) -> GatePolicy:
    engine = profile.engine
    backends = tuple(
        BackendPolicy(
            name=f"b{index}",
            pool=POOL,
            max_seqs=engine.seats,
            kv_capacity_tokens=engine.kv_tokens or None,
            context_tokens=engine.context_tokens,
        )
        for index in range(profile.engines)
    )
    pool = PoolPolicy(name=POOL, limit=limit, output_cost=profile.output_cost)
    return GatePolicy(tiers=tiers, pools=(pool,), backends=backends, gateways=gateways)
