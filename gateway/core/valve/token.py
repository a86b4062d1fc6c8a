"""The token valve: three accounts per backend, each clocked by the backend itself.

- prefill backlog: prompt tokens dispatched that have not yet produced a first token;
- KV tokens: prompt + generated tokens of everything in flight, corrected by kappa (off where the capacity is unknown);
- sequences: whole seats, bounded by L (`sequences.SequenceLimit`).

A slow backend returns first tokens and completions later, so admission stops by itself, without telemetry and without
waiting for a control period. Decision, in this order (share: this gateway's part of the backend, 1 when alone):

    in_flight >= floor(L) - (0 for rank 0, else reserved)                                    -> sequences
    in_flight = 0                                                                            -> yes: never a deadlock
    not rank 0, share < 1, now < next_prefill_at                                             -> prefill
    prefill > 0 and prefill + prompt > window * hold                                         -> prefill
    kappa * (kv + prompt + predicted output) > kv_target * capacity * (rest * share + extra) -> kv

    window    = max(CHUNK, prefill_rate * T_PEND) * share * max(.1, 1/slow); rank 0 undivided by share
    rest      = the smallest KV hold-back of any tier (.95); extra = what this tier has above it (rank 0: .05, undivided)
    T_PEND    = .25 * the smallest TTFT objective; TPOT target = .9 * the smallest TPOT objective

Every operation is O(1); `progress` is O(its entries). Source and figures: docs/decisions/0001-token-valve.md.
"""

from collections.abc import Sequence
from math import floor

from gateway.core.events import BackendBounds
from gateway.core.policy import BackendPolicy, LimitPolicy, TierPolicy
from gateway.core.valve.interface import Ask, ValveGauge
from gateway.core.valve.kv import KvTarget
from gateway.core.valve.pace import SLOW, Pace
from gateway.core.valve.sequences import SeatRange, SequenceLimit, reserve, twentieth
from gateway.core.vocabulary import Account

_PREFILL_WINDOW_RATIO = 0.25
_TPOT_TARGET_RATIO = 0.9
_LEAST_WINDOW = 0.1

# members of an Enum by name: looking one up in its class costs a quarter of a microsecond
_KV = Account.KV
_PREFILL = Account.PREFILL
_SEQUENCES = Account.SEQUENCES


class _Hold:
    """How one tier is held back."""

    __slots__ = ("is_first", "kv_extra", "prefill")

    def __init__(self, tier: TierPolicy, least_kv: float) -> None:
        self.is_first = tier.rank == 0
        self.prefill = tier.hold_back_prefill
        self.kv_extra = tier.hold_back_kv - least_kv


class _Attempt:
    """What one attempt holds."""

    __slots__ = ("generated", "is_pending", "prompt", "seen", "sent_step")

    def __init__(self, prompt: int, sent_step: int) -> None:
        self.prompt = prompt
        self.generated = 0
        self.is_pending = True  # no first token yet
        self.sent_step = sent_step
        self.seen = -1  # the pass in which it got a chunk last


