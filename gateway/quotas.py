"""Quotas of tenants: taken from memory, shared over gateways through leases that are renewed in the background.

The gatekeeper carries out `ReserveQuota`, `SettleQuota` and `RefundQuota` with the three methods of their names. In
the usual case `reserve` answers at once; where a lease is empty it returns None, and the answer (at most 50 ms later)
goes to `answer`, the gate's own event.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Allowance:
    """One bucket as the caller is told: OpenAI's x-ratelimit-{limit,remaining,reset}-{requests,tokens}."""

    limit: int  # per minute
    remaining: int
    reset_s: float  # seconds until the bucket is full again


@dataclass(frozen=True, slots=True)
class Standing:
    """What a tenant has left in a pool. None: no such bound."""

    requests: Allowance | None
    tokens: Allowance | None
