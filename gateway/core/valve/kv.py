"""The KV account's target: which part of the KV cache may be in use, and how far the count is off.

It starts at the policy's value, falls at once to what the slow loop says, by 3 % for each late prefill that the engine's
speed does not explain (at most every 250 ms), and rises by .003 a second up to the slow loop's value, or .05 above the
policy's without one. Bounds: target .30...95, kappa .3..3. Capacity None: unknown, the account is off.
"""

from math import isfinite

from gateway.core.events import BackendBounds

_TARGET_MIN, _TARGET_MAX = 0.30, 0.95
_KAPPA_MIN, _KAPPA_MAX = 0.3, 3.0
_RISE_PER_S = 0.003
_HEADROOM = 0.05
_LATE_FACTOR = 0.97
_LATE_EVERY_S = 0.25 - 1e-6  # ticks of 50 ms are not exact in binary


class KvTarget:
    """Capacity, kappa and target of one backend as one gateway sees them."""

    __slots__ = ("_ceiling", "_late_at", "_ticked_at", "capacity", "kappa", "target")

    def __init__(self, capacity: int | None, target: float, now: float) -> None:
        """Start with the policy's target and kappa 1."""
        self.capacity = capacity
        self.kappa = 1.0
        self.target = _clamp(target)
        self._ceiling = min(_TARGET_MAX, self.target + _HEADROOM)
        self._ticked_at = now
        self._late_at = float("-inf")

    def rise(self, now: float) -> None:
        """Let time raise it."""
        passed, self._ticked_at = max(0.0, now - self._ticked_at), now
        if self.target < self._ceiling:
            self.target = min(self._ceiling, self.target + _RISE_PER_S * passed)

    def may_fall(self, now: float) -> bool:
        """Whether a late prefill counts now."""
        return self.capacity is not None and now - self._late_at >= _LATE_EVERY_S

    def fall(self, now: float) -> None:
        """A prefill is late."""
        self._late_at = now
        self.target = max(_TARGET_MIN, self.target * _LATE_FACTOR)

    def bound(self, bounds: BackendBounds) -> None:
        """Obey fresh bounds, field by field; what is not a finite number above 0 is as if it had not been told."""
        if _is_positive(bounds.kappa):
            self.kappa = min(_KAPPA_MAX, max(_KAPPA_MIN, bounds.kappa or 1.0))
        if _is_positive(bounds.kv_capacity_tokens):
            self.capacity = int(bounds.kv_capacity_tokens or 0) or None
        if _is_positive(bounds.kv_target):
            self._ceiling = _clamp(bounds.kv_target or 0.0)
            self.target = min(self.target, self._ceiling)


def _clamp(target: float) -> float:
    return min(_TARGET_MAX, max(_TARGET_MIN, target))


def _is_positive(value: float | None) -> bool:
    return value is not None and isfinite(value) and value > 0
