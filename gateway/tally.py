"""What was counted: the one place from which metrics, reports, access log, usage and explanations are told.

One `Exchange` per request, filled in by whoever learns something, and four calls in the order of its life:

    tally.arrived(exchange)       a ticket exists: known tenant, pool and tier
    tally.dispatched(exchange)    `backend` and `wait_s` are set (each attempt; only the first counts)
    tally.first_token(exchange)   `ttft_s` is set
    tally.ended(exchange)         exactly once per request, also for one that never became a ticket

Because every reader sees the same integers and the same Exchange, the access line, `/metrics`, the report, the usage
ledger and the "why was my request refused" page cannot disagree. Plain integers, no locks: one thread, one loop.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import Struct

from gateway.contract.report import TPOT_BOUNDS_S, TTFT_BOUNDS_S, WAIT_BOUNDS_S
from gateway.core.commands import Decision
from gateway.core.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

Traffic = tuple[str, int, str, str, str]  # pool, tier, tenant, outcome, reason


Owner = tuple[str, int, str]  # pool, tier, tenant


class Exchange(Struct, kw_only=True, omit_defaults=True):
    """One request from first byte to last, as the access log tells it. Times in seconds, tokens are LLM tokens.

    `outcome` is empty for a request that never became a ticket (401, 404, 413, GET /v1/models ...): only `status` is
    counted then. `reason` is a ShedReason where it was shed, a Fault where it failed, else empty.
    """

    at: float  # epoch seconds of arrival
    request_id: str
    gateway: str = ""
    method: str = ""
    path: str = ""
    status: int = 0  # sent to the caller; 499 where it left before an answer
    outcome: str = ""
    reason: str = ""
    tenant: str = ""
    key: str = ""  # public id of the API key
    pool: str = ""
    model: str = ""
    tier: int = -1
    backend: str = ""
    attempts: int = 0
    stream: bool = False
    is_retry: bool = False
    fallback: bool = False  # answered from the pool's fallback
    prompt_tokens: int = 0  # the engine's count where known, else the estimate
    output_tokens: int = 0
    wait_s: float | None = None  # arrival to dispatch or eviction
    ttft_s: float | None = None  # arrival to first token
    tpot_s: float | None = None  # mean time per output token after the first
    total_s: float = 0.0
    retry_after_s: int | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    traceparent: str = ""
    client_id: str = ""  # the caller's own request id, shortened and printable
    error: str = ""  # our words about what went wrong, never the caller's or the engine's text
    decision: Decision | None = None  # why it was shed or how it was placed


class Histogram:
    """Bucket counts over fixed upper bounds, the last bucket counting what lies above them, and the sum of all."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value_s: float) -> None:
        """Count one value; a value equal to a bound belongs below it."""
        self.counts[bisect_left(self.bounds, value_s)] += 1
        self.total += value_s


@dataclass(slots=True)
class TierTally:
    """One (pool, tier): cumulative since the start of the process."""

    offered: int = 0
    admitted: int = 0
    fallback: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    goodput_tokens: int = 0
    wasted_tokens: int = 0
    ttft: Histogram = field(default_factory=lambda: Histogram(TTFT_BOUNDS_S))
    tpot: Histogram = field(default_factory=lambda: Histogram(TPOT_BOUNDS_S))
    wait: Histogram = field(default_factory=lambda: Histogram(WAIT_BOUNDS_S))


class Tally:
    """Counts exchanges, and hands each finished one to the sinks (access log, usage, explanations)."""

    def __init__(self) -> None:
        self.tiers: dict[tuple[str, int], TierTally] = {}
        self.traffic: dict[Traffic, int] = {}
        self.responses: dict[int, int] = {}  # by status
        self.in_progress = 0  # tickets that arrived and have not ended
        self.in_flight: dict[Owner, int] = {}  # dispatched, not ended
        self.costs: dict[Owner, float] = {}  # of what was dispatched and ended, in prompt tokens
        self.objectives: dict[int, tuple[float, float]] = {}  # by tier rank: TTFT, TPOT in seconds
        self.output_costs: dict[str, float] = {}  # by pool: an output token in prompt tokens
        self.sinks: list[Callable[[Exchange], None]] = []

    def tier(self, pool: str, rank: int) -> TierTally:
        """The counters of one (pool, tier), made when first asked for."""
        found = self.tiers.get((pool, rank))
        if found is None:
            found = self.tiers[pool, rank] = TierTally()
        return found

    def arrived(self, exchange: Exchange) -> None:
        """A ticket arrived."""
        tier = self.tier(exchange.pool, exchange.tier)
        tier.offered += 1
        tier.retries += exchange.is_retry
        self.in_progress += 1

    def dispatched(self, exchange: Exchange) -> None:
        """A ticket was sent to a backend. A second attempt of the same ticket is not counted again."""
        exchange.attempts += 1
        if exchange.attempts > 1:
            return
        tier = self.tier(exchange.pool, exchange.tier)
        owner = (exchange.pool, exchange.tier, exchange.tenant)
        self.in_flight[owner] = self.in_flight.get(owner, 0) + 1
        tier.admitted += 1
        tier.wait.observe(exchange.wait_s or 0.0)

    def first_token(self, exchange: Exchange) -> None:
        """The first token of a ticket came; `ttft_s` says when."""
        if exchange.ttft_s is not None:
            self.tier(exchange.pool, exchange.tier).ttft.observe(exchange.ttft_s)

    def ended(self, exchange: Exchange) -> None:
        """The request is over, whatever happened to it: once."""
        self.responses[exchange.status] = self.responses.get(exchange.status, 0) + 1
        if exchange.outcome:
            self._count_ticket(exchange)
        for sink in self.sinks:
            sink(exchange)

    def _count_ticket(self, exchange: Exchange) -> None:
        self.in_progress -= 1
        key = (exchange.pool, exchange.tier, exchange.tenant, exchange.outcome, exchange.reason)
        self.traffic[key] = self.traffic.get(key, 0) + 1
        tier = self.tier(exchange.pool, exchange.tier)
        tier.fallback += exchange.fallback  # what a fallback said is not the pool's work
        if exchange.attempts:
            self._count_work(exchange, tier)

    def _count_work(self, exchange: Exchange, tier: TierTally) -> None:
        owner = (exchange.pool, exchange.tier, exchange.tenant)
        self.in_flight[owner] -= 1
        cost = exchange.prompt_tokens + self.output_costs.get(exchange.pool, 1.0) * exchange.output_tokens
        self.costs[owner] = self.costs.get(owner, 0.0) + cost
        if exchange.tpot_s is not None:
            tier.tpot.observe(exchange.tpot_s)
        tier.prompt_tokens += exchange.prompt_tokens
        tier.output_tokens += exchange.output_tokens
        if exchange.outcome == Outcome.ABANDONED:
            tier.wasted_tokens += exchange.output_tokens
        elif exchange.outcome == Outcome.COMPLETED and self._met_objectives(exchange):
            tier.goodput_tokens += exchange.output_tokens

    def _met_objectives(self, exchange: Exchange) -> bool:
        ttft_s, tpot_s = self.objectives.get(exchange.tier, (float("inf"), float("inf")))
        return (exchange.ttft_s or 0.0) <= ttft_s and (exchange.tpot_s or 0.0) <= tpot_s
