"""The slow loop as the simulation runs it: once a second, with the arithmetic that control uses.

It may be dead from the start or die on the way, get its gauges late (they look fresh and are not), or get none.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from gateway.core import calibration
from gateway.core.calibration import Calibration, Sample
from gateway.core.events import BackendBounds, BoundsReceived
from gateway.core.gauges import GateView
from gateway.simulation.model import Engine

PERIOD_S = 1.0
DEMAND_GAIN = PERIOD_S / 5.0  # an average over 5 s


class Gauges(Enum):
    """What telemetry the slow loop gets."""

    FRESH = auto()
    LATE = auto()
    NONE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class OuterSpec:
    """How well the slow loop is. `dies_at_s` 0: it never lived."""

    gauges: Gauges = Gauges.FRESH
    late_s: float = 4.0
    dies_at_s: float | None = None
    kv_target: float = 0.90


@dataclass(frozen=True, slots=True)
class _Telemetry:
    running: int
    waiting: int
    kv_ratio: float
    preemptions: int


class Outer:
    """The slow loop's memory."""

    def __init__(
        self, spec: OuterSpec, engines: Sequence[Engine], names: Sequence[str], gateways: int
    ) -> None:
        """`names` are the backends' names, in the order of `engines`."""
        self._spec = spec
        self._engines = engines
        self._names = names
        self._known = [Calibration(kv_target=spec.kv_target) for _ in engines]
        self._seen: deque[tuple[float, tuple[_Telemetry, ...]]] = deque()
        self._preemptions = [0] * len(engines)
        self._gateways = [f"g{index}" for index in range(gateways)]
        self._demand = dict.fromkeys(self._gateways, 0.0)
        self._dispatched = dict.fromkeys(self._gateways, 0.0)
        self._shares = dict.fromkeys(self._gateways, 1.0 / gateways)
        self._told = dict(self._shares)

    def is_alive(self, now: float) -> bool:
        """Whether it still runs."""
        return self._spec.dies_at_s is None or now < self._spec.dies_at_s

    def tick(self, views: Sequence[GateView], now: float) -> list[BoundsReceived]:
        """One second's work: bounds for each gateway, in the order of `views`."""
        telemetry = self._telemetry(now)
        self._calibrate(views, telemetry)
        shares = self._share(views)
        seats = [
            calibration.seats(shares, engine.spec.seats, rotation=index)
            for index, engine in enumerate(self._engines)
        ]
        bounds = []
        for gateway in self._gateways:
            backends = tuple(
                self._bound(index, seats[index][gateway], telemetry) for index in range(len(self._engines))
            )
            bounds.append(BoundsReceived(share=shares[gateway], backends=backends))
        return bounds

    def _telemetry(self, now: float) -> tuple[_Telemetry, ...] | None:
        read = tuple(
            _Telemetry(len(engine.running), len(engine.waiting), engine.kv_ratio, engine.counters.preemptions)
            for engine in self._engines
        )
        self._seen.append((now, read))
        if self._spec.gauges is Gauges.NONE:
            self._seen.clear()
            return None
        if self._spec.gauges is Gauges.FRESH:
            self._seen.popleft()
            return read
        found = None
        while self._seen and self._seen[0][0] <= now - self._spec.late_s + 1e-6:
            found = self._seen.popleft()[1]
        return found

    def _calibrate(self, views: Sequence[GateView], telemetry: tuple[_Telemetry, ...] | None) -> None:
        for index, name in enumerate(self._names):
            counted = sum(
                gauge.kv_tokens for view in views for gauge in view.backends if gauge.backend == name
            )
            read = None if telemetry is None else telemetry[index]
            preempted = None
            if read is not None:
                preempted = max(0, read.preemptions - self._preemptions[index]) / PERIOD_S
                self._preemptions[index] = read.preemptions
            sample = Sample(
                elapsed_s=PERIOD_S,
                age_s=None if read is None else 0.0,
                kv_ratio=None if read is None else read.kv_ratio,
                kv_capacity_tokens=self._engines[index].spec.kv_tokens or None,
                counted_tokens=counted,
                preemptions_per_s=preempted,
            )
            self._known[index] = calibration.calibrate(self._known[index], sample)

    def _share(self, views: Sequence[GateView]) -> dict[str, float]:
        for gateway, view in zip(self._gateways, views, strict=True):
            dispatched = sum(gauge.demand_cost for gauge in view.backends)
            queued = sum(queue.waiting_cost for queue in view.queues)
            wanted = dispatched - self._dispatched[gateway] + queued
            self._dispatched[gateway] = dispatched
            self._demand[gateway] += DEMAND_GAIN * (wanted - self._demand[gateway])
        wanted_shares = calibration.shares(self._demand, self._shares)
        told = {name: min(share, self._shares[name]) for name, share in wanted_shares.items()}
        self._shares = wanted_shares  # rises are told one second later, so that the sum never exceeds 1
        self._told = told
        return told

    def _bound(self, index: int, seats: int, telemetry: tuple[_Telemetry, ...] | None) -> BackendBounds:
        known = self._known[index]
        read = None if telemetry is None else telemetry[index]
        spec = self._engines[index].spec
        return BackendBounds(
            backend=self._names[index],
            limit_max=spec.seats,
            seats=seats,
            kv_target=known.kv_target if known.is_informed else None,
            kappa=known.kappa if known.is_informed else None,
            kv_capacity_tokens=spec.kv_tokens or None,
            engine_running=None if read is None else read.running,
            engine_waiting=None if read is None else read.waiting,
            kv_ratio=None if read is None else read.kv_ratio,
            telemetry_age_s=None if read is None else 0.0,
        )
