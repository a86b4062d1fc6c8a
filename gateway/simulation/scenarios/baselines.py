"""Figures of static limits, measured beforehand: what is achievable at best, and which limit does it.

Checked in because the sweep takes long; `python -m gateway.simulation.scenarios --sweep` measures them again. A figure
is the mean goodput of seeds 101-105 in LLM tokens per second, of the best static limit or of the valve if that is
better.
"""

import json
from functools import cache
from pathlib import Path

from msgspec import Struct

FILE = Path(__file__).with_name("baselines.json")


class Best(Struct, frozen=True):
    """The best static limit of one play, and what is achievable."""

    limit: int
    goodput: float


@cache
def figures() -> dict[str, Best]:
    """All figures, by `profile/play`."""
    return {name: Best(**entry) for name, entry in json.loads(FILE.read_text()).items()}


def best(profile: str, play: str) -> Best:
    """The figure of one play; raises KeyError where none was measured."""
    return figures()[f"{profile}/{play}"]


def store(found: dict[str, Best]) -> None:
    """Write what a sweep measured."""
    entries = {name: {"limit": best.limit, "goodput": round(best.goodput, 1)} for name, best in found.items()}
    FILE.write_text(json.dumps(entries, indent=1, sort_keys=True) + "\n")
