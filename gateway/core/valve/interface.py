"""What a valve promises: one backend's bound on what it carries, whatever the algorithm."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.core.events import BackendBounds
from gateway.core.frozen import maker
from gateway.core.vocabulary import Account


@dataclass(frozen=True, slots=True)
class Ask:
    """What a ticket asks of a backend: its tier, prompt (estimate) and predicted output in LLM tokens."""

    tier: int
    prompt_tokens: int
    output_tokens: int


new_ask = maker(Ask)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValveGauge:
    """What a valve shows of itself. Ratios are uses of an account as the lowest tier is bounded; 1 and more: full."""

    limit: float
    reserved_seats: int
    in_flight: int
    kv_tokens: int
    prefill_tokens: int
    prefill_ratio: float
    kv_use_ratio: float | None
    sequences_ratio: float
    binding: Account | None  # what would hold back another ticket like the one dispatched last
    slow: float  # how many times longer than expected the engine's steps take now
    tpot_s: float | None
    prefill_window_tokens: float = 0.0  # the prefill backlog that would bind now, before hold-backs


class Valve(Protocol):
    """Bounds what one backend carries. All methods are synchronous arithmetic; `now` never goes backwards.

    The caller promises: `dispatch` once per attempt, then any number of `progress`, then `release` once or more
    (only the first counts). Whatever `dispatch` took, `release` gives back exactly.
    """

    @property
    def in_flight(self) -> int:
        """Attempts dispatched and not released."""

    @property
    def limit(self) -> float:
        """Current number of seats."""

    def binds(self, ask: Ask, now: float) -> Account | None:
        """None where the backend can take it now, else the account that holds it back."""

    def dispatch(self, attempt: int, ask: Ask, now: float) -> None:
        """Take a seat and the tokens of `ask`."""

    def progress(self, tokens: Sequence[tuple[int, int]], now: float, *, lagged: bool) -> None:
        """Tokens that arrived in one pass: ((attempt, n), ...). The first entry of an attempt is its first token."""

    def release(self, attempt: int, now: float) -> None:
        """Give back all that the attempt holds, whatever happened to it."""

    def tick(self, now: float) -> None:
        """Inner tick, every 50 ms."""

    def pressure(self, tier: int, now: float) -> float:
        """The largest use of an account as this tier is bounded, 0..1 (1: nothing of this tier fits)."""

    def burden(self, now: float) -> float:
        """What is compared to choose a backend: smaller takes the next ticket."""

    def bound(self, bounds: BackendBounds, share: float, now: float) -> None:
        """Obey fresh bounds and see telemetry. Nonsense (NaN, negative) is ignored field by field."""

    def pin(self, limit: int | None) -> None:
        """Fix the limit by hand (an override), or release it with None. Bounds still hold."""

    def gauge(self, now: float) -> ValveGauge:
        """What it carries and what binds, without changing anything."""
