"""The last seconds of every gateway's reports, and the rates and percentiles that follow from their counters.

Reports carry cumulative counters, so a lost one loses nothing; a new `boot` starts a new history. Percentiles are
interpolated linearly inside a bucket of the histogram that all gateways share.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.contract.report import GatewayReport

RATE_WINDOW_S: Final = (
    1.25  # the newest report against the oldest within this: one second, in half-second steps
)
HISTOGRAM_WINDOW_S: Final = 10.0
FORGET_S: Final = 60.0
MIN_SAMPLES: Final = 3


@dataclass(slots=True)
class History:
    """One boot of one gateway: its reports of the last HISTOGRAM_WINDOW_S, oldest first."""

    boot: str
    seen_at: float  # control's clock when the newest arrived: a gateway's own clock may be an hour off
    reports: deque[GatewayReport] = field(default_factory=deque)

    @property
    def newest(self) -> GatewayReport:
        """The last report."""
        return self.reports[-1]

    def before(self, seconds: float) -> GatewayReport:
        """The oldest report that is not older than that before the newest."""
        start = self.newest.sent_at - seconds
        return next(report for report in self.reports if report.sent_at >= start)


class Histories:
    """Histories by gateway."""

    def __init__(self) -> None:
        self._by_gateway: dict[str, History] = {}

    def add(self, reports: Iterable[GatewayReport], now: float) -> None:
        """Take what the gateways have reported; a report seen before changes nothing."""
        for report in reports:
            history = self._by_gateway.get(report.gateway)
            if history is None or history.boot != report.boot:
                history = self._by_gateway[report.gateway] = History(report.boot, now)
            if not history.reports or report.seq > history.newest.seq:
                history.reports.append(report)
                history.seen_at = now
            while history.newest.sent_at - history.reports[0].sent_at > HISTOGRAM_WINDOW_S:
                history.reports.popleft()
        gone = [name for name, history in self._by_gateway.items() if now - history.seen_at > FORGET_S]
        for name in gone:
            del self._by_gateway[name]

    def all(self) -> Mapping[str, History]:
        """Every gateway heard of within FORGET_S."""
        return self._by_gateway

    def live(self, now: float, ttl_s: float) -> Mapping[str, History]:
        """The gateways whose newest report arrived within `ttl_s`."""
        return {name: h for name, h in self._by_gateway.items() if now - h.seen_at <= ttl_s}


def per_s(new: float, old: float, elapsed_s: float) -> float:
    """Rate of a cumulative counter; 0 where no time passed or it went back."""
    return max(0.0, new - old) / elapsed_s if elapsed_s > 0 else 0.0


def add_buckets(parts: Iterable[Sequence[int]], size: int) -> list[int]:
    """Sum histograms of one shape; one of another shape is left out."""
    result = [0] * size
    for part in parts:
        if len(part) == size:
            result = [a + b for a, b in zip(result, part, strict=True)]
    return result


def subtract_buckets(new: Sequence[int], old: Sequence[int]) -> list[int]:
    """What came in between two cumulative histograms."""
    if len(new) != len(old):
        return list(new)
    return [max(0, a - b) for a, b in zip(new, old, strict=True)]


def percentile(buckets: Sequence[int], bounds: Sequence[float], part: float) -> float | None:
    """The value below which `part` (0..1) of the samples lie; None below MIN_SAMPLES.

    Above the last bound the bound itself is the answer: at least that much.
    """
    samples = sum(buckets)
    if samples < MIN_SAMPLES:
        return None
    rank, below, low = part * samples, 0, 0.0
    for count, high in zip(buckets, bounds, strict=False):
        if count and below + count >= rank:
            return low + (high - low) * (rank - below) / count
        below += count
        low = high
    return bounds[-1]
