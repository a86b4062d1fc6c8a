"""What every dialect shares: Telemetry, a tolerant line parser, and the table form in which an engine's names are given.

The parser reads the Prometheus text format line by line: one bad line loses one line. Bounded by MAX_PAGE_BYTES and
MAX_SAMPLES. NaN, infinite and negative values are dropped, so that "not told" and "nonsense" look the same: None.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, Protocol

MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
MAX_SAMPLES: Final = 20_000
MAX_COUNT: Final = 10_000_000  # more sequences, tokens per block or blocks than this are nonsense
KV_TOLERANCE: Final = 1.05  # a ratio slightly above 1 is rounding, more is another unit

Samples = Mapping[str, Mapping[str, float]]  # metric name -> its labels as text -> value


@dataclass(frozen=True, slots=True)
class Total:
    """A cumulative pair: how many observations, and their sum in seconds."""

    count: float
    sum_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """What one scrape told. None: the engine doesn't say, or said nonsense. Never 0 for unknown."""

    running: int | None = None
    waiting: int | None = None
    kv_ratio: float | None = None
    kv_source: str | None = None  # "gauge" or "slots"
    kv_capacity_tokens: int | None = None
    max_seqs: int | None = None
    context_tokens: int | None = None
    preemptions_total: float | None = None
    output_tokens_total: float | None = None
    rejections_total: float | None = None
    ttft: Total | None = None
    tpot: Total | None = None
    started_at: float | None = None  # epoch seconds of the engine process

    @property
    def is_empty(self) -> bool:
        """Whether nothing was understood: a page of something else."""
        return self.running is None and self.waiting is None and self.kv_ratio is None


