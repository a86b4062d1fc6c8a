"""One run of one play under one guard, and what it was worth. A case is small, so that it can go to another process."""

from dataclasses import dataclass, field, replace

from gateway.core.policy import GatePolicy
from gateway.simulation import measures
from gateway.simulation.outer import Gauges, OuterSpec
from gateway.simulation.profiles import PROFILES, Profile
from gateway.simulation.runner import Record, run
from gateway.simulation.scenarios import baselines, plays, policies
from gateway.simulation.scenarios.plays import Play

VALVE, NONE = "valve", "none"
SAMPLE_S = 0.01
KILLED_AT_S = 45.0
OUTER = {
    "fresh": OuterSpec(),
    "late": OuterSpec(gauges=Gauges.LATE),
    "no gauges": OuterSpec(gauges=Gauges.NONE),
    "killed": OuterSpec(dies_at_s=KILLED_AT_S),
}


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """`guard`: `valve`, `none`, or a static limit as a number. `outer`: how well the slow loop is (`OUTER`)."""

    profile: str
    play: str
    guard: str = VALVE
    gateways: int = 1
    outer: str = "fresh"
    seed: int = 0

    def seeded(self, seed: int) -> "Case":
        """The same case with another seed."""
        return replace(self, seed=seed)

    def __str__(self) -> str:
        parts = [self.profile, self.play, self.guard, f"{self.gateways} gw", self.outer, str(self.seed)]
        return " / ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The numbers of one run, over its play's window. Ratios are 0..1, times seconds, goodput LLM tokens per second."""

    goodput: float
    ratio: float  # to what is achievable; 0 where that was not measured
    in_objective: tuple[float, ...]  # per tier
    answered: tuple[float, ...]
    ttft_p99_s: float  # of P0
    preemptions: int
    preemptions_per_1000: float
    useless: float
    attempts: float
    jain: float  # of P1's tenants
    series: tuple[float, ...]  # goodput per second of the window
    reactions: tuple[float, ...] = ()
    false_alarms: float = 0.0
    refusals_of_first: float = 0.0  # of P0, per request
    engine_waiting: int = 0
    events: int = field(default=0, compare=False)


def outcome(case: Case) -> Outcome:
    """Run a case."""
    profile = PROFILES[case.profile]
    play = plays.named(profile, case.play, case.seed)
    guarded = case.guard == VALVE
    setup = play.setup(
        _policy(case, play.profile),
        case.seed,
        gateways=case.gateways,
        outer=OUTER[case.outer] if guarded else None,
    )
    if case.play in ("onsets", "calm"):
        setup = replace(setup, window_sample_s=SAMPLE_S)
    return _judge(case, play, run(setup))


def _policy(case: Case, profile: Profile) -> GatePolicy:
    if case.guard == VALVE:
        return policies.valve(profile, gateways=case.gateways)
    if case.guard == NONE:
        return policies.unprotected(profile)
    return policies.fixed(profile, int(case.guard))


def _judge(case: Case, play: Play, record: Record) -> Outcome:
    window = play.window
    tiers = range(len(play.profile.tiers))
    first = [request for request in record.requests if request.tier == 0]
    goodput = measures.goodput(record, window)
    done = measures.finished(record, window)
    thrown_out = measures.preemptions(record, window)
    return Outcome(
        goodput=goodput,
        ratio=_ratio(play, record, goodput),
        in_objective=tuple(measures.in_objective(record, window, tier) for tier in tiers),
        answered=tuple(measures.answered(record, window, tier) for tier in tiers),
        ttft_p99_s=measures.quantile(measures.ttft(record, window), 0.99),
        preemptions=thrown_out,
        preemptions_per_1000=1000.0 * thrown_out / max(1, done),
        useless=measures.useless_work(record, window),
        attempts=sum(request.attempts for request in record.requests) / max(1, len(record.requests)),
        jain=measures.jain(record, window, 1),
        series=tuple(measures.goodput_per_second(record, window)),
        reactions=_reactions(case, play, record),
        false_alarms=measures.false_alarms(_first_window(record), window) if record.windows else 0.0,
        refusals_of_first=sum(request.refusals for request in first) / max(1, len(first)),
        engine_waiting=record.engine_waiting_max,
        events=record.events,
    )


def _ratio(play: Play, record: Record, goodput: float) -> float:
    """Goodput / what is achievable in this play; second by second where its phases differ."""
    known = baselines.figures()
    spells = [(start, known.get(f"{play.profile.name}/{name}")) for start, name in play.spells]
    if any(best is None for _, best in spells):
        return 0.0
    start, end = play.window
    capacity = []
    for second in range(round(end - start)):
        in_force = [best.goodput for at, best in spells if best is not None and at <= start + second]
        capacity.append(in_force[-1])
    if len(set(play.phases)) == 1 and not play.faults:
        return goodput / capacity[0]
    wanted = measures.offered_per_second(record, play.window)
    return goodput * (end - start) / measures.achievable(wanted, capacity)


def _first_window(record: Record) -> list[tuple[float, float]]:
    return [(at, values[0]) for at, values in record.windows]


def _reactions(case: Case, play: Play, record: Record) -> tuple[float, ...]:
    if case.play not in ("onsets", "calm"):
        return ()
    found = measures.reactions(_first_window(record), plays.onsets(case.seed)[: _onsets(play)])
    return tuple(found)


def _onsets(play: Play) -> int:
    return sum(1 for fault in play.faults if fault.slow_factor > 1.0) or plays.ONSETS // 2
