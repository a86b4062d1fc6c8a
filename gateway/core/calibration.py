"""The slow loop's arithmetic: what it learns from telemetry, and how gateways share a backend. No clock, no I/O.

Called once a second by control, and by the simulation with the same code. It moves bounds (KV target, kappa, shares,
seats), never a limit: that belongs to the fast loop of each gateway. Derivation: docs/decisions/0001-token-valve.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, isfinite

KAPPA_MIN, KAPPA_MAX = 0.3, 3.0
KAPPA_GAIN_PER_S = 0.05
KAPPA_MIN_USE = 0.2  # below this use of the KV cache the two averages say nothing
KV_TARGET_MIN, KV_TARGET_MAX = 0.70, 0.95  # of the preemption rule
KV_TARGET_RISE_PER_S = 0.003
KV_TARGET_FALL, KV_TARGET_FALL_HARD, HARD_PREEMPTIONS_PER_S = 0.985, 0.96, 3.0
STALE_S, LONG_STALE_S = 3.0, 30.0
STALE_TARGET, STALE_PULL_PER_S = 0.85, 0.01
EVEN_PART = 0.2  # of the shares, whatever the demand
DEMAND_GAIN = 0.3


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was learnt about one backend. kappa = measured KV tokens / KV tokens that the gateways count."""

    kv_target: float
    kappa: float = 1.0
    measured_tokens: float = 0.0  # EWMA of kv_ratio * capacity
    counted_tokens: float = 0.0  # EWMA of the sum of the gateways' kv_tokens
    is_informed: bool = False  # a gauge told of KV or preemptions: before, gateways keep their own target


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One second's evidence. None: not told, or too old to count."""

    elapsed_s: float
    age_s: float | None
    kv_ratio: float | None
    kv_capacity_tokens: int | None
    counted_tokens: float
    preemptions_per_s: float | None


def calibrate(known: Calibration, sample: Sample) -> Calibration:
    """Move what is known by one sample; stale or missing evidence moves nothing, or slowly towards caution."""
    dt = sample.elapsed_s
    is_stale = sample.age_s is None or sample.age_s > STALE_S
    if not is_stale and (sample.kv_ratio is not None or sample.preemptions_per_s is not None):
        known = replace(known, is_informed=True)
    if not (isfinite(dt) and dt > 0):
        return known
    if is_stale:
        return _grown_old(known, sample.age_s, dt)
    return _learn_kappa(_follow_preemptions(known, sample.preemptions_per_s, dt), sample)


def _grown_old(known: Calibration, age_s: float | None, dt: float) -> Calibration:
    if age_s is None or age_s <= LONG_STALE_S:
        return known
    step = STALE_PULL_PER_S * dt
    target = known.kv_target + max(-step, min(step, STALE_TARGET - known.kv_target))
    return replace(known, kv_target=target)


def _follow_preemptions(known: Calibration, preemptions_per_s: float | None, dt: float) -> Calibration:
    if preemptions_per_s is None or not isfinite(preemptions_per_s):
        return known
    target = known.kv_target
    if preemptions_per_s >= HARD_PREEMPTIONS_PER_S:
        target *= KV_TARGET_FALL_HARD
    elif preemptions_per_s * dt >= 1.0:
        target *= KV_TARGET_FALL
    else:
        target += KV_TARGET_RISE_PER_S * dt
    target = max(min(KV_TARGET_MIN, known.kv_target), min(KV_TARGET_MAX, target))
    return replace(known, kv_target=target)


def _learn_kappa(known: Calibration, sample: Sample) -> Calibration:
    """The ratio of two averages: an average of the ratio lost 3 % of goodput where gauges came late.

    Both begin as if the kappa in force were right. Begun with the first sample, gauges that are 4 s late would tell of an
    empty cache while a cold start fills it: kappa at its least, and a tenth of the goodput lost to preemptions.
    """
    capacity, kv_ratio, counted = sample.kv_capacity_tokens, sample.kv_ratio, sample.counted_tokens
    if not capacity or kv_ratio is None or counted <= KAPPA_MIN_USE * capacity:
        return known
    gain = min(1.0, KAPPA_GAIN_PER_S * sample.elapsed_s)
    before = known.counted_tokens or counted
    measured = _towards(known.measured_tokens or known.kappa * before, kv_ratio * capacity, gain)
    average = _towards(before, counted, gain)
    kappa = max(KAPPA_MIN, min(KAPPA_MAX, measured / average)) if average > 0 else known.kappa
    return replace(known, kappa=kappa, measured_tokens=measured, counted_tokens=average)


def _towards(average: float, value: float, gain: float) -> float:
    return value if average == 0.0 else average + gain * (value - average)


def shares(demand: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """Part of every backend that each gateway gets, sum 1: a fifth evenly, the rest by demand (cost per second).

    `before` are the shares in force: they are followed with DEMAND_GAIN. Nonsense counts as no demand.
    """
    if not demand:
        return {}
    sane = {name: value if isfinite(value) and value > 0 else 0.0 for name, value in sorted(demand.items())}
    total, count = sum(sane.values()), len(sane)
    wanted = {
        name: EVEN_PART / count + (1 - EVEN_PART) * (value / total if total > 0 else 1 / count)
        for name, value in sane.items()
    }
    moved = {name: _towards(before.get(name, 0.0), share, DEMAND_GAIN) for name, share in wanted.items()}
    scale = sum(moved.values())
    return {name: share / scale for name, share in moved.items()}


def seats(share: Mapping[str, float], total: int, rotation: int = 0) -> dict[str, int]:
    """Whole seats per gateway, sum exactly `total`: largest remainder, ties rotated by `rotation` (one per backend)."""
    names: Sequence[str] = sorted(share)
    if not names:
        return {}
    exact = {name: max(0.0, share[name]) * total for name in names}
    whole = {name: floor(value + 1e-9) for name, value in exact.items()}
    start = rotation % len(names)
    order = sorted([*names[start:], *names[:start]], key=lambda name: whole[name] - exact[name])
    left = total - sum(whole.values())
    for name in order[:left]:
        whole[name] += 1
    return whole