@dataclass(frozen=True, slots=True)
class Source:
    """Where a number is found: names in order of preference, labels that must be there, how several series combine."""

    names: tuple[str, ...]
    labels: tuple[tuple[str, str], ...] = ()
    worst: bool = False  # True: the largest of the series (utilisation); False: their sum

    def read(self, samples: Samples) -> float | None:
        """The value, None where no name is present."""
        for name in self.names:
            series = samples.get(name)
            values = [v for labels, v in series.items() if self._has(labels)] if series else []
            if values:
                return max(values) if self.worst else finite(sum(values))
        return None

    def _has(self, labels: str) -> bool:
        return all(f'{name}="{value}"' in labels for name, value in self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """An engine's names by canonical meaning. A field left out is something this engine doesn't tell."""

    running: Source | None = None
    waiting: Source | None = None
    kv_ratio: Source | None = None
    max_seqs: Source | None = None
    preemptions_total: Source | None = None
    output_tokens_total: Source | None = None
    rejections_total: Source | None = None
    ttft: tuple[str, ...] = ()  # histogram base names, seconds
    tpot: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()  # further names that the dialect's own code reads
    wanted: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        sources = (
            self.running,
            self.waiting,
            self.kv_ratio,
            self.max_seqs,
            self.preemptions_total,
            self.output_tokens_total,
            self.rejections_total,
        )
        names = {name for source in sources if source for name in source.names}
        names |= {f"{base}_{part}" for base in self.ttft + self.tpot for part in ("sum", "count")}
        object.__setattr__(
            self, "wanted", frozenset(names | set(self.extra) | {"process_start_time_seconds"})
        )

    def read(self, samples: Samples, **known: object) -> Telemetry:
        """Telemetry from parsed samples; `known` are fields that the dialect worked out by itself."""
        kv_ratio = ratio(_value(self.kv_ratio, samples))
        fields = {
            "running": count(_value(self.running, samples)),
            "waiting": count(_value(self.waiting, samples)),
            "kv_ratio": kv_ratio,
            "kv_source": None if kv_ratio is None else "gauge",
            "max_seqs": count(_value(self.max_seqs, samples)) or None,
            "preemptions_total": _value(self.preemptions_total, samples),
            "output_tokens_total": _value(self.output_tokens_total, samples),
            "rejections_total": _value(self.rejections_total, samples),
            "ttft": total(self.ttft, samples),
            "tpot": total(self.tpot, samples),
            "started_at": Source(("process_start_time_seconds",), worst=True).read(samples),
        }
        return Telemetry(**{**fields, **known})  # type: ignore[arg-type]  # names are Telemetry's own


class Dialect(Protocol):
    """How one engine is asked and understood."""

    name: str
    interval_s: float  # no scrape sooner than this after the last one
    paths: tuple[str, ...]  # asked at each scrape
    facts_paths: tuple[str, ...]  # asked once after the engine started: they don't change while it runs

    def read(self, pages: Mapping[str, bytes]) -> Telemetry:
        """Understand pages by path; a page that is missing or nonsense loses what it would have told."""


def parse(page: bytes, wanted: frozenset[str]) -> dict[str, dict[str, float]]:
    """Samples of the wanted names. A series given twice counts once, the later line wins."""
    samples: dict[str, dict[str, float]] = {}
    found = 0
    for line in page[:MAX_PAGE_BYTES].decode("utf-8", "replace").split("\n"):
        name_end = _name_end(line)
        if name_end <= 0 or line[:name_end] not in wanted:
            continue
        labels, value = _labels_and_value(line, name_end)
        if value is None:
            continue
        samples.setdefault(line[:name_end], {})[labels] = value
        found += 1
        if found >= MAX_SAMPLES:
            break
    return samples


def _name_end(line: str) -> int:
    brace, space = line.find("{"), line.find(" ")
    if brace < 0 or 0 <= space < brace:
        return space
    return brace


def _labels_and_value(line: str, name_end: int) -> tuple[str, float | None]:
    labels, rest = "", line[name_end:]
    if rest[0] == "{":
        end = rest.rfind("}")
        if end < 0:
            return "", None
        labels, rest = rest[1:end], rest[end + 1 :]
    words = rest.split(None, 2)
    try:
        value = float(words[0]) if words else -1.0
    except ValueError:
        return "", None
    return labels, value if isfinite(value) and value >= 0 else None


def label(labels: str, name: str) -> str | None:
    """The value of one label in a label text; None where it is missing."""
    _, found, rest = f",{labels}".partition(f',{name}="')
    return rest.partition('"')[0] if found else None


def count(value: float | None) -> int | None:
    """A plausible count, else None."""
    return None if value is None or value > MAX_COUNT else int(value)


def ratio(value: float | None) -> float | None:
    """A plausible ratio 0..1, else None."""
    return None if value is None or value > KV_TOLERANCE else min(value, 1.0)


def product(*values: float | None) -> int | None:
    """The product of plausible counts, None where one is missing or 0."""
    result = 1.0
    for value in values:
        if not value or value > MAX_COUNT:
            return None
        result *= value
    return int(result)


def total(bases: Sequence[str], samples: Samples) -> Total | None:
    """Sum and count of the first histogram that is present, over all its series."""
    for base in bases:
        counts, sums = samples.get(f"{base}_count"), samples.get(f"{base}_sum")
        if counts and sums:
            return _total(sum(counts.values()), sum(sums.values()))
    return None


def _total(count_: float, sum_s: float) -> Total | None:
    return Total(count_, sum_s) if isfinite(count_) and isfinite(sum_s) else None


def finite(value: float) -> float | None:
    """A number, None where finite ones were added up to none."""
    return value if isfinite(value) else None


def only_model(samples: dict[str, dict[str, float]], models: Iterable[str]) -> dict[str, dict[str, float]]:
    """Keep the series of these model names where any series carries one of them; else keep all."""
    marks = tuple(f'model_name="{model}"' for model in models)
    chosen = {
        name: {labels: v for labels, v in series.items() if any(mark in labels for mark in marks)}
        for name, series in samples.items()
    }
    return {name: chosen[name] or dict(series) for name, series in samples.items()}


def _value(source: Source | None, samples: Samples) -> float | None:
    return None if source is None else source.read(samples)
