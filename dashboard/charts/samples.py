"""Samples: the few numbers of a frame that are kept for fifteen minutes.

A frame is up to 16 KB; a sample is what the charts, the sparklines and "since when" need of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.contract.frame import Frame

KEPT_S = 900
GAP_S = 2.5  # frames come each second; more than this between two is a hole in the line, never a bridge


@dataclass(frozen=True, slots=True)
class TierSample:
    """One (pool, tier) in one second."""

    pool: str
    tier: int
    offered_per_s: float
    admitted_per_s: float
    shed_per_s: dict[str, float]
    refused_429_per_s: float
    waiting: int


@dataclass(frozen=True, slots=True)
class BackendSample:
    """One backend in one second."""

    backend: str
    pool: str
    limit: float
    in_flight: int
    kv_ratio: float | None
    binding: str | None
    breaker: str


@dataclass(frozen=True, slots=True)
class TenantSample:
    """What one tenant sent in one second."""

    tenant: str
    pool: str
    tier: int
    offered_per_s: float


@dataclass(frozen=True, slots=True)
class Sample:
    """What is kept of one frame. `at` is in epoch seconds."""

    at: float
    tiers: tuple[TierSample, ...]
    backends: tuple[BackendSample, ...]
    tenants: tuple[TenantSample, ...]


def sample_of(frame: Frame) -> Sample:
    """The sample of one frame."""
    return Sample(
        at=frame.at,
        tiers=tuple(
            TierSample(
                t.pool,
                t.tier,
                t.offered_per_s,
                t.admitted_per_s,
                t.shed_per_s,
                t.refused_429_per_s,
                t.waiting,
            )
            for t in frame.tiers
        ),
        backends=tuple(
            BackendSample(b.backend, b.pool, b.limit, b.in_flight, b.kv_ratio, b.binding, b.breaker.state)
            for b in frame.backends
        ),
        tenants=tuple(TenantSample(t.tenant, t.pool, t.tier, t.offered_per_s) for t in frame.tenants),
    )


def since(samples: Sequence[Sample], from_s: float) -> Sequence[Sample]:
    """The samples not older than `from_s` (epoch seconds); samples are in order of time."""
    start = len(samples)
    while start > 0 and samples[start - 1].at >= from_s:
        start -= 1
    return samples[start:]
