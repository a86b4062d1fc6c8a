"""Every Prometheus name of the gateway, read at scrape time from where the numbers live (tally, gate, state).

Nothing is counted here: `/metrics` shows the same integers as the reports. Labels are bounded: pools, tiers, backends
and tenants are those of the snapshot, and beyond `MAX_TENANTS` tenants share the label `other`.
docs/metrics.md is checked against `METRICS` by a test.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from gateway.core.gauges import GateView
from gateway.core.vocabulary import BreakerState
from gateway.state import State
from gateway.tally import Histogram, Tally

MAX_TENANTS = 100
OTHER = "other"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Rows = Iterable[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class Metric:
    """One Prometheus name. `kind`: counter, gauge or histogram."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


_TIER = ("pool", "tier")
_BACKEND = ("backend", "pool")

METRICS = (
    Metric("sluicegate_offered_total", "counter", _TIER, "Tickets that arrived."),
    Metric("sluicegate_admitted_total", "counter", _TIER, "Tickets that were dispatched to a backend."),
    Metric(
        "sluicegate_tickets_total",
        "counter",
        (*_TIER, "outcome", "reason"),
        "Tickets that ended, by outcome and, where shed or failed, by reason.",
    ),
    Metric("sluicegate_fallbacks_total", "counter", _TIER, "Tickets answered from the pool's fallback."),
    Metric("sluicegate_retries_total", "counter", _TIER, "Tickets that their caller marked as a retry."),
    Metric("sluicegate_prompt_tokens_total", "counter", _TIER, "LLM tokens of prompts that were dispatched."),
    Metric("sluicegate_output_tokens_total", "counter", _TIER, "LLM tokens that were generated."),
    Metric(
        "sluicegate_goodput_tokens_total",
        "counter",
        _TIER,
        "Output LLM tokens of complete answers within both objectives.",
    ),
    Metric(
        "sluicegate_wasted_tokens_total", "counter", _TIER, "LLM tokens generated for callers that had left."
    ),
    Metric("sluicegate_ttft_seconds", "histogram", _TIER, "Arrival to first token."),
    Metric("sluicegate_tpot_seconds", "histogram", _TIER, "Mean time per output token after the first."),
    Metric("sluicegate_wait_seconds", "histogram", _TIER, "Arrival to dispatch."),
    Metric("sluicegate_waiting_tickets", "gauge", _TIER, "Tickets in the queue."),
    Metric("sluicegate_oldest_wait_seconds", "gauge", _TIER, "How long the oldest ticket has waited."),
    Metric("sluicegate_pressure_ratio", "gauge", _TIER, "How near this tier is to shedding, 0 to 1."),
    Metric(
        "sluicegate_tenant_tickets_total",
        "counter",
        ("tenant", "outcome"),
        "Tickets that ended, by tenant; beyond the first 100 tenants, `other`.",
    ),
    Metric(
        "sluicegate_responses_total", "counter", ("status",), "Requests by the status they were answered."
    ),
    Metric("sluicegate_limit_seats", "gauge", _BACKEND, "Current limit of a backend."),
    Metric(
        "sluicegate_in_flight_tickets", "gauge", _BACKEND, "Tickets dispatched to a backend, not finished."
    ),
    Metric("sluicegate_kv_tokens", "gauge", _BACKEND, "LLM tokens charged to a backend's KV account."),
    Metric("sluicegate_prefill_tokens", "gauge", _BACKEND, "LLM tokens in a backend's prefill backlog."),
    Metric(
        "sluicegate_account_use_ratio",
        "gauge",
        (*_BACKEND, "account"),
        "Use of each of a backend's accounts; absent where unknown.",
    ),
    Metric("sluicegate_slow_factor", "gauge", _BACKEND, "How much slower than its best a backend is."),
    Metric(
        "sluicegate_breaker_state", "gauge", (*_BACKEND, "state"), "1 for the state that the breaker is in."
    ),
    Metric("sluicegate_backend_failures_total", "counter", _BACKEND, "Failures that count for the breaker."),
    Metric("sluicegate_backend_successes_total", "counter", _BACKEND, "Answers that count for the breaker."),
    Metric("sluicegate_ledger_imbalance", "gauge", (), "Seats, tokens and charges held by nobody: always 0."),
    Metric("sluicegate_open_tickets", "gauge", (), "Tickets inside the gate."),
    Metric("sluicegate_snapshot_revision", "gauge", (), "Policy revision in force; 0: none yet."),
    Metric("sluicegate_bounds_epoch", "gauge", (), "Epoch of the bounds in force."),
    Metric("sluicegate_bounds_sequence", "gauge", (), "Sequence of the bounds in force within their epoch."),
    Metric("sluicegate_overrides_version", "gauge", (), "Version of the set of overrides in force."),
    Metric(
        "sluicegate_contract_refused_total",
        "counter",
        ("kind", "reason"),
        "Bodies from control that were refused; the last good one stayed.",
    ),
    Metric("sluicegate_degraded", "gauge", (), "1 while Valkey is away: serving from what was known."),
    Metric("sluicegate_draining", "gauge", (), "1 after SIGTERM."),
    Metric("sluicegate_started_at_seconds", "gauge", (), "When this process started, epoch seconds."),
    Metric(
        "sluicegate_quota_decisions_total",
        "counter",
        ("how", "verdict"),
        "Reservations by how they were decided: memory, valkey (waited for a lease), alone (local share).",
    ),
    Metric("sluicegate_usage_spooled_bytes", "gauge", (), "Usage that waits on disk for Valkey."),
    Metric("sluicegate_usage_dropped_total", "counter", (), "Usage deltas lost because the spool was full."),
    Metric("sluicegate_explanations_dropped_total", "counter", (), "Explanations that found no room."),
    Metric("sluicegate_access_lines_dropped_total", "counter", (), "Access lines that nobody read in time."),
    Metric("sluicegate_reports_failed_total", "counter", (), "Reports that could not be published."),
    Metric("sluicegate_tier_raises_ignored_total", "counter", (), "Attempts of callers to raise their tier."),
    Metric(
        "sluicegate_loop_lag_seconds", "gauge", (), "Longest delay of the event loop since the last report."
    ),
)
_BY_NAME = {metric.name: metric for metric in METRICS}
_TIER_COUNTERS = (
    "offered",
    "admitted",
    "retries",
    "prompt_tokens",
    "output_tokens",
    "goodput_tokens",
    "wasted_tokens",
)


