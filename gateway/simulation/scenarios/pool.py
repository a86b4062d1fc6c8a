"""Runs cases in a few processes, each case once."""

from collections.abc import Iterable, Iterator
from multiprocessing import get_context

from gateway.simulation.scenarios.cases import Case, Outcome, outcome

PROCESSES = 2


def run_all(cases: Iterable[Case], processes: int = PROCESSES) -> Iterator[tuple[Case, Outcome]]:
    """Run every case; results come as they are ready. What they are does not depend on the order."""
    todo = sorted(set(cases), key=_weight, reverse=True)
    if processes == 1 or len(todo) == 1:
        yield from map(_run, todo)
        return
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(_run, todo)


def _run(case: Case) -> tuple[Case, Outcome]:
    return case, outcome(case)


def _weight(case: Case) -> tuple[int, Case]:
    """Long runs first, so that the processes end together."""
    return case.gateways + 2 * (case.play in ("x10", "storm", "onsets", "calm")), case
