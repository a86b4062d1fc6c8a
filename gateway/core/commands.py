"""What is to be done. A gate returns these; the shell carries them out, in order, and reports back with events."""

from dataclasses import dataclass

from gateway.core.frozen import maker
from gateway.core.vocabulary import Account, BreakerState, ShedReason


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """When to come back: `at` on the gate's clock; `after_s` whole seconds from now, 1..60, never before `at`."""

    at: float
    after_s: int


@dataclass(frozen=True, slots=True)
class Decision:
    """Why: the rule that decided, the numbers it compared, the place in the queue and the wait it expected."""

    rule: str
    value: float
    bound: float
    place: int
    expected_wait_s: float
    account: Account | None = None
    backend: str | None = None


@dataclass(frozen=True, slots=True)
class ReserveQuota:
    """Take one request and `tokens` LLM tokens from the tenant's buckets; answer QuotaGranted or QuotaDenied."""

    ticket: str
    tokens: int


@dataclass(frozen=True, slots=True)
class SettleQuota:
    """Give back what was reserved beyond `tokens` really used, or take what is missing. Once per ticket."""

    ticket: str
    tokens: int


@dataclass(frozen=True, slots=True)
class RefundQuota:
    """Give back everything that was reserved: the ticket cost its tenant nothing. Once per ticket."""

    ticket: str


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Send the ticket to the backend now. `waited_s` is its time in the queue."""

    ticket: str
    backend: str
    attempt: int
    waited_s: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """No, before queueing. Where the reason is `breaker_open`, the shell may answer with the pool's fallback instead."""

    ticket: str
    reason: ShedReason
    retry_after: RetryAfter | None
    decision: Decision


@dataclass(frozen=True, slots=True)
class Evict:
    """No, after queueing: the ticket was removed from the queue."""

    ticket: str
    reason: ShedReason
    retry_after: RetryAfter | None
    decision: Decision


@dataclass(frozen=True, slots=True)
class Abort:
    """Stop the work at the backend at once: nobody waits for it."""

    ticket: str
    backend: str


@dataclass(frozen=True, slots=True)
class BreakerChanged:
    """A breaker flipped: to be logged and reported."""

    backend: str
    before: BreakerState
    after: BreakerState
    why: str


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send Ticked no later than this instant; a later WakeAt replaces an earlier one."""

    at: float


Command = (
    ReserveQuota | SettleQuota | RefundQuota | Dispatch | Refuse | Evict | Abort | BreakerChanged | WakeAt
)

# The same as the classes, quicker: for what is made for every event.
new_retry_after = maker(RetryAfter)
new_decision = maker(Decision)
new_reserve = maker(ReserveQuota)
new_settle = maker(SettleQuota)
new_dispatch = maker(Dispatch)
new_refuse = maker(Refuse)
new_evict = maker(Evict)
new_wake = maker(WakeAt)
