"""What one gateway holds of one tenant's shared bounds: arithmetic on `now`, no I/O.

A bound is asked in two steps, so that several bounds are taken together or not at all: `verdict`, then `take`.
`now` is monotonic. "Alone" means that Valkey does not answer; G is the number of gateways last known.
"""

from dataclasses import dataclass
from enum import Enum

from gateway.core.buckets import Bucket, MonthlyQuota

LEASE_S = 0.25  # how much refill a gateway holds in advance
IDLE_S = 1.0  # after which everything is given back
FRESH_S = 0.25  # how long an answer of Valkey's lets us refuse without asking again
HEARTBEAT_S = 1.0  # how often what is held is told, so that the others know it is alive
FORGOTTEN_S = 5.0  # after which what a silent gateway held is nobody's: also in the scripts
BUSY_S = 1.0  # when to come back where only another ticket's end helps
_DUST = 1e-9


class Verdict(Enum):
    """What memory says: it can be taken, it can't (`retry_at` says when), or only Valkey knows."""

    HAS = "has"
    SHORT = "short"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class Request:
    """What an exchange asks of the shared bucket: `want` may be negative (to give back); below `least` is useless."""

    want: float
    least: float
    owed: float  # granted alone and not known to have been told
    owed_ever: float  # granted alone since `born`: an answer that was lost debits nothing twice
    born: float  # when the lease began, which tells one process from the next of the same name
    held: float
    asked_at: float  # monotonic
    elapsed_s: float  # since the last exchange began, on the monotonic clock; -1: there was none
    hint: float  # what must be left in the bucket if Valkey has forgotten it; -1: not known


