"""Telemetry and reports in, bounds out: one step a second. Pure; the arithmetic itself is `gateway.core.calibration`.

It moves what gateways may use (bounds, shares, seats), never a limit. What is not told stays None: nothing changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp
from typing import Final

from control.frames.histories import Histories, History
from control.observations import Observation
from gateway.contract.bounds import BackendBound, Bounds, GatewayShare
from gateway.contract.snapshot import BackendSpec, PoolSpec, Snapshot
from gateway.core.calibration import Calibration, Sample, calibrate, seats, shares
from gateway.core.policy import LimitPolicy

MEMBER_S: Final = (
    4.0  # heartbeat TTL of 3 s and 1 s of drain: then a dead gateway's share returns to the others
)
DEMAND_TIME_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Version:
    """Who sends: the leader's fencing epoch, and a number that grows with every step."""

    epoch: int
    seq: int


@dataclass(slots=True)
class Tuner:
    """What is remembered from one step to the next."""

    calibrations: dict[str, Calibration] = field(default_factory=dict)
    demand: dict[str, float] = field(default_factory=dict)
    share: dict[str, float] = field(default_factory=dict)
    stepped_at: float | None = None

    def step(
        self,
        snapshot: Snapshot,
        histories: Histories,
        observations: Mapping[str, Observation],
        now: float,
        version: Version,
    ) -> Bounds:
        """The bounds of this second. `now`: epoch seconds."""
        elapsed = 0.0 if self.stepped_at is None else max(0.0, now - self.stepped_at)
        self.stepped_at = now
        members = {n: h for n, h in histories.live(now, MEMBER_S).items() if not h.newest.draining}
        self._share_out(members, elapsed)
        pools = {pool.policy.name: pool for pool in snapshot.pools}
        specs = [spec for spec in snapshot.backends if spec.policy.pool in pools]
        self.calibrations = {s.policy.name: self._known(s, pools[s.policy.pool]) for s in specs}
        rows = [self._bound(s, pools[s.policy.pool], members, observations, (now, elapsed)) for s in specs]
        return Bounds(
            epoch=version.epoch,
            seq=version.seq,
            sent_at=now,
            backends=tuple(rows),
            gateways=tuple(self._seat_out(rows)),
        )

    def _share_out(self, members: Mapping[str, History], elapsed: float) -> None:
        gain = 1.0 - exp(-elapsed / DEMAND_TIME_S)
        asked = {name: sum(g.cost_per_s for g in h.newest.backends) for name, h in members.items()}
        self.demand = {
            name: self.demand[name] + gain * (cost - self.demand[name]) if name in self.demand else cost
            for name, cost in asked.items()
        }
        self.share = shares(self.demand, self.share)

    def _known(self, spec: BackendSpec, pool: PoolSpec) -> Calibration:
        return self.calibrations.get(spec.policy.name) or Calibration(kv_target=pool.policy.limit.kv_target)

    def _bound(
        self,
        spec: BackendSpec,
        pool: PoolSpec,
        members: Mapping[str, History],
        observations: Mapping[str, Observation],
        time: tuple[float, float],
    ) -> BackendBound:
        now, elapsed = time
        name = spec.policy.name
        seen = observations.get(name) or Observation(backend=name)
        told = seen.telemetry
        capacity = told.kv_capacity_tokens or spec.policy.kv_capacity_tokens
        fresh = seen.is_fresh(now)
        self.calibrations[name] = known = calibrate(
            self.calibrations[name],
            Sample(
                elapsed_s=elapsed,
                age_s=seen.age_s(now),
                kv_ratio=told.kv_ratio,
                kv_capacity_tokens=capacity,
                counted_tokens=_counted(members, name),
                preemptions_per_s=seen.rates.preemptions_per_s,
            ),
        )
        limit_max = _limit_max(told.max_seqs or spec.policy.max_seqs, pool.policy.limit)
        return BackendBound(
            backend=name,
            limit_min=min(pool.policy.limit.min_limit, limit_max),
            limit_max=limit_max,
            kv_target=known.kv_target if known.is_informed else None,
            kappa=known.kappa if known.is_informed else None,
            kv_capacity_tokens=capacity,
            engine_running=told.running if fresh else None,
            engine_waiting=told.waiting if fresh else None,
            kv_ratio=told.kv_ratio if fresh else None,
            scraped_at=seen.scraped_at,
        )

    def _seat_out(self, rows: list[BackendBound]) -> list[GatewayShare]:
        by_gateway: dict[str, dict[str, int]] = {name: {} for name in self.share}
        for rotation, row in enumerate(rows):
            for name, whole in seats(self.share, row.limit_max or 0, rotation).items():
                by_gateway[name][row.backend] = whole
        return [
            GatewayShare(gateway=name, share=self.share[name], seats=by_gateway[name]) for name in self.share
        ]


def _limit_max(max_seqs: int | None, limit: LimitPolicy) -> int:
    """The engine's own number of seats, never above what the policy allows."""
    return min(max_seqs, limit.max_limit) if max_seqs else limit.max_limit


def _counted(members: Mapping[str, History], backend: str) -> float:
    return float(
        sum(g.kv_tokens for h in members.values() for g in h.newest.backends if g.backend == backend)
    )
