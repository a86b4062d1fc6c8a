"""Finds the best static limit of every play that needs one, and what is achievable there."""

import sys
from dataclasses import dataclass
from statistics import mean

from gateway.simulation.scenarios import baselines
from gateway.simulation.scenarios.baselines import Best
from gateway.simulation.scenarios.cases import VALVE, Case
from gateway.simulation.scenarios.pool import run_all

SEEDS = (101, 102, 103, 104, 105)
FEW_SEEDS = SEEDS[:3]
SMALL_LIMITS = {"cpu8": (6, 7, 8), "cpu32": (12, 16, 20, 26, 32), "llama8": (6, 7, 8), "llama4": (3, 4)}
SMALL_PLAYS = ("x1", "x10", "jump", "slow-down")


@dataclass(frozen=True, slots=True)
class Search:
    """A play, the name under which its figure is kept, and the limits that are tried."""

    profile: str
    play: str
    name: str
    limits: tuple[int, ...]


def searches() -> list[Search]:
    """All that is looked for."""
    found = [
        Search("gpu", "x2.5", "usual", (40, 44, 48, 52, 56)),
        Search("gpu", "one slow", "one slow", (40, 44, 48, 52, 56)),
        Search("gpu", "one lost", "one lost", (44, 48, 52, 56, 60)),
        Search("gpu", "short", "short", (64, 72, 80, 88)),
        Search("gpu", "long", "long", (9, 10, 11, 12, 13)),
    ]
    for profile, limits in SMALL_LIMITS.items():
        found += [Search(profile, play, play, limits) for play in SMALL_PLAYS]
    return found


def sweep(names: tuple[str, ...] = ()) -> dict[str, Best]:
    """Run the searches whose `profile/name` begins with one of `names` (none: all), and keep what was found."""
    wanted = [
        search for search in searches() if not names or f"{search.profile}/{search.name}".startswith(names)
    ]
    cases = [case for search in wanted for case in _cases(search)]
    goodputs: dict[Case, float] = {}
    for case, result in run_all(cases):
        goodputs[case] = result.goodput
        sys.stderr.write(f"\r{len(goodputs)}/{len(cases)} ")
    sys.stderr.write("\n")
    found = dict(baselines.figures())
    for search in wanted:
        found[f"{search.profile}/{search.name}"] = _best(search, goodputs)
    baselines.store(found)
    return found


def _guards(search: Search) -> tuple[str, ...]:
    """The valve runs too where it may be the best; elsewhere it is compared with the static limit itself."""
    static = tuple(map(str, search.limits))
    return (*static, VALVE) if search.profile == "gpu" else static


def _seeds(search: Search) -> tuple[int, ...]:
    """Small profiles run four times as long: three seeds tell as much."""
    return SEEDS if search.profile == "gpu" else FEW_SEEDS


def _cases(search: Search) -> list[Case]:
    return [
        Case(search.profile, search.play, guard, seed=seed)
        for guard in _guards(search)
        for seed in _seeds(search)
    ]


def _best(search: Search, goodputs: dict[Case, float]) -> Best:
    means = {
        guard: mean(goodputs[Case(search.profile, search.play, guard, seed=seed)] for seed in _seeds(search))
        for guard in _guards(search)
    }
    listed = ", ".join(f"{guard} {value:.0f}" for guard, value in means.items())
    sys.stdout.write(f"{search.profile} {search.name}: {listed}\n")
    best_goodput, limit = max((means[str(limit)], limit) for limit in search.limits)
    return Best(limit, max(best_goodput, means.get(VALVE, 0.0)))