class Lease:
    """A part of a shared bucket, in requests or LLM tokens.

    `shared` is what is believed to lie in Valkey: an upper bound but for what others give back, since only they and
    we take. `held` may be below 0 after a settlement (a debt that the next exchange pays).
    """

    __slots__ = (
        "_accrued_at",
        "_asked_at",
        "_asked_for",
        "_born",
        "_exchanged_at",
        "_owed_ever",
        "_used_at",
        "held",
        "is_alone",
        "is_asking",
        "owed",
        "shared",
        "unit",
    )

    def __init__(self, rate_per_s: float, burst: float, unit: float, now: float) -> None:
        """Hold nothing. `unit` is the least that makes sense to hold (one request)."""
        self.shared = Bucket(rate_per_s, burst, now)
        self.unit = unit
        self.held = 0.0
        self.owed = self._owed_ever = 0.0
        self._born = now
        self.is_alone = False
        self.is_asking = False  # an exchange is under way
        self._asked_at: float | None = None  # when the last exchange that was answered had begun
        self._asked_for = unit  # the largest recent ask
        self._used_at = float("-inf")
        self._accrued_at = now
        self._exchanged_at: float | None = None

    def __repr__(self) -> str:
        return f"<Lease held={self.held:.1f} shared={self.shared!r} alone={self.is_alone}>"

    @property
    def _target(self) -> float:
        """How much to hold: a quarter second of refill, or the next two asks."""
        wanted = max(LEASE_S * self.shared.rate_per_s, 2.0 * self._asked_for, self.unit)
        return min(wanted, self.shared.burst)

    # -- taking ---------------------------------------------------------------------------------------------------

    def verdict(self, amount: float, now: float, gateways: int) -> Verdict:
        """Whether `amount` can be taken now."""
        self._used_at = now
        self._asked_for = max(amount, self._asked_for * 0.9)
        if self.is_alone:
            self._accrue(amount, now, gateways)
        if amount <= self.held + _DUST:
            return Verdict.HAS
        if not self.shared.fits(amount) or (self.is_alone and not self.is_asking):
            return Verdict.SHORT
        if not self.is_alone and self._is_fresh(now) and amount > self.held + self.shared.level(now) + _DUST:
            return Verdict.SHORT
        return Verdict.ASK

    def retry_at(self, amount: float, now: float, gateways: int) -> float | None:
        """When `amount` could be there if nobody else took anything; None: it never fits."""
        rate = self.shared.rate_per_s / (gateways if self.is_alone else 1)
        if not self.shared.fits(amount) or rate == 0.0:
            return None
        known = self.held + (0.0 if self.is_alone else self.shared.level(now))
        return now + max(0.0, amount - known) / rate

    def take(self, amount: float) -> None:
        """Take what `verdict` has allowed."""
        self.held -= amount

    def give(self, amount: float, now: float) -> None:
        """Give back what was not used, or with a negative amount owe what was used beyond."""
        self.held += amount
        self._used_at = now

    def remaining(self, now: float) -> float:
        """What a caller is told is left."""
        return self.held + (0.0 if self.is_alone else self.shared.level(now))

    def _is_fresh(self, now: float) -> bool:
        return self._exchanged_at is not None and now - self._exchanged_at <= FRESH_S

    def rest(self) -> None:
        """Nobody will use it any more: the next exchange gives everything back."""
        self._used_at = float("-inf")
        self.is_alone = False

    # -- alone ----------------------------------------------------------------------------------------------------

    def go_alone(self, now: float, gateways: int) -> None:
        """Valkey is away: from now on live on what is held and a share of the rest."""
        self.is_asking = False
        if self.is_alone:
            return
        part = max(0.0, self.shared.level(now)) / gateways
        self.held += part
        self._owe(part)
        self._accrued_at = now
        self.is_alone = True

    def _accrue(self, amount: float, now: float, gateways: int) -> None:
        """A share of the refill, up to a share of the burst or to what is asked, so that large asks fit too."""
        most = max(self.shared.burst / gateways, min(amount, self.shared.burst))
        gain = self.shared.rate_per_s / gateways * max(0.0, now - self._accrued_at)
        gain = max(0.0, min(gain, most - self.held))
        self.held += gain
        self._owe(gain)
        self._accrued_at = now

    def _owe(self, amount: float) -> None:
        self.owed += amount
        self._owed_ever += amount

    # -- exchanging -----------------------------------------------------------------------------------------------

    def request(self, now: float, pending: float) -> Request | None:
        """What to ask of Valkey now; None: nothing. `pending` is what waiting tickets ask for."""
        want = self._want(now, pending)
        if want == 0.0 and not self.is_alone and not self._must_be_told(now):
            return None
        useful = min(pending, self._asked_for) if pending else min(self._asked_for, want)
        request = Request(
            want=want,
            least=max(0.0, useful - max(0.0, self.held)),
            owed=self.owed,
            owed_ever=self._owed_ever,
            born=self._born,
            held=self.held,
            asked_at=now,
            elapsed_s=-1.0 if self._asked_at is None else now - self._asked_at,
            hint=-1.0 if self._exchanged_at is None else self.shared.level(now),
        )
        self.held += min(0.0, want)  # what is being given back can't be taken meanwhile
        self.is_asking = True
        return request

    def _want(self, now: float, pending: float) -> float:
        if self.is_alone and not pending:
            return 0.0  # first tell what was granted alone; should the answer be lost, nothing else is
        if pending:
            return max(0.0, max(self._target, pending) - self.held)
        if now - self._used_at > IDLE_S:
            return -self.held
        target = self._target
        if self.held > 2.0 * target:
            return target - self.held
        return target - self.held if self.held < 0.5 * target else 0.0

    def _must_be_told(self, now: float) -> bool:
        return self.held > 0.0 and (self._exchanged_at is None or now - self._exchanged_at >= HEARTBEAT_S)

    def exchanged(self, request: Request, taken: float, level: float, now: float) -> None:
        """Valkey has answered: `taken` more is held (or less, where it was given back), `level` is left there."""
        self.held += max(0.0, taken)
        self.owed = max(0.0, self.owed - request.owed)
        self.is_alone = self.is_asking = False
        self._asked_at, self._exchanged_at = request.asked_at, now
        bucket = self.shared
        self.shared = Bucket(bucket.rate_per_s, bucket.burst, now, level=level)

    def configure(self, rate_per_s: float, burst: float, now: float) -> None:
        """A new rate and burst; what is held stays, at most the new burst."""
        self.shared.configure(rate_per_s, burst, now)
        self.held = min(self.held, burst)


