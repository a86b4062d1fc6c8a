"""Faults that a person or a test sets on a running simulated engine: `POST /sim/faults`, loopback only.

    {"fault": "slow-down", "factor": 3, "seconds": 20}    every step takes 3x as long
    {"fault": "hang", "seconds": 20}                      no step ends; health and metrics still answer, frozen
    {"fault": "crash", "seconds": 5}                      streams end with an error event, counters start again, 500s
    {"fault": "cut", "seconds": 5}                        streams end in mid-air, new requests get a bare 500
    {"fault": "garbage", "seconds": 5}                    answers are not what they should be
    {"fault": "busy", "seconds": 5, "retry_after": 2}     503 before the first byte, optionally with Retry-After
    {"fault": "busy-late", "seconds": 5}                  200, then an error event 503 in place of the first token
    {"fault": "errors", "seconds": 5, "status": 500}      that status for every request
    {"fault": "slow-metrics", "seconds": 20, "delay_s": 5}
    {"fault": "exit"}                                     the process ends at once
    {"fault": "none"}                                     all is well again

Without `seconds` a fault stays until the next `none`.
"""

import math
from enum import StrEnum

from msgspec import Struct


class FaultKind(StrEnum):
    """What can be wrong."""

    NONE = "none"
    SLOW_DOWN = "slow-down"
    HANG = "hang"
    CRASH = "crash"
    CUT = "cut"
    GARBAGE = "garbage"
    BUSY = "busy"
    BUSY_LATE = "busy-late"
    ERRORS = "errors"
    SLOW_METRICS = "slow-metrics"
    EXIT = "exit"


class FaultOrder(Struct, frozen=True, kw_only=True):
    """One fault, as ordered."""

    fault: FaultKind
    seconds: float | None = None
    factor: float = 3.0
    retry_after: float | None = None
    status: int = 500
    delay_s: float = 5.0

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense; raises ValueError with the field's name."""
        for name in ("seconds", "factor", "retry_after", "delay_s"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a positive number")
        if not 400 <= self.status <= 599:  # HTTP's error statuses
            raise ValueError("status must be 400..599")


class Faults:
    """The faults in force, each with the instant at which it ends."""

    def __init__(self) -> None:
        self._orders: dict[FaultKind, tuple[FaultOrder, float]] = {}

    def set(self, order: FaultOrder, now: float) -> None:
        """Put a fault in force, or end them all with `none`."""
        if order.fault is FaultKind.NONE:
            self._orders.clear()
            return
        until = math.inf if order.seconds is None else now + order.seconds
        self._orders[order.fault] = (order, until)

    def get(self, kind: FaultKind, now: float) -> FaultOrder | None:
        """The fault of that kind, if it is in force."""
        found = self._orders.get(kind)
        if found is None:
            return None
        order, until = found
        if now >= until:
            del self._orders[kind]
            return None
        return order

    def in_force(self, now: float) -> tuple[FaultOrder, ...]:
        """All that is wrong now."""
        return tuple(order for kind in FaultKind if (order := self.get(kind, now)) is not None)
