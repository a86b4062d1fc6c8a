"""What an operator sets (`values`), and what is wrong with it (`checking`).

`check(policy)` names every field that is wrong; a gate never applies a policy with problems other than warnings.
"""

from gateway.core.policy.checking import check
from gateway.core.policy.values import (
    BackendPolicy,
    BreakerPolicy,
    GatePolicy,
    LimitPolicy,
    PoolPolicy,
    Problem,
    QueuePolicy,
    TierPolicy,
    WatermarkPolicy,
    default_tiers,
)

__all__ = [
    "BackendPolicy",
    "BreakerPolicy",
    "GatePolicy",
    "LimitPolicy",
    "PoolPolicy",
    "Problem",
    "QueuePolicy",
    "TierPolicy",
    "WatermarkPolicy",
    "check",
    "default_tiers",
]
