"""What one backend can take right now. `interface` says what is promised, `token` and `seats` keep it.

The derivation, with what it replaces and what it is measured against: docs/decisions/0001-token-valve.md.
"""

from gateway.core.policy import BackendPolicy, PoolPolicy, TierPolicy
from gateway.core.valve.interface import Ask, Valve, ValveGauge, new_ask
from gateway.core.valve.seats import SeatValve
from gateway.core.valve.token import TokenValve
from gateway.core.vocabulary import LimitAlgorithm

__all__ = ["Ask", "SeatValve", "TokenValve", "Valve", "ValveGauge", "new_ask", "new_valve"]


def new_valve(
    pool: PoolPolicy, backend: BackendPolicy, tiers: tuple[TierPolicy, ...], now: float, *, gateways: int = 1
) -> Valve:
    """The valve that `pool.limit.algorithm` names. Until bounds come, this gateway is one of `gateways`."""
    if pool.limit.algorithm is LimitAlgorithm.TOKEN_VALVE:
        return TokenValve(pool.limit, backend, tiers, now, gateways=gateways)
    return SeatValve(pool.limit, backend, gateways=gateways)
