"""When a refused caller may come back, and which retries are paid for.

**Paced slots.** A refusal for load hands out the next free slot of a virtual clock per tier: slots are apart by the
time in which the tier's service rate works off the refused cost, times .7 (callers come back late, and some never).

    slot = max(now + max(1, expected wait - delay budget), clock);  clock = slot + .7 * cost / rate

Beyond the tier's cap the slots are full: such a caller gets an instant drawn from the upper half of the cap and the
clock stands still. Official SDKs sleep the whole seconds of `Retry-After` without jitter, so consecutive refusals get
different, increasing slots, rounded up: nobody is told to come before his slot, and no second wave is synchronised.

**Retry credits.** A refusal for load of ordinary traffic grants its (tenant, tier) one credit, valid from its slot
for 60 s; a dispatch that failed at its backend grants 1 at once, an abandoned one .2. A retry takes one credit and is
ordinary traffic then; a retry without credit is shed first (`core.shedding`).
"""

import math
from collections import OrderedDict, deque
from heapq import heappop, heappush

from gateway.core.commands import RetryAfter, new_retry_after

PACE = 0.7
SHORTEST_S = 1.0
LONGEST_S = 60
LEAST_STEP_S = 0.001  # between slots however fast the service is: two callers never get the same one
UNMEASURED_STEP_S = 0.05  # between slots while no service rate is known
CREDIT_VALID_S = 60
FAILED_CREDIT = 1.0
ABANDONED_CREDIT = 0.2


def retry_after(at: float, now: float) -> RetryAfter:
    """The answer that names the instant `at`: whole seconds, 1..60, never earlier than `at` (at most 60 s away)."""
    after_s = math.ceil(at - now)
    if now + after_s < at:
        after_s += 1
    if after_s < 1:
        after_s = 1
    return new_retry_after(at, after_s if after_s < LONGEST_S else LONGEST_S)


def exact_retry_after(at: float | None, now: float) -> RetryAfter | None:
    """The answer of a bucket that refills exactly at `at`; None where only a later time helps."""
    if at is None or not at - now <= LONGEST_S:
        return None
    return retry_after(max(at, now), now)


class Pacer:
    """The virtual clock of one (pool, tier)."""

    __slots__ = ("clock",)

    def __init__(self) -> None:
        """Start with every slot free."""
        self.clock = 0.0

    def slot(
        self, excess_s: float, step_s: float, cap_s: int, now: float, roll: float
    ) -> float:  # six numbers of one formula
        """The next free slot. `step_s`: cost / rate; `excess_s`: wait above the budget; `roll`: uniform in [0, 1)."""
        slot = now + (excess_s if excess_s > SHORTEST_S else SHORTEST_S)
        if slot < self.clock:
            slot = self.clock
        if slot - now > cap_s:
            return now + cap_s * (0.5 + 0.5 * roll)
        step = PACE * step_s if step_s > 0 else UNMEASURED_STEP_S
        self.clock = slot + (step if step > LEAST_STEP_S else LEAST_STEP_S)
        return slot


class Credits:
    """Retry credits of one (tenant, tier), in buckets of one second."""

    __slots__ = ("_amounts", "_balance", "_coming", "_valid")

    def __init__(self) -> None:
        """Start without credit."""
        self._amounts: dict[int, float] = {}
        self._coming: list[int] = []
        self._valid: deque[tuple[int, float]] = deque()
        self._balance = 0.0

    def grant(self, amount: float, at: float) -> None:
        """Credit that may be used from `at` for 60 s."""
        second = math.floor(at)
        known = self._amounts.get(second)
        if known is None:
            heappush(self._coming, second)
            known = 0.0
        self._amounts[second] = known + amount

    def take(self, now: float) -> bool:
        """Use one credit, oldest first; False where less than one is valid."""
        self._advance(now)
        if self._balance < 1.0 - 1e-9:
            return False
        missing = 1.0
        while missing > 1e-9:  # sums of .2 are not exact
            second, amount = self._valid.popleft()
            if amount > missing + 1e-9:
                self._valid.appendleft((second, amount - missing))
                amount = missing
            missing -= amount
            self._balance -= amount
        return True

    def is_empty(self, now: float) -> bool:
        """Whether nothing is left, now or later."""
        self._advance(now)
        return not self._valid and not self._coming

    def _advance(self, now: float) -> None:
        valid = self._valid
        while self._coming and self._coming[0] <= now:
            second = heappop(self._coming)
            amount = self._amounts.pop(second)
            valid.append((second, amount))
            self._balance += amount
        while valid and valid[0][0] + CREDIT_VALID_S < now:
            self._balance -= valid.popleft()[1]
        if not valid:
            self._balance = 0.0


class RetryLedger:
    """Credits of all (tenant, tier). Entries that ran out are dropped a few at a time."""

    __slots__ = ("_entries", "_factors")

    SWEEP = 4

    def __init__(self) -> None:
        """Start without credit for anybody."""
        self._entries: OrderedDict[tuple[str, int], Credits] = OrderedDict()
        self._factors: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def hold_back(self, factors: tuple[tuple[str, float, float], ...]) -> None:
        """Multiply new credits of a tenant by a factor until an instant: ((tenant, factor, until), ...)."""
        self._factors = {tenant: (factor, until) for tenant, factor, until in factors if 0.0 <= factor <= 1.0}

    def grant(self, tenant: str, tier: int, amount: float, at: float) -> None:
        """Give credit that is valid from `at`."""
        if self._factors:
            factor, until = self._factors.get(tenant, (1.0, 0.0))
            if at < until:
                amount *= factor
            if amount <= 0.0:
                return
        entry = self._entries.get((tenant, tier))
        if entry is None:
            entry = self._entries[tenant, tier] = Credits()
        entry.grant(amount, at)

    def take(self, tenant: str, tier: int, now: float) -> bool:
        """Use one credit; False where none is valid."""
        entry = self._entries.get((tenant, tier))
        return entry is not None and entry.take(now)

    def sweep(self, now: float) -> None:
        """Look at a few entries and drop the empty ones: bounded work, whatever the number of tenants."""
        for _ in range(min(self.SWEEP, len(self._entries))):
            key, entry = self._entries.popitem(last=False)
            if not entry.is_empty(now):
                self._entries[key] = entry
