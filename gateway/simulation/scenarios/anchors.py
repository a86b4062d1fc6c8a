"""Figures of the reference model that this model must reproduce: elsewhere the model is wrong, whatever the gate does.

Static limits behind the same queue, all tiers early-drop; mean of seeds 101-105, within 4 %. P0's percentages within 4
points. The unloaded tails are means over more runs: with a dozen P0 requests per run a p99 is one request.
"""

from dataclasses import dataclass
from statistics import mean

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
    """What was measured for an anchor."""

    title: str
    wanted: float
    found: float
    is_close: bool


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
UNLOADED_S = {"unloaded": 0.052, "unloaded-long": 0.375}


def cases() -> set[Case]:
    """All runs that the anchors need."""
    found = {anchor.case.seeded(seed) for anchor in ANCHORS for seed in SEEDS}
    return found | {case for play in UNLOADED_S for case in unloaded_cases(play, SEEDS)}


def findings(book: Book) -> list[Finding]:
    """Each anchor beside what was measured."""
    found = []
    for anchor in ANCHORS:
        results = book.each(anchor.case, SEEDS)
        title = f"{anchor.case.profile} {anchor.case.play}, static {anchor.case.guard}"
        goodput = mean(result.goodput for result in results)
        is_close = abs(goodput / anchor.goodput - 1.0) <= TOLERANCE
        found.append(Finding(f"{title}: tokens/s", anchor.goodput, goodput, is_close))
        if anchor.first_in_objective is not None:
            part = 100.0 * mean(result.in_objective[0] for result in results)
            is_close = abs(part - anchor.first_in_objective) <= POINTS
            found.append(Finding(f"{title}: P0 in objective, %", anchor.first_in_objective, part, is_close))
    for play, wanted in UNLOADED_S.items():
        tail = unloaded_p99_s(book, play, SEEDS)
        found.append(
            Finding(
                f"gpu {play}: P0 p99 TTFT, ms",
                1000 * wanted,
                1000 * tail,
                abs(tail / wanted - 1.0) <= TOLERANCE,
            )
        )
    return found
