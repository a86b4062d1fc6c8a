"""Tiles: one per tier. Shed, offered, admitted, TTFT against its objective, waiting, goodput, a line of 7 minutes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from django.utils.translation import gettext as _

from dashboard.charts.samples import GAP_S, Sample, since
from dashboard.panels.episodes import allowance_shed, shedding
from dashboard.panels.scene import Scene, Tier
from dashboard.panels.wording import NBSP, bound_s, count, duration, percent, rate, seconds, stamp

SPARK_S = 420
SPARK_HEIGHT = 32.0


@dataclass(frozen=True, slots=True)
class Spark:
    """Paths of a sparkline in a box of 100 x 32: offered (dashed) over admitted (filled); between them what was shed."""

    gap: str
    area: str
    ghost: str
    line: str
    note: str


@dataclass(frozen=True, slots=True)
class Chip:
    """A word with a colour and an icon."""

    style: str
    icon: str
    text: str


@dataclass(frozen=True, slots=True)
class Tile:
    """What one tier's tile says."""

    label: str
    style: str
    name: str
    chip: Chip
    shed: str
    offered: str
    admitted: str
    ttft: str
    ttft_objective: str
    ttft_style: str
    ttft_share: float
    waiting: str
    oldest: str
    goodput: str
    spark: Spark | None


def tiles(scene: Scene) -> tuple[Tile, ...]:
    """All tiers, highest priority first."""
    return tuple(_tile(scene, tier) for tier in scene.tiers)


def _tile(scene: Scene, tier: Tier) -> Tile:
    ratio = tier.ttft_ratio
    return Tile(
        label=tier.label,
        style=tier.style,
        name=tier.name,
        chip=_chip(scene, tier),
        shed=percent(tier.shed_ratio, 1),
        offered=rate(tier.offered_per_s),
        admitted=rate(tier.admitted_per_s),
        ttft="" if tier.ttft_p95_s is None else seconds(tier.ttft_p95_s),
        ttft_objective=bound_s(tier.ttft_objective_s),
        ttft_style="good" if ratio is not None and ratio <= 1 else "bad",
        ttft_share=round(min(1.0, ratio or 0.0) * 100, 1),
        waiting=count(tier.waiting),
        oldest=seconds(tier.oldest_wait_s) if tier.waiting else "",
        goodput=count(tier.goodput_tokens_per_s),
        spark=spark(scene, tier.tier),
    )


def _chip(scene: Scene, tier: Tier) -> Chip:
    episode = shedding(scene, tier.tier)
    if episode:
        time = duration(episode.lasts_s(scene.frame.at) + 1)
        return Chip("bad", "down", _("Shedding %(time)s") % {"time": time})
    if not tier.is_inside:
        return Chip("bad", "clock", _("Outside objective"))
    if shedding(scene, tier.tier, allowance_shed):
        return Chip("outline", "flag", _("Over own limits"))
    if tier.ttft_p95_s is None:
        return Chip("outline", "pulse", _("No traffic") if tier.offered_per_s <= 0 else _("No answer yet"))
    return Chip("good", "check", _("Inside objective"))


def spark(scene: Scene, tier: int) -> Spark | None:
    """The last seven minutes of one tier; None where there is no past yet."""
    samples = since(scene.samples, scene.frame.at - SPARK_S)
    if len(samples) < 2:
        return None
    start, end = samples[0].at, samples[-1].at
    points = [_point(scene, sample, tier) for sample in _thinned(samples)]
    top = max(max(p[1], p[2]) for p in points) * 1.06 or 1.0

    def xy(at: float, value: float) -> str:
        return (
            f"{(at - start) / (end - start) * 100:.1f} {SPARK_HEIGHT - value / top * (SPARK_HEIGHT - 1):.1f}"
        )

    runs = _runs(points)
    ghost = "".join("M" + "L".join(xy(at, offered) for at, offered, _a in run) for run in runs)
    line = "".join("M" + "L".join(xy(at, admitted) for at, _o, admitted in run) for run in runs)
    area, gap = "", ""
    for run in runs:
        first, last = xy(run[0][0], 0.0).split()[0], xy(run[-1][0], 0.0).split()[0]
        forth = "L".join(xy(at, admitted) for at, _o, admitted in run)
        back = "L".join(xy(at, offered) for at, offered, _a in reversed(run))
        area += f"M{forth}L{last} {SPARK_HEIGHT:g}L{first} {SPARK_HEIGHT:g}Z"
        gap += f"M{forth}L{back}Z"
    span = duration(end - start) if end - start < SPARK_S - 10 else f"7{NBSP}min"
    return Spark(gap, area, ghost, line, _("%(span)s to %(at)s") % {"span": span, "at": stamp(end)})


def _point(scene: Scene, sample: Sample, tier: int) -> tuple[float, float, float]:
    rows = [t for t in sample.tiers if t.tier == tier and scene.has(t.pool)]
    offered = sum(t.offered_per_s for t in rows)
    return sample.at, offered, min(offered, sum(t.admitted_per_s for t in rows))


def _thinned(samples: Sequence[Sample], most: int = 84) -> list[Sample]:
    """Every n-th sample on a fixed grid of time, so that the line doesn't shiver as it moves; and the last one."""
    step = max(1, -(-len(samples) // most))
    kept = [s for s in samples[:-1] if int(s.at) % step == 0]
    return [*kept, samples[-1]] if kept else list(samples)


def _runs(points: list[tuple[float, float, float]]) -> list[list[tuple[float, float, float]]]:
    """The points cut where frames are missing."""
    steps = sorted(b[0] - a[0] for a, b in pairwise(points))
    usual = steps[len(steps) // 2] if steps else 1.0
    runs = [[points[0]]]
    for before, point in pairwise(points):
        if point[0] - before[0] > usual + GAP_S:
            runs.append([])
        runs[-1].append(point)
    return runs
