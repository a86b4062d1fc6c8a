"""Every Prometheus name: documented, bounded, and the same numbers as everywhere else."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from gateway.core.gauges import BackendGauge, GateView, QueueGauge
from gateway.core.vocabulary import BreakerState
from gateway.metrics import MAX_TENANTS, METRICS, Metrics
from gateway.state import Source, State, index
from gateway.tally import Exchange, Tally
from tests.fakes.published import a_snapshot

VIEW = GateView(
    queues=(
        QueueGauge(
            pool="chat", tier=1, waiting=3, oldest_wait_s=0.5, pressure=0.25, waiting_by_tenant=(("acme", 3),)
        ),
    ),
    backends=(
        BackendGauge(
            backend="b1",
            pool="chat",
            limit=8.5,
            reserved_seats=1,
            in_flight=4,
            in_flight_by_tier=(1, 3, 0),
            in_flight_by_tenant=(("acme", 4),),
            kv_tokens=100,
            prefill_tokens=20,
            prefill_ratio=0.1,
            kv_use_ratio=None,
            sequences_ratio=0.5,
            binding=None,
            slow=1.5,
            tpot_s=0.02,
            breaker=BreakerState.HALF_OPEN,
            breaker_until=None,
            failures=2,
            successes=9,
            demand_cost=1000.0,
        ),
    ),
    tickets=7,
    ledger_imbalance=0,
    draining=False,
)


def an_exchange(**facts) -> Exchange:
    return Exchange(at=1.0, request_id="r", pool="chat", tier=1, tenant=facts.pop("tenant", "acme"), **facts)


def told(tally: Tally | None = None, state: State | None = None, **more) -> dict[str, dict[tuple, float]]:
    """Samples by name, then by sorted labels."""
    metrics = Metrics(tally or Tally(), state or State(), lambda: VIEW, **more)
    samples: dict[str, dict[tuple, float]] = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return samples


def a_served_tally() -> Tally:
    tally = Tally()
    exchange = an_exchange(
        wait_s=0.02, ttft_s=0.2, tpot_s=0.01, prompt_tokens=10, output_tokens=5, is_retry=True
    )
    tally.arrived(exchange)
    tally.dispatched(exchange)
    tally.first_token(exchange)
    exchange.outcome, exchange.status = "completed", 200
    tally.ended(exchange)
    return tally


def test_the_documentation_lists_exactly_these_metrics():
    page = Path("docs/metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(sluicegate_\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    assert rows == [(m.name, m.kind, ", ".join(f"`{x}`" for x in m.labels) or "-", m.help) for m in METRICS]


def test_names_carry_their_unit_and_counters_end_in_total():
    for metric in METRICS:
        assert metric.name.startswith("sluicegate_")
        assert metric.name.endswith("_total") == (metric.kind == "counter")


def test_every_documented_name_is_rendered():
    state = State(applied=index(a_snapshot(7), (1, 0, 7), Source.VALKEY))
    singles = {
        m.name: lambda: 1.0
        for m in METRICS
        if m.name.startswith("sluicegate_")
        and not m.labels
        and m.name.rpartition("_")[0]
        in {
            "sluicegate_started_at",
            "sluicegate_usage_spooled",
            "sluicegate_usage_dropped",
            "sluicegate_explanations_dropped",
            "sluicegate_access_lines_dropped",
            "sluicegate_reports_failed",
            "sluicegate_tier_raises_ignored",
            "sluicegate_loop_lag",
        }
    }
    text = Metrics(
        a_served_tally(),
        state,
        lambda: VIEW,
        refused={("snapshot", "forged"): 1},
        quota_decisions={("memory", "granted"): 2},
        singles=singles,
    ).render()
    families = {f.name: f for f in text_string_to_metric_families(text.decode())}
    for metric in METRICS:
        family = families[metric.name.removesuffix("_total")]
        assert family.type == metric.kind
        assert family.samples, metric.name
        labels = set(family.samples[0].labels) - {"le"}
        assert labels == set(metric.labels), metric.name


def test_the_numbers_are_those_of_the_tally_and_the_gate():
    samples = told(a_served_tally(), refused={("snapshot", "forged"): 3})
    tier = (("pool", "chat"), ("tier", "1"))
    assert samples["sluicegate_offered_total"][tier] == 1
    assert samples["sluicegate_output_tokens_total"][tier] == 5
    assert samples["sluicegate_ttft_seconds_sum"][tier] == 0.2
    assert samples["sluicegate_ttft_seconds_bucket"][(("le", "0.2"), *tier)] == 1
    assert samples["sluicegate_ttft_seconds_bucket"][(("le", "0.1"), *tier)] == 0
    assert samples["sluicegate_ttft_seconds_count"][tier] == 1
    assert samples["sluicegate_waiting_tickets"][tier] == 3
    backend = (("backend", "b1"), ("pool", "chat"))
    assert samples["sluicegate_limit_seats"][backend] == 8.5
    accounts = {dict(labels)["account"] for labels in samples["sluicegate_account_use_ratio"]}
    assert accounts == {"prefill", "sequences"}  # unknown is absent, not 0
    states = {dict(labels)["state"]: v for labels, v in samples["sluicegate_breaker_state"].items()}
    assert {s for s, v in states.items() if v} == {"half-open"}
    assert samples["sluicegate_contract_refused_total"] == {(("kind", "snapshot"), ("reason", "forged")): 3}
    assert samples["sluicegate_degraded"] == {(): 1.0}


def test_tenants_beyond_the_first_hundred_share_one_label():
    tally = Tally()
    for n in range(3 * MAX_TENANTS):
        tally.ended(an_exchange(tenant=f"t{n}", outcome="refused", reason="queue_full", status=429))
    rows = told(tally)["sluicegate_tenant_tickets_total"]
    assert len(rows) == MAX_TENANTS + 1
    assert rows[(("outcome", "refused"), ("tenant", "other"))] == 2 * MAX_TENANTS
    assert sum(rows.values()) == 3 * MAX_TENANTS
