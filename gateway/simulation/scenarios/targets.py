"""What must hold, and what is aimed at. Each target names a case, a measure of it, and bounds.

A *must* holds for the mean of the seeds, and no single seed may be more than `slack` short of it. `is_controlled`: the
same run without protection has to miss the must, or the measure says nothing.
"""

from dataclasses import dataclass, replace
from statistics import mean

from gateway.simulation.scenarios import measuring as m
from gateway.simulation.scenarios.baselines import best
from gateway.simulation.scenarios.cases import NONE, Case
from gateway.simulation.scenarios.measuring import Book, Measure, Seeds
from gateway.simulation.scenarios.sweep import SMALL_PLAYS

RATIO_SLACK = 0.03
POINTS_SLACK = 3.0
EPSILON = 1e-9  # means of decimal fractions are not exact
STATIC_OF_THE_JUMP = "36"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One line of the table."""

    case: Case
    title: str
    measure: Measure
    must: float | None
    aim: float | None = None
    at_most: bool = False
    slack: float | None = None
    static: str | None = None  # the static limit that stands beside it
    is_controlled: bool = False
    also: tuple[Case, ...] = ()

    def cases(self, seeds: Seeds) -> set[Case]:
        """All runs that it needs."""
        wanted = [self.case, *self.also]
        if self.static is not None:
            wanted.append(_guarded(self.case, self.static))
        if self.is_controlled:
            wanted.append(_guarded(self.case, NONE))
        return {case.seeded(seed) for case in wanted for seed in seeds}

    def values(self, book: Book, seeds: Seeds) -> list[float]:
        """Its value per seed, or of all seeds together."""
        return self.measure(book, self.case, seeds)

    def of_static(self, book: Book, seeds: Seeds) -> float | None:
        """The value of the static limit."""
        return (
            None if self.static is None else mean(self.measure(book, _guarded(self.case, self.static), seeds))
        )

    def of_none(self, book: Book, seeds: Seeds) -> float | None:
        """The value without protection."""
        return mean(self.measure(book, _guarded(self.case, NONE), seeds)) if self.is_controlled else None

    def meets(self, value: float, bound: float) -> bool:
        """Whether a value is on the right side of a bound."""
        return value <= bound + EPSILON if self.at_most else value >= bound - EPSILON

    def holds(self, values: list[float]) -> bool:
        """Whether the must is met."""
        if self.must is None:
            return True
        if not self.meets(mean(values), self.must):
            return False
        return self.slack is None or min(values) >= self.must - self.slack - EPSILON


def _guarded(case: Case, guard: str) -> Case:
    return replace(case, guard=guard, gateways=1)


def _ratio(case: Case, must: float, aim: float, *, is_controlled: bool = True) -> Target:
    alone = case.gateways == 1
    return Target(
        case=case,
        title="goodput / achievable",
        measure=m.ratio,
        must=must,
        aim=aim,
        slack=RATIO_SLACK,
        static=str(best("gpu", "usual").limit) if alone else None,
        is_controlled=alone and is_controlled,
    )


def _objective(
    case: Case, must: float | None, aim: float | None, *, tier: int = 0, control: bool = False
) -> Target:
    return Target(
        case=case,
        title=f"P{tier} in objective, %",
        measure=m.in_objective(tier),
        must=must,
        aim=aim,
        slack=POINTS_SLACK,
        is_controlled=control,
    )


def _upper(case: Case, title: str, measure: Measure, must: float, aim: float | None = None) -> Target:
    return Target(case=case, title=title, measure=measure, must=must, aim=aim, at_most=True)


def _gpu(play: str, *, gateways: int = 1, outer: str = "fresh", guard: str = "valve") -> Case:
    return Case("gpu", play, guard, gateways, outer)


def goodput_targets() -> list[Target]:
    """The bad days, on the `gpu` profile."""
    found = [
        _ratio(_gpu("x10"), 0.95, 0.99),
        _ratio(_gpu("storm"), 0.94, 0.98),
        _ratio(_gpu("jump"), 0.82, 0.88),
        _objective(_gpu("jump"), 94.0, 98.0, control=True),
        _ratio(_gpu("jump", gateways=3), 0.81, 0.88),
        _objective(_gpu("jump", gateways=3), 91.0, 98.0),
        _ratio(_gpu("slow-down"), 0.90, 0.95),
        _upper(_gpu("slow-down"), "P0 p99 TTFT / unloaded", m.tail, 5.5, 4.0),
        _ratio(_gpu("slow-down", gateways=3), 0.90, 0.95),
        _upper(_gpu("slow-down", gateways=3), "P0 p99 TTFT / unloaded", m.tail, 7.0, 4.0),
        _ratio(_gpu("loss"), 0.84, 0.90),
        _objective(_gpu("loss"), 99.0, None),
        _ratio(_gpu("burst"), 0.89, 0.94),
        _objective(_gpu("flood"), None, None),
    ]
    flood = [_objective(_gpu("flood"), 50.0, None, tier=1), _objective(_gpu("flood"), 10.0, None, tier=2)]
    return found + [replace(target, slack=None) for target in flood]


def first_tier_targets() -> list[Target]:
    """What P0 gets at ten times the load, and how fair P1 is served."""
    x10, x10_by_three = _gpu("x10"), _gpu("x10", gateways=3)
    answered = Target(
        case=x10, title="P0 answered, %", measure=m.answered, must=99.5, aim=100.0, is_controlled=True
    )
    fair = Target(case=x10, title="Jain index over P1's tenants", measure=m.jain, must=0.98, aim=1.0)
    return [
        _upper(x10, "P0 p99 TTFT / unloaded", m.tail, 3.0, 2.2),
        _upper(x10_by_three, "P0 p99 TTFT / unloaded", m.tail, 3.5, 2.2),
        answered,
        fair,
        replace(fair, case=x10_by_three, must=0.97),
        _upper(x10, "attempts per request", m.attempts, 3.3, 2.8),
    ]


def waste_targets() -> list[Target]:
    """What engines do for nothing."""
    found = [
        _upper(_gpu(play, gateways=gateways), "preemptions per run", m.preemptions, 1.0, 0.0)
        for gateways in (1, 3)
        for play in ("x1", "x2.5", "x10")
    ]
    found += [
        _upper(Case("cpu8", play), "preemptions per 1,000 answers", m.preemptions_per_1000, 3.0, 0.0)
        for play in ("x1", "x10")
    ]
    static = _gpu("jump", guard=STATIC_OF_THE_JUMP)
    for gateways, must in ((1, 5.0), (3, 8.0)):
        target = _upper(
            _gpu("jump", gateways=gateways),
            "preemptions, % of static 36",
            m.preemptions_against(static),
            must,
            1.0,
        )
        found.append(replace(target, also=(static,)))
    for play, must, aim in (("x1", 3.0, 1.0), ("x2.5", 3.0, 1.0), ("x10", 3.0, 1.0), ("jump", 3.0, 1.0)):
        found.append(_upper(_gpu(play), "useless work, %", m.useless, must, aim))
    for play in ("loss", "burst"):
        found.append(_upper(_gpu(play), "useless work, %", m.useless, 8.0, 4.0))
    return found


def slow_loop_targets() -> list[Target]:
    """What remains without gauges, with late ones, and without the slow loop."""
    found = []
    for play in ("x10", "jump", "slow-down"):
        fresh, blind = _gpu(play), _gpu(play, outer="no gauges")
        found += [
            replace(_upper(blind, "goodput lost, %", m.loss_against(fresh), 3.0), also=(fresh,)),
            replace(_upper(blind, "P0 p99 TTFT / with gauges", m.tail_against(fresh), 1.5), also=(fresh,)),
        ]
    for play, must in (("x10", 3.0), ("slow-down", 3.0), ("jump", 6.0)):
        fresh, late = _gpu(play), _gpu(play, outer="late")
        found.append(
            replace(_upper(late, "goodput lost, %", m.loss_against(fresh), must, 3.0), also=(fresh,))
        )
    found.append(_objective(_gpu("jump", outer="late"), 90.0, None))
    killed = _gpu("x10", outer="killed")
    changed = _upper(killed, "goodput changed, %", m.change_against(_gpu("x10")), 2.0, 0.0)
    return [*found, replace(changed, also=(_gpu("x10"),))]


def reaction_targets() -> list[Target]:
    """How soon the valve notices, and how soon goodput is back."""
    return [
        _upper(_gpu("onsets"), "reaction p50, ms", m.reaction_ms(0.5), 120.0, 70.0),
        _upper(_gpu("onsets"), "reaction p95, ms", m.reaction_ms(0.95), 250.0, 150.0),
        _upper(_gpu("calm"), "false alarms, % of time", m.false_alarms, 3.0, 0.0),
        _upper(_gpu("slow-down"), "recovery, s", m.recovery, 3.0, 1.0),
        _upper(_gpu("burst"), "recovery, s", m.recovery, 3.0, 1.0),
    ]


_CPU32_OBJECTIVE = {"slow-down": 96.0, "jump": 98.0}


def profile_targets() -> list[Target]:
    """The other engines, against the best static limit of each play."""
    found = []
    for profile in ("cpu8", "cpu32", "llama8", "llama4"):
        for play in SMALL_PLAYS:
            case = Case(profile, play)
            limit = str(best(profile, play).limit)
            static = replace(case, guard=limit)
            found.append(
                Target(
                    case=case,
                    title=f"goodput / static {limit}",
                    measure=m.goodput_against(static),
                    must=0.90,
                    aim=0.98,
                    slack=RATIO_SLACK,
                    static=limit,
                    is_controlled=play == "x10",
                )
            )
            must = _CPU32_OBJECTIVE.get(play, 99.0) if profile == "cpu32" else 99.0
            found.append(replace(_objective(case, must, 100.0), static=limit))
    return found


def shared_cpu_targets() -> list[Target]:
    """Three gateways before `cpu32`."""
    found = []
    for play, objective in (("x1", 98.0), ("x10", 97.5), ("slow-down", 91.0)):
        case = Case("cpu32", play, gateways=3)
        limit = str(best("cpu32", play).limit)
        static = Case("cpu32", play, limit)
        found.append(
            Target(
                case=case,
                title=f"goodput / static {limit}",
                measure=m.goodput_against(static),
                must=0.93,
                aim=0.98,
                slack=RATIO_SLACK,
                also=(static,),
            )
        )
        found.append(_objective(case, objective, 99.0))
    return found


def tight_targets() -> list[Target]:
    """Where the time per output token binds."""
    found = []
    for play in ("x1", "x10"):
        case, static = Case("tight", play), Case("tight", play, "20")
        against = Target(
            case=case,
            title="goodput / static 20",
            measure=m.goodput_against(static),
            must=0.85,
            aim=0.95,
            slack=RATIO_SLACK,
            static="20",
            is_controlled=play == "x10",
        )
        found += [against, replace(_objective(case, 98.0, 100.0), static="20")]
    return found


def closed_loop_targets() -> list[Target]:
    """A few callers that call again and again, on one llama.cpp with four slots."""
    case = Case("llama4", "closed-loop")
    return [
        replace(_objective(case, 100.0, None, control=True), slack=None),
        _upper(case, "refusals per 1,000 P0 calls", m.refusals, 2.0, 0.0),
        _upper(case, "engine waiting", m.engine_waiting, 0.0),
    ]


def all_targets() -> list[Target]:
    """The whole table."""
    return [
        *goodput_targets(),
        *first_tier_targets(),
        *waste_targets(),
        *slow_loop_targets(),
        *reaction_targets(),
        *profile_targets(),
        *shared_cpu_targets(),
        *tight_targets(),
        *closed_loop_targets(),
    ]


def jump_control_target() -> Target:
    """A static limit that is right for the usual prompts must fail where they grow."""
    return _ratio(_gpu("jump", guard=STATIC_OF_THE_JUMP), 0.82, 0.88)
