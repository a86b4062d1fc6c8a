"""Why a request was answered as it was, gateway -> control: one per refused or evicted ticket and 1 % of the others.

Lies under `keys.explain(request_id)` for an hour, less under a flood. Who may read it is decided where it is shown.
"""

from msgspec import Struct

from gateway.core.commands import Decision

SCHEMA = 1


class Explanation(Struct, frozen=True, kw_only=True):
    """One ticket: what it asked for, what was decided, and the numbers that were compared."""

    schema: int = SCHEMA
    request_id: str
    gateway: str
    at: float  # epoch seconds of arrival
    tenant: str
    pool: str
    tier: int
    outcome: str  # an Outcome
    reason: str  # a ShedReason, a Fault, or ""
    status: int
    backend: str
    is_retry: bool
    prompt_tokens: int
    wait_s: float | None
    retry_after_s: int | None
    decision: Decision | None
