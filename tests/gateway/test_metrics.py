"""Every Prometheus name: documented, bounded, and the same numbers as everywhere else."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from gateway.metrics import MAX_TENANTS, METRICS, Metrics
from gateway.state import Source, State, index
from gateway.tally import Tally
from tests.fakes.gauges import VIEW, a_served_tally, an_exchange
from tests.fakes.published import a_snapshot


def told(tally: Tally | None = None, state: State | None = None, **more) -> dict[str, dict[tuple, float]]:
    """Samples by name, then by sorted labels."""
    metrics = Metrics(tally or Tally(), state or State(), lambda: VIEW, **more)
    samples: dict[str, dict[tuple, float]] = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return samples


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