class Seats:
    """This gateway's part of a tenant's concurrency limit.

    While there is traffic as many are held as were lately in use at once and a quarter more, so that requests that come
    and go ask nothing; but in reserve never more than half of what nobody uses, so that the others find seats too.
    """

    __slots__ = (
        "_before",
        "_exchanged_at",
        "_freed_at",
        "_most",
        "_since",
        "allotted",
        "free",
        "in_use",
        "is_alone",
        "is_asking",
        "limit",
        "others",
    )

    def __init__(self, limit: int) -> None:
        """Nothing is allotted and nothing in use."""
        self.limit = limit
        self.in_use = 0
        self.allotted = 0
        self.free = limit  # nobody's, as last told
        self.others = 0  # allotted to other gateways, as last told
        self.is_alone = False
        self.is_asking = False  # an exchange is under way
        self._exchanged_at: float | None = None
        self._freed_at = float("-inf")
        self._most = self._before = 0  # in use at once: in this period of `IDLE_S`, and in the one before
        self._since = float("-inf")

    def __repr__(self) -> str:
        return f"<Seats {self.in_use}/{self.allotted} of {self.limit}, alone={self.is_alone}>"

    def verdict(self, now: float, gateways: int) -> Verdict:
        """Whether one more can begin now."""
        if self.is_alone and self.is_asking:
            return Verdict.ASK  # what is in use has been told: it may not grow before the answer
        if self.is_alone:
            return Verdict.HAS if self.in_use < self._share(now, gateways) else Verdict.SHORT
        if self.in_use < self.allotted:
            return Verdict.HAS
        is_fresh = self._exchanged_at is not None and now - self._exchanged_at <= FRESH_S / 5
        return Verdict.SHORT if is_fresh and self.free <= 0 else Verdict.ASK

    def _share(self, now: float, gateways: int) -> int:
        """Alone: a share of the limit; for the first seconds no more than what the others had left free."""
        share = max(1, self.limit // gateways)
        is_recent = self._exchanged_at is not None and now - self._exchanged_at < FORGOTTEN_S
        return min(share, self.limit - self.others) if is_recent else share

    def take(self) -> None:
        """One more begins."""
        self.in_use += 1
        if self.in_use > self._most:
            self._most = self.in_use

    def release(self, now: float) -> None:
        """One has ended."""
        self.in_use = max(0, self.in_use - 1)
        self._freed_at = now

    def rest(self) -> None:
        """Nobody will use them any more: the next exchange gives all back but those in use."""
        self._freed_at = float("-inf")

    def go_alone(self) -> None:
        """Valkey is away."""
        self.is_alone = True
        self.is_asking = False

    def request(self, now: float, pending: int) -> int | None:
        """How many seats in all to ask for; None: nothing to tell. Spare seats are kept while there is traffic."""
        spare = self._spare(now) if now - self._freed_at <= IDLE_S else 0
        wanted = max(self.in_use, min(self.limit, self.in_use + max(pending, spare)))
        is_due = self._exchanged_at is None or now - self._exchanged_at >= HEARTBEAT_S
        is_news = wanted != self.allotted or pending or self.is_alone
        if not is_news and not (is_due and self.allotted):
            return None
        self.allotted = min(self.allotted, wanted)  # what is being given back can't be taken meanwhile
        self.is_asking = True
        return wanted

    def _spare(self, now: float) -> int:
        """How many to hold beyond those in use; at least one."""
        if now - self._since > IDLE_S:
            self._before, self._most, self._since = self._most, self.in_use, now
        recent = max(self._most, self._before)
        unused = self.limit - self.others - self.in_use
        return max(1, min(recent + recent // 4 - self.in_use, unused // 2))

    def exchanged(self, allotted: int, others: int, now: float) -> None:
        """Valkey has answered."""
        self.allotted = allotted
        self.others = others
        self.free = self.limit - others - allotted
        self.is_alone = self.is_asking = False
        self._exchanged_at = now


class Month:
    """A tenant's LLM tokens of this calendar month, over all gateways, as far as is known here."""

    __slots__ = ("_exchanged_at", "month", "quota", "sent", "used_here")

    def __init__(self, limit: int, month: str, to_date: int) -> None:
        """`to_date`: used in `month` as the snapshot counts it."""
        self.quota = MonthlyQuota(limit, to_date)
        self.month = month
        self.used_here = 0  # by this process in this month
        self.sent = 0  # of which Valkey knows
        self._exchanged_at: float | None = None

    def enter(self, month: str, to_date: int) -> None:
        """The month that it is now, and a fresh count of it. A new month begins with nothing used."""
        if month != self.month:
            self.month = month
            self.used_here = self.sent = 0
            self.quota.begin(to_date)
        elif to_date > self.quota.used:
            self.quota.begin(to_date)

    def settle(self, reserved: int, used: int) -> None:
        """A reservation has ended."""
        self.quota.reserved -= reserved
        self.quota.used += used
        self.used_here += used

    def must_be_told(self, now: float) -> bool:
        """Something was used here, or others may have used something."""
        is_due = self._exchanged_at is None or now - self._exchanged_at >= HEARTBEAT_S
        return is_due and (
            self.used_here > self.sent or self.quota.reserved > 0 or self._exchanged_at is None
        )

    @property
    def known_elsewhere(self) -> int:
        """What is known to have been used by others than this process."""
        return max(0, self.quota.used - self.used_here)

    def exchanged(self, sent: int, total: int, now: float) -> None:
        """Valkey has answered: `total` is everybody's use, ours up to `sent` included."""
        self.sent = sent
        self.quota.used = max(total, 0) + (self.used_here - sent)
        self._exchanged_at = now
