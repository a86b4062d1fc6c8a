"""Figures of the reference model that this model must reproduce: elsewhere the model is wrong, whatever the gate does.

Static limits behind the same queue, all tiers early-drop; means of seeds 101-105. A figure is near within 4 % (P0's
percentages within 4 points). Both figures are means of five seeds with other random numbers, so where seeds differ much
(engines that thrash, tails of a dozen requests) more is allowed: twice the standard error of the difference.
"""

from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev

from gateway.simulation.scenarios.cases import Case
from gateway.simulation.scenarios.measuring import Book, unloaded_cases, unloaded_p99_s

SEEDS = (101, 102, 103, 104, 105)
TOLERANCE = 0.04
POINTS = 4.0


@dataclass(frozen=True, slots=True)
class Anchor:
    """One figure: goodput (LLM tokens/s) and, where known, P0 in objective (%), of a static limit."""

    case: Case
    goodput: float
    first_in_objective: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What was measured for an anchor. `allowed`: how far from what is wanted it may be."""

    title: str
    wanted: float
    found: float
    allowed: float

    @property
    def is_close(self) -> bool:
        """Whether the model reproduces the figure."""
        return abs(self.found - self.wanted) <= self.allowed


ANCHORS = (
    Anchor(Case("gpu", "x2.5", "40"), 3060, 100),
    Anchor(Case("gpu", "x2.5", "48"), 3247, 97),
    Anchor(Case("gpu", "x2.5", "56"), 3021, 79),
    Anchor(Case("gpu", "long", "9"), 1490),
    Anchor(Case("gpu", "long", "11"), 1599),
    Anchor(Case("gpu", "long", "13"), 1339),
    Anchor(Case("gpu", "one slow", "48"), 2170),
    Anchor(Case("gpu", "one lost", "56"), 1760),
    Anchor(Case("gpu", "short", "80"), 4306),
    Anchor(Case("cpu8", "x10", "8"), 1048),
    Anchor(Case("cpu32", "x10", "16"), 1203),
    Anchor(Case("cpu32", "x10", "32"), 1298),
    Anchor(Case("llama8", "x10", "8"), 985),
    Anchor(Case("llama4", "x10", "4"), 887),
    Anchor(Case("tight", "x10", "20"), 2072),
)
UNLOADED_MS = {"unloaded": 52.0, "unloaded-long": 375.0}


def cases() -> set[Case]:
    """All runs that the anchors need."""
    found = {anchor.case.seeded(seed) for anchor in ANCHORS for seed in SEEDS}
    return found | {case for play in UNLOADED_MS for case in unloaded_cases(play, SEEDS)}


def findings(book: Book) -> list[Finding]:
    """Each anchor beside what was measured."""
    found = []
    for anchor in ANCHORS:
        results = book.each(anchor.case, SEEDS)
        title = f"{anchor.case.profile} {anchor.case.play}, static {anchor.case.guard}"
        goodputs = [result.goodput for result in results]
        found.append(_finding(f"{title}: tokens/s", anchor.goodput, goodputs, TOLERANCE * anchor.goodput))
        if anchor.first_in_objective is not None:
            parts = [100.0 * result.in_objective[0] for result in results]
            found.append(_finding(f"{title}: P0 in objective, %", anchor.first_in_objective, parts, POINTS))
    for play, wanted in UNLOADED_MS.items():
        tails = [1000.0 * unloaded_p99_s(book, play, (seed,)) for seed in SEEDS]
        runs = [1000.0 * book[case].ttft_p99_s for case in unloaded_cases(play, SEEDS)]
        allowed = max(TOLERANCE * wanted, _noise(runs))
        found.append(Finding(f"gpu {play}: P0 p99 TTFT, ms", wanted, mean(tails), allowed))
    return found


def _finding(title: str, wanted: float, values: list[float], tolerance: float) -> Finding:
    return Finding(title, wanted, mean(values), max(tolerance, _noise(values)))


def _noise(values: list[float]) -> float:
    """Twice the standard error of the difference between two means of five such values."""
    return 2.0 * stdev(values) * sqrt(2.0 / len(SEEDS))