class TokenValve:
    """Bounds one backend by prefill backlog, KV tokens and sequences."""

    __slots__ = (
        "_held",
        "_holds",
        "_kv",
        "_kv_tokens",
        "_last",
        "_least_hold",
        "_least_kv",
        "_next_prefill_at",
        "_open_seats",
        "_passes",
        "_pending_since",
        "_pinned",
        "_policy",
        "_prefill_tokens",
        "_prefill_window_s",
        "_range",
        "_reserved",
        "_seats",
        "_sequences",
        "_tpot_target_s",
        "pace",
    )

    def __init__(
        self,
        policy: LimitPolicy,
        backend: BackendPolicy,
        tiers: tuple[TierPolicy, ...],
        now: float,
        *,
        gateways: int = 1,
    ) -> None:
        """Start cold: the limit at its least, kappa 1, the KV target of the policy."""
        self._policy = policy
        self._prefill_window_s = _PREFILL_WINDOW_RATIO * min(t.ttft_objective_s for t in tiers)
        self._tpot_target_s = _TPOT_TARGET_RATIO * min(t.tpot_objective_s for t in tiers)
        self._least_kv = min(t.hold_back_kv for t in tiers)
        self._holds = {t.rank: _Hold(t, self._least_kv) for t in tiers}
        self._least_hold = self._holds[max(self._holds)]
        self._range = SeatRange(policy, backend, gateways)
        self._sequences = SequenceLimit(policy.initial_limit or policy.min_limit)
        self._pinned: int | None = None
        self._seats = self._reserved = 0  # L in whole seats; those that only rank 0 may use
        self._open_seats = 0  # the others
        self._kv = KvTarget(backend.kv_capacity_tokens, policy.kv_target, now)
        self._held: dict[int, _Attempt] = {}
        self._pending_since: dict[int, float] = {}  # attempts without a first token, oldest first
        self._kv_tokens = self._prefill_tokens = 0
        self._next_prefill_at = float("-inf")
        self._passes = 0
        self._last: Ask | None = None
        self.pace = Pace(policy.chunk_tokens, self._prefill_window_s, now)
        self._limit_within_range()

    def __repr__(self) -> str:
        return (
            f"<TokenValve {self.in_flight}/{self.limit:.1f} prefill={self._prefill_tokens} kv={self._kv_tokens}"
            f" target={self._kv.target:.3f} slow={self.pace.slow:.2f}>"
        )

    @property
    def in_flight(self) -> int:
        """Attempts dispatched and not released."""
        return len(self._held)

    @property
    def limit(self) -> float:
        """L, or what a person pinned it to."""
        if self._pinned is not None:
            return min(self._pinned, self._range.high)
        return self._sequences.value

    @property
    def kv_target(self) -> float:
        """Part of the KV cache that may be in use, 0..1."""
        return self._kv.target

    # -- decisions -----------------------------------------------------------------------------------------------

    def binds(self, ask: Ask, now: float) -> Account | None:  # noqa: PLR0911  # one for each line of the table
        """The first account that holds `ask` back (see the table above); changes nothing."""
        in_flight = len(self._held)
        hold = self._holds.get(ask.tier, self._least_hold)
        if in_flight >= (self._seats if hold.is_first else self._open_seats):
            return _SEQUENCES
        if in_flight == 0:
            return None
        if not hold.is_first and now < self._next_prefill_at and self._range.share.value < 1.0:
            return _PREFILL
        pending = self._prefill_tokens
        if pending > 0 and pending + ask.prompt_tokens > self._window(hold, now):
            return _PREFILL
        kv = self._kv
        if kv.capacity is not None:
            tokens = self._kv_tokens + ask.prompt_tokens + ask.output_tokens
            if kv.kappa * tokens > self._kv_bound(kv.capacity, hold):
                return _KV
        return None

    def _window(self, hold: _Hold, now: float) -> float:
        """Prompt tokens that may be pending."""
        pace, in_flight = self.pace, len(self._held)
        decoding = in_flight - len(self._pending_since)
        slow = pace.slow_now(in_flight, decoding, now)
        window = pace.prefill_rate(decoding) * self._prefill_window_s
        if window < self._policy.chunk_tokens:
            window = self._policy.chunk_tokens
        if slow > SLOW:
            window *= max(_LEAST_WINDOW, 1.0 / slow)
        if not hold.is_first:
            window *= self._range.share.value
        return window * hold.prefill

    def _kv_bound(self, capacity: int, hold: _Hold) -> float:
        """KV tokens that may be in use."""
        part = self._least_kv * self._range.share.value + hold.kv_extra
        return self._kv.target * capacity * part

    @property
    def _decoding(self) -> int:
        return len(self._held) - len(self._pending_since)

    def pressure(self, tier: int, now: float) -> float:
        """The largest use of an account as this tier is bounded."""
        hold = self._holds.get(tier, self._least_hold)
        return min(1.0, max(self._ratios(hold, now)))

    def _ratios(self, hold: _Hold, now: float) -> tuple[float, float, float]:
        """Use of prefill, KV and sequences as a tier is bounded."""
        seats = self._seats if hold.is_first else self._open_seats
        sequences = len(self._held) / seats if seats > 0 else 1.0
        window = self._window(hold, now)
        prefill = self._prefill_tokens / window if window > 0 else 1.0
        if self._kv.capacity is None:
            return prefill, 0.0, sequences
        bound = self._kv_bound(self._kv.capacity, hold)
        kv = self._kv.kappa * self._kv_tokens / bound if bound > 0 else 1.0
        return prefill, kv, sequences

    def burden(self, now: float) -> float:
        """.25 * seconds of prefill ahead, in windows, + .3 * use of the KV cache (without capacity: of the seats)."""
        kv, share = self._kv, self._range.share.value
        if share < 1e-6:
            share = 1e-6
        if kv.capacity is None:
            use = len(self._held) / (self._range.engine_max * share)
        else:
            use = kv.kappa * self._kv_tokens / (kv.capacity * share)
        if not self._prefill_tokens:
            return 0.3 * use
        in_flight = len(self._held)
        decoding = in_flight - len(self._pending_since)
        slow = self.pace.slow_now(in_flight, decoding, now)
        speed = self.pace.prefill_rate(decoding) / (slow if slow > SLOW else 1.0)
        return 0.25 * self._prefill_tokens / (speed * self._prefill_window_s) + 0.3 * use

    # -- accounts ------------------------------------------------------------------------------------------------

    def dispatch(self, attempt: int, ask: Ask, now: float) -> None:
        """Take a seat, the prompt's KV tokens and its prefill."""
        prompt = ask.prompt_tokens if ask.prompt_tokens > 0 else 0
        share = self._range.share.value
        if share < 1.0 and ask.tier > 0:
            pace = self.pace.prefill_rate(self._decoding) * max(share, 1e-6)
            begin = max(self._next_prefill_at, now - self._prefill_window_s)
            self._next_prefill_at = begin + prompt / pace
        sent_step = self.pace.sent(prompt, now, is_idle=not self._held)
        self._held[attempt] = _Attempt(prompt, sent_step)
        self._pending_since[attempt] = now
        self._prefill_tokens += prompt
        self._kv_tokens += prompt
        self._last = ask

    def progress(self, tokens: Sequence[tuple[int, int]], now: float, *, lagged: bool) -> None:
        """Count tokens; a pass that ends an engine step also teaches the pace."""
        held, this_pass = self._held, self._passes + 1
        decoding = len(held) - len(self._pending_since)
        was_pending = decoding < len(held)
        total = fresh = known = 0
        is_repeat = False
        for entry, n in tokens:
            attempt = held.get(entry)
            if attempt is None:
                continue
            known += 1
            if n > 0:
                attempt.generated += n
                total += n
            if attempt.seen == self._passes:
                is_repeat = True
            attempt.seen = this_pass
            if attempt.is_pending:
                fresh += self._first_token(entry, attempt)
        if known == 0:
            return
        self._kv_tokens += total
        self._passes = this_pass
        if is_repeat or not self.pace.is_same_step(decoding, now):
            self.pace.chunk(decoding, fresh, now, was_pending=was_pending, lagged=lagged)
        self.pace.settle(self._prefill_tokens)

    def _first_token(self, entry: int, attempt: _Attempt) -> int:
        """Its prefill is done. Returns the prompt where it was sent after the last step, else 0."""
        attempt.is_pending = False
        del self._pending_since[entry]
        self._prefill_tokens -= attempt.prompt
        return attempt.prompt if attempt.sent_step == self.pace.steps else 0

    def release(self, attempt: int, now: float) -> None:  # noqa: ARG002  # as the protocol has it
        """Give back exactly what the attempt holds; a second time: nothing."""
        held = self._held.pop(attempt, None)
        if held is None:
            return
        self._kv_tokens -= held.prompt + held.generated
        if held.is_pending:
            del self._pending_since[attempt]
            self._prefill_tokens -= held.prompt
            self.pace.left(self._prefill_tokens)

    # -- what moves ----------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """L by AIMD; the KV target by its own slow rise and the lateness rule."""
        self._range.advance(now)
        self._move_limit(now)
        self._kv.rise(now)
        if self._kv.may_fall(now) and self._is_late(now):
            self._kv.fall(now)

    def _move_limit(self, now: float) -> None:
        tpot = self.pace.tpot
        ratio = (
            tpot.value or 0.0
        ) / self._tpot_target_s  # nothing measured yet: nothing speaks against a rise
        if ratio > 1.0:
            self._sequences.falls(ratio, len(self._held), tpot.count, now)
        elif ratio < 0.9:  # between: the dead band
            self._sequences.rises(len(self._held), self._reserved)
        self._limit_within_range()

    def _limit_within_range(self) -> None:
        self._sequences.bound(self._range.low, self._range.high)
        self._seats = floor(self.limit)
        self._reserved = reserve(self._policy, twentieth, self._seats)
        self._open_seats = self._seats - self._reserved

    def _is_late(self, now: float) -> bool:
        """Whether the oldest pending prefill is late though the engine is not slow."""
        if not self._pending_since:
            return False
        age = now - next(iter(self._pending_since.values()))
        allowed = 1.2 * self._prefill_window_s + 2.0 * self._prefill_tokens * self.pace.prefill_cost
        return age > allowed and self.pace.slow_now(len(self._held), self._decoding, now) < SLOW

    def bound(self, bounds: BackendBounds, share: float, now: float) -> None:
        """Obey fresh bounds, field by field; telemetry is the slow loop's affair."""
        self._range.bound(bounds, share, now)
        self._limit_within_range()
        self._kv.bound(bounds)

    def pin(self, limit: int | None) -> None:
        """Fix L by hand, or release it."""
        self._pinned = None if limit is None else max(0, limit)
        self._limit_within_range()

    def gauge(self, now: float) -> ValveGauge:
        """The three accounts as the lowest tier is bounded."""
        prefill, kv, sequences = self._ratios(self._least_hold, now)
        return ValveGauge(
            limit=self.limit,
            reserved_seats=self._reserved,
            in_flight=len(self._held),
            kv_tokens=self._kv_tokens,
            prefill_tokens=self._prefill_tokens,
            prefill_ratio=prefill,
            kv_use_ratio=None if self._kv.capacity is None else kv,
            sequences_ratio=sequences,
            binding=None if self._last is None else self.binds(self._last, now),
            slow=self.pace.slow_now(len(self._held), self._decoding, now),
            tpot_s=self.pace.tpot.value,
            prefill_window_tokens=self._window(self._holds[min(self._holds)], now),
        )
