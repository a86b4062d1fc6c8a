"""What a run depends on, and what it leaves behind."""

from dataclasses import dataclass, field

from gateway.core.policy import GatePolicy
from gateway.simulation.outer import OuterSpec
from gateway.simulation.profiles import Profile
from gateway.simulation.traffic import Manners, Phase, Request

POOL = "model"


@dataclass(frozen=True, slots=True)
class EngineFault:
    """At `at_s` an engine becomes `slow_factor` times as slow, is lost, or comes back."""

    at_s: float
    engine: int
    slow_factor: float = 1.0
    is_lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything that a run depends on: the same setup gives the same record."""

    profile: Profile
    policy: GatePolicy
    phases: tuple[Phase, ...]
    until_s: float
    seed: int
    manners: Manners = field(default_factory=Manners)
    gateways: int = 1
    faults: tuple[EngineFault, ...] = ()
    outer: OuterSpec | None = field(default_factory=OuterSpec)
    window_sample_s: float | None = None
    callers: tuple[
        int, ...
    ] = ()  # per tier: so many call again and again, with a pause between (`traffic.pause_s`)


@dataclass(frozen=True, slots=True)
class EngineTotals:
    """What all engines together have done so far."""

    at_s: float
    prompt_tokens: int
    generated_tokens: int
    recomputed_tokens: int
    preemptions: int
    finished: int


@dataclass(slots=True)
class Record:
    """What happened in a run."""

    setup: Setup
    requests: list[Request]
    totals: list[EngineTotals] = field(default_factory=list)  # one per second
    wasted: list[tuple[float, float]] = field(default_factory=list)  # (when, cost of work for nobody)
    windows: list[tuple[float, tuple[float, ...]]] = field(default_factory=list)
    engine_waiting_max: int = 0
    events: int = 0


class Attempt:
    """One try of a request."""

    __slots__ = (
        "engine",
        "first_at",
        "gateway",
        "is_open",
        "last_at",
        "pair",
        "request",
        "started_at",
        "ticket",
    )

    def __init__(self, request: Request, gateway: int, started_at: float) -> None:
        self.request = request
        self.gateway = gateway
        self.started_at = started_at
        self.ticket = f"{request.number}.{request.attempts}"
        self.pair = (self.ticket, 1)  # what a Progress says of it at every step
        self.engine: int | None = None
        self.first_at: float | None = None
        self.last_at = started_at
        self.is_open = True
