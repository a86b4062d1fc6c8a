"""Since when: episodes of shedding and of open breakers, read backwards from the newest sample.

A second without a refusal does not end an episode: shedding is called over after `QUIET_S` without it. Shedding is
called that only where it is worth a person's look: `LEAST_PER_S` and `LEAST_RATIO` over the last `QUIET_S` seconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from dashboard.charts.samples import BackendSample, Sample, TierSample
from dashboard.charts.series import ALL_POOLS
from dashboard.panels.scene import ALLOWANCE_REASONS, Scene
from gateway.core.vocabulary import BreakerState

QUIET_S = 5.0
LEAST_PER_S = 0.1
LEAST_RATIO = 0.005
BASELINE_LEAST_S = 60
_OPEN = frozenset({BreakerState.OPEN, BreakerState.FORCED_OPEN, BreakerState.HALF_OPEN})


@dataclass(frozen=True, slots=True)
class Episode:
    """Something that goes on. `is_longer`: it began before what is kept."""

    started_at: float
    is_longer: bool

    def lasts_s(self, now: float) -> float:
        """How long, in seconds."""
        return max(0.0, now - self.started_at)


def load_shed(rows: Sequence[TierSample]) -> float:
    """Shed per second because there is more work than the pool can take."""
    return sum(
        rate for row in rows for reason, rate in row.shed_per_s.items() if reason not in ALLOWANCE_REASONS
    )


def allowance_shed(rows: Sequence[TierSample]) -> float:
    """Shed per second because a tenant is over its own allowance."""
    return sum(rate for row in rows for reason, rate in row.shed_per_s.items() if reason in ALLOWANCE_REASONS)


def shedding(
    scene: Scene, tier: int, measure: Callable[[Sequence[TierSample]], float] = load_shed
) -> Episode | None:
    """The episode of shedding that a tier is in, None where it is not."""
    recent = [s for s in scene.samples if s.at > scene.frame.at - QUIET_S]
    shed = sum(measure(_rows(s, scene.pool, tier)) for s in recent) / max(1, len(recent))
    offered = sum(r.offered_per_s for s in recent for r in _rows(s, scene.pool, tier)) / max(1, len(recent))
    if shed < LEAST_PER_S or shed < LEAST_RATIO * offered:
        return None
    return _walk_back(scene.samples, lambda sample: measure(_rows(sample, scene.pool, tier)) > 0)


def out_since(scene: Scene, backend: str, pool: str) -> Episode | None:
    """Since when a backend's breaker is not closed."""
    return _walk_back(scene.samples, lambda sample: any(_is_out(b, backend, pool) for b in sample.backends))


def quiet_since(scene: Scene) -> Episode | None:
    """Since when nothing at all was shed in the scene's pools; None where something is."""

    def is_quiet(sample: Sample) -> bool:
        rows = [t for t in sample.tiers if scene.has(t.pool)]
        return load_shed(rows) + allowance_shed(rows) <= 0

    return _walk_back(scene.samples, is_quiet, gap_s=0.0)


def usual_offered(scene: Scene, before: float) -> float | None:
    """Median of what was offered before an instant; None where too little of it is kept."""
    rates = [
        sum(t.offered_per_s for t in s.tiers if scene.has(t.pool)) for s in scene.samples if s.at < before
    ]
    return median(rates) if len(rates) >= BASELINE_LEAST_S else None


def usual_of_tenant(scene: Scene, tenant: str, before: float) -> float | None:
    """Median of what one tenant offered before an instant; not being among the largest counts as nothing."""
    rates = [
        sum(t.offered_per_s for t in s.tenants if t.tenant == tenant and scene.has(t.pool))
        for s in scene.samples
        if s.at < before
    ]
    return median(rates) if len(rates) >= BASELINE_LEAST_S else None


def _rows(sample: Sample, pool: str, tier: int) -> list[TierSample]:
    return [t for t in sample.tiers if t.tier == tier and pool in (ALL_POOLS, t.pool)]


def _is_out(sample: BackendSample, backend: str, pool: str) -> bool:
    return (sample.backend, sample.pool) == (backend, pool) and sample.breaker in _OPEN


def _walk_back(
    samples: Sequence[Sample], holds: Callable[[Sample], bool], gap_s: float = QUIET_S
) -> Episode | None:
    """The run of samples that ends now, in which `holds` is never false for longer than `gap_s`."""
    started: float | None = None
    newest = samples[-1].at if samples else 0.0
    for sample in reversed(samples):
        if holds(sample):
            started = sample.at
        elif (newest if started is None else started) - sample.at > gap_s:
            break
    else:
        return None if started is None else Episode(started, is_longer=started - samples[0].at <= gap_s)
    return None if started is None else Episode(started, is_longer=False)
