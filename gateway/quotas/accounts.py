"""All that bounds one tenant in one pool, taken together or not at all. Arithmetic, no I/O."""

from dataclasses import dataclass, field

from gateway.contract.snapshot import GrantSpec
from gateway.core.vocabulary import ShedReason
from gateway.quotas.leases import BUSY_S, Lease, Month, Seats, Verdict

_HAS = Verdict.HAS


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


@dataclass(frozen=True, slots=True)
class No:
    """Why nothing was taken. `retry_at` None: not before a later day, or never."""

    reason: ShedReason
    retry_at: float | None


@dataclass(slots=True)
class Account:
    """One grant's bounds, as this gateway holds them. A bound that is None is off."""

    grant: GrantSpec
    requests: Lease | None = None
    tokens: Lease | None = None
    seats: Seats | None = None
    month: Month | None = None
    pending: dict[str, int] = field(default_factory=dict)  # LLM tokens by ticket, in order of arrival
    name: tuple[str, str] = field(init=False)  # tenant and pool

    def __post_init__(self) -> None:
        """A grant's name never changes."""
        self.name = (self.grant.tenant, self.grant.pool)

    @property
    def leases(self) -> tuple[Lease, ...]:
        """The buckets that there are."""
        return tuple(lease for lease in (self.requests, self.tokens) if lease is not None)

    def configure(self, grant: GrantSpec, month: str, now: float) -> None:
        """Take a grant's bounds; what is held and in use stays."""
        self.grant = grant
        self.requests = _lease(self.requests, grant.requests_per_min, grant.requests_burst, now)
        self.tokens = _lease(self.tokens, grant.tokens_per_min, grant.tokens_burst, now)
        if grant.concurrency is None:
            self.seats = None
        else:
            self.seats = self.seats or Seats(grant.concurrency)
            self.seats.limit = grant.concurrency
        self._configure_month(month)

    def _configure_month(self, month: str) -> None:
        limit = self.grant.monthly_tokens
        if limit is None:
            self.month = None
            return
        to_date = self.grant.month_to_date_tokens if self.grant.month == month else 0
        if self.month is None:
            self.month = Month(limit, month, to_date)
        self.month.quota.limit = limit
        self.month.enter(month, to_date)

    def go_alone(self, now: float, gateways: int) -> None:
        """Valkey is away."""
        for lease in self.leases:
            lease.go_alone(now, gateways)
        if self.seats is not None:
            self.seats.go_alone()

    def decide(self, tokens: int, now: float, gateways: int) -> No | Verdict:
        """`Verdict.HAS` (then call `take`), `Verdict.ASK`, or why not. The bound that helps latest is named first."""
        if self.month is not None and tokens > self.month.quota.remaining:
            return No(ShedReason.QUOTA_EXHAUSTED, None)
        one = _HAS if self.requests is None else self.requests.verdict(1.0, now, gateways)
        many = _HAS if self.tokens is None else self.tokens.verdict(tokens, now, gateways)
        seat = _HAS if self.seats is None else self.seats.verdict(now, gateways)
        if one is _HAS and many is _HAS and seat is _HAS:
            return _HAS
        refusals = [
            No(reason, lease.retry_at(amount, now, gateways))
            for lease, verdict, amount, reason in (
                (self.requests, one, 1.0, ShedReason.RATE_LIMITED),
                (self.tokens, many, tokens, ShedReason.TOKEN_LIMITED),
            )
            if lease is not None and verdict is Verdict.SHORT
        ]
        if refusals:
            return max(refusals, key=lambda no: float("inf") if no.retry_at is None else no.retry_at)
        return No(ShedReason.CONCURRENCY_LIMITED, now + BUSY_S) if seat is Verdict.SHORT else Verdict.ASK

    def take(self, tokens: int) -> None:
        """Take what `decide` has allowed."""
        if self.requests is not None:
            self.requests.take(1.0)
        if self.tokens is not None:
            self.tokens.take(tokens)
        if self.seats is not None:
            self.seats.take()
        if self.month is not None:
            self.month.quota.reserved += tokens

    def settle(self, reserved: int, used: int, now: float) -> None:
        """A reservation ended with `used` LLM tokens really used."""
        if self.tokens is not None:
            self.tokens.give(float(reserved - used), now)
        if self.seats is not None:
            self.seats.release(now)
        if self.month is not None:
            self.month.settle(reserved, used)

    def refund(self, reserved: int, now: float) -> None:
        """A reservation cost nothing after all."""
        if self.requests is not None:
            self.requests.give(1.0, now)
        if self.tokens is not None:
            self.tokens.give(float(reserved), now)
        if self.seats is not None:
            self.seats.release(now)
        if self.month is not None:
            self.month.settle(reserved, 0)

    def standing(self, now: float) -> Standing:
        """What is left, as callers are told."""
        return Standing(
            requests=_allowance(self.requests, self.grant.requests_per_min, now),
            tokens=_allowance(self.tokens, self.grant.tokens_per_min, now),
        )


def _lease(lease: Lease | None, per_min: int | None, burst: int | None, now: float) -> Lease | None:
    if per_min is None:
        return None
    size = float(burst if burst is not None else per_min)
    if lease is None:
        return Lease(per_min / 60.0, size, 1.0, now)
    lease.configure(per_min / 60.0, size, now)
    return lease


def _allowance(lease: Lease | None, per_min: int | None, now: float) -> Allowance | None:
    if lease is None or per_min is None:
        return None
    remaining = max(0.0, min(lease.remaining(now), lease.shared.burst))
    return Allowance(per_min, int(remaining), (lease.shared.burst - remaining) / lease.shared.rate_per_s)