@dataclass(slots=True, eq=False)
class Metrics(Collector):
    """Renders `/metrics`. `singles` gives the values of the names without labels that live elsewhere, by name."""

    tally: Tally
    state: State
    view: Callable[[], GateView]
    refused: Mapping[tuple[str, str], int] = field(default_factory=dict)
    quota_decisions: Mapping[tuple[str, str], int] = field(default_factory=dict)
    singles: dict[str, Callable[[], float]] = field(default_factory=dict)
    _registry: CollectorRegistry = field(default_factory=lambda: CollectorRegistry(auto_describe=False))

    def __post_init__(self) -> None:
        """Register this collector and the process's own (memory, CPU, descriptors)."""
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Family]:
        """Nothing in advance: registering must not need a gate."""
        return ()

    def collect(self) -> Iterator[Family]:
        """All families, at this instant."""
        view = self.view()
        yield from self._tiers()
        yield from self._traffic()
        yield from _queues(view)
        yield from _backends(view)
        yield from self._own(view)

    def _tiers(self) -> Iterator[Family]:
        tiers = {(pool, str(rank)): tally for (pool, rank), tally in self.tally.tiers.items()}
        for name in _TIER_COUNTERS:
            yield _family(f"sluicegate_{name}_total", ((k, getattr(t, name)) for k, t in tiers.items()))
        yield _family("sluicegate_fallbacks_total", ((k, t.fallback) for k, t in tiers.items()))
        for name in ("ttft", "tpot", "wait"):
            yield _histogram(f"sluicegate_{name}_seconds", {k: getattr(t, name) for k, t in tiers.items()})

    def _traffic(self) -> Iterator[Family]:
        traffic = self.tally.traffic
        tickets: dict[tuple[str, ...], float] = {}
        tenants: dict[tuple[str, ...], float] = {}
        shown = dict.fromkeys(tenant for _, _, tenant, _, _ in traffic)
        named = set(list(shown)[:MAX_TENANTS])
        for (pool, rank, tenant, outcome, reason), count in traffic.items():
            _add(tickets, (pool, str(rank), outcome, reason), count)
            _add(tenants, (tenant if tenant in named else OTHER, outcome), count)
        yield _family("sluicegate_tickets_total", tickets.items())
        yield _family("sluicegate_tenant_tickets_total", tenants.items())
        responses = self.tally.responses
        yield _family("sluicegate_responses_total", (((str(s),), n) for s, n in responses.items()))

    def _own(self, view: GateView) -> Iterator[Family]:
        state = self.state
        values: dict[str, float] = {
            "sluicegate_ledger_imbalance": view.ledger_imbalance,
            "sluicegate_open_tickets": view.tickets,
            "sluicegate_snapshot_revision": state.applied.revision if state.applied else 0,
            "sluicegate_bounds_epoch": state.bounds_version[1],
            "sluicegate_bounds_sequence": state.bounds_version[2],
            "sluicegate_overrides_version": state.overrides_version,
            "sluicegate_degraded": state.degraded,
            "sluicegate_draining": state.draining,
        }
        values |= {name: read() for name, read in self.singles.items()}
        for name, value in values.items():
            yield _family(name, [((), value)])
        yield _family("sluicegate_contract_refused_total", self.refused.items())
        yield _family("sluicegate_quota_decisions_total", self.quota_decisions.items())


