import json
import re

from dashboard.charts.figures import figure_json, overview_charts
from dashboard.charts.samples import sample_of
from tests.fakes.scenes import frame, shedding, tier

WHOLE = frame(tiers=(tier(0), shedding(2, 9.0)))
FIGURES = {c.name: figure_json(c) for c in overview_charts(WHOLE, "chat", [sample_of(WHOLE)])}


def test_the_overview_has_five_plots_in_the_order_of_the_page():
    assert list(FIGURES) == ["queue", "drops", "rate429", "seats", "kv"]


def test_figures_are_plain_json_without_data():
    told = json.loads(json.dumps(FIGURES))
    assert all(trace["x"] == [] and trace["y"] == [] for f in told.values() for trace in f["data"])


def test_all_plots_share_margins_so_that_one_instant_is_one_line():
    assert {(f["layout"]["margin"]["l"], f["layout"]["margin"]["r"]) for f in FIGURES.values()} == {(40, 8)}


def test_only_the_last_plot_has_labels_on_its_time_axis():
    assert [f["layout"]["xaxis"]["showticklabels"] for f in FIGURES.values()] == [False] * 4 + [True]


def test_gaps_are_never_bridged():
    assert all(trace["connectgaps"] is False for f in FIGURES.values() for trace in f["data"])


def test_colours_are_names_of_tokens_that_the_style_sheet_has(request):
    sheet = (request.config.rootpath / "dashboard/static/dashboard/sluicegate.css").read_text()
    used = set(re.findall(r"var\((--[a-z0-9-]+)", json.dumps(FIGURES)))
    assert used
    assert all(f"  {token}: " in sheet or f" {token}: " in sheet for token in used)
    assert not re.search(r"#[0-9a-fA-F]{3,8}", json.dumps(FIGURES))


def test_each_trace_has_its_rule():
    for figure in FIGURES.values():
        assert len(figure["meta"]["series"]) == len(figure["data"])


def test_no_text_of_a_figure_carries_markup_that_the_policy_refuses():
    assert "<" not in json.dumps(FIGURES)
