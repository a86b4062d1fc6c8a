"""Series: where in a sample (and, under the same names, in a frame) the numbers of one line are found.

The rule is written once, as data, and travels with the figure: the server reads history with it, the browser reads
live frames with it, so both halves of a line mean the same. A value is the sum of `field` over the rows that match
`where`; it is None where no row has one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dashboard.charts.samples import GAP_S, BackendSample, Sample, TierSample
from gateway.contract.frame import Frame
from gateway.core.vocabulary import ShedReason

ALL_POOLS = ""
BACKENDS_SHOWN = 12
_REASON_ORDER = tuple(ShedReason)


@dataclass(frozen=True, slots=True)
class Series:
    """One line: `rows` is "tiers" or "backends", `where` what a row must equal, `entry` a key inside the field."""

    key: str
    label: str
    rows: str
    where: dict[str, str | int]
    field: str
    entry: str | None = None
    scale: float = 1.0
    style: str = ""  # css class of the key line or swatch: p0, p1, p2, a shed reason, dash, ...

    def value(self, sample: Sample) -> float | None:
        """This line's value in one sample."""
        rows: Sequence[TierSample | BackendSample] = sample.tiers if self.rows == "tiers" else sample.backends
        found = [self._read(row) for row in rows if all(getattr(row, k) == v for k, v in self.where.items())]
        known = [v for v in found if v is not None]
        return sum(known) * self.scale if known else None

    def _read(self, row: TierSample | BackendSample) -> float | None:
        value: dict[str, float] | float | None = getattr(row, self.field)
        return value.get(self.entry or "", 0.0) if isinstance(value, dict) else value

    def rule(self) -> dict[str, object]:
        """The rule as the browser gets it."""
        return {
            "key": self.key,
            "rows": self.rows,
            "where": self.where,
            "field": self.field,
            "entry": self.entry,
            "scale": self.scale,
        }


def tier_name(tier: int) -> str:
    """P0, P1, P2: what a tier is called everywhere."""
    return f"P{tier}"


def tier_style(tier: int) -> str:
    """The css class of a tier; tiers below P2 share its colour."""
    return f"p{min(tier, 2)}"


def _where(pool: str, **more: str | int) -> dict[str, str | int]:
    return more if pool == ALL_POOLS else {"pool": pool, **more}


def tiers_of(frame: Frame, pool: str) -> tuple[int, ...]:
    """The tiers that a pool (or all of them) has, in order."""
    return tuple(sorted({t.tier for t in frame.tiers if pool in (ALL_POOLS, t.pool)}))


def per_tier(frame: Frame, pool: str, field: str) -> tuple[Series, ...]:
    """One line per tier."""
    return tuple(
        Series(
            f"{tier_name(t)}.{field}", tier_name(t), "tiers", _where(pool, tier=t), field, style=tier_style(t)
        )
        for t in tiers_of(frame, pool)
    )


def drops(pool: str, samples: Sequence[Sample]) -> tuple[Series, ...]:
    """One area per shed reason that occurred, always in the same order: layers never change places while one looks."""
    found = {
        reason
        for sample in samples
        for tier in sample.tiers
        if pool in (ALL_POOLS, tier.pool)
        for reason, rate in tier.shed_per_s.items()
        if rate > 0
    }
    seen = sorted(found, key=lambda reason: (_rank(reason), reason))
    return tuple(
        Series(f"drops.{reason}", reason, "tiers", _where(pool), "shed_per_s", reason, style=reason)
        for reason in seen
    )


def _rank(reason: str) -> int:
    return _REASON_ORDER.index(ShedReason(reason)) if reason in set(ShedReason) else len(_REASON_ORDER)


def per_backend(frame: Frame, pool: str) -> tuple[Series, ...]:
    """KV-cache utilisation in percent, one line per backend (the first twelve by name), told apart by dash."""
    styles = ("", "dash", "dot", "dashdot")
    backends = sorted((b for b in frame.backends if pool in (ALL_POOLS, b.pool)), key=lambda b: b.backend)
    return tuple(
        Series(
            f"{b.pool}/{b.backend}.kv",
            b.backend,
            "backends",
            {"pool": b.pool, "backend": b.backend},
            "kv_ratio",
            scale=100.0,
            style=styles[i % len(styles)],
        )
        for i, b in enumerate(backends[:BACKENDS_SHOWN])
    )


def seats(pool: str) -> tuple[Series, ...]:
    """In-flight against the limit, over the backends of a pool."""
    where = _where(pool)
    return (
        Series("seats.limit", "limit", "backends", where, "limit", style="limit dash"),
        Series("seats.in_flight", "in flight", "backends", where, "in_flight", style="accent"),
    )


def columns(samples: Sequence[Sample], series: Sequence[Series]) -> dict[str, object]:
    """History for the browser: `at` in epoch milliseconds and one list per line; None marks a hole."""
    at: list[float] = []
    values: dict[str, list[float | None]] = {s.key: [] for s in series}
    for sample in samples:
        if at and sample.at * 1000 - at[-1] > GAP_S * 1000:
            at.append(at[-1] + 1000)
            for column in values.values():
                column.append(None)
        at.append(round(sample.at * 1000))
        for s in series:
            value = s.value(sample)
            values[s.key].append(None if value is None else round(value, 3))
    return {"at": at, "values": values}