def _queues(view: GateView) -> Iterator[Family]:
    queues = {(q.pool, str(q.tier)): q for q in view.queues}
    yield _family("sluicegate_waiting_tickets", ((k, q.waiting) for k, q in queues.items()))
    yield _family("sluicegate_oldest_wait_seconds", ((k, q.oldest_wait_s) for k, q in queues.items()))
    yield _family("sluicegate_pressure_ratio", ((k, q.pressure) for k, q in queues.items()))


def _backends(view: GateView) -> Iterator[Family]:
    backends = {(b.backend, b.pool): b for b in view.backends}
    for name, attribute in (
        ("sluicegate_limit_seats", "limit"),
        ("sluicegate_in_flight_tickets", "in_flight"),
        ("sluicegate_kv_tokens", "kv_tokens"),
        ("sluicegate_prefill_tokens", "prefill_tokens"),
        ("sluicegate_slow_factor", "slow"),
        ("sluicegate_backend_failures_total", "failures"),
        ("sluicegate_backend_successes_total", "successes"),
    ):
        yield _family(name, ((k, getattr(b, attribute)) for k, b in backends.items()))
    uses = [
        ((*k, account), ratio)
        for k, b in backends.items()
        for account, ratio in (
            ("prefill", b.prefill_ratio),
            ("kv", b.kv_use_ratio),
            ("sequences", b.sequences_ratio),
        )
        if ratio is not None
    ]
    yield _family("sluicegate_account_use_ratio", uses)
    states = [((*k, state), float(b.breaker is state)) for k, b in backends.items() for state in BreakerState]
    yield _family("sluicegate_breaker_state", states)


def _add(sums: dict[tuple[str, ...], float], key: tuple[str, ...], count: float) -> None:
    sums[key] = sums.get(key, 0.0) + count


def _family(name: str, rows: Rows) -> Family:
    """A counter or gauge with its values. A name that is not in `METRICS` is a mistake of ours: KeyError."""
    metric = _BY_NAME[name]
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(name, metric.help, labels=metric.labels)
    for labels, value in rows:
        family.add_metric(labels, value)
    return family


def _histogram(name: str, rows: Mapping[tuple[str, str], Histogram]) -> Family:
    metric = _BY_NAME[name]
    family = HistogramMetricFamily(name, metric.help, labels=metric.labels)
    for labels, histogram in rows.items():
        total, buckets = 0, []
        for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else repr(bound), total))
        family.add_metric(labels, buckets, sum_value=histogram.total)
    return family
