"""Plots: the label column beside each chart is its legend and says the newest value of each line."""

from dataclasses import dataclass

from django.utils.translation import gettext as _

from dashboard.charts.figures import Chart, overview_charts
from dashboard.charts.series import Series
from dashboard.panels.scene import Scene
from dashboard.panels.wording import NBSP, count, rate

KV_HIGH = 95.0


@dataclass(frozen=True, slots=True)
class PlotLine:
    """One line of the label column. `value` is empty where there is no data."""

    key: str
    label: str
    style: str
    value: str
    is_swatch: bool


@dataclass(frozen=True, slots=True)
class Plot:
    """One chart's label column."""

    name: str
    title: str
    unit: str
    words: str
    lines: tuple[PlotLine, ...]
    is_last: bool


def plots(scene: Scene) -> tuple[Plot, ...]:
    """All charts of the overview."""
    titles = {
        "queue": (_("Queue depth"), _("Waiting tickets by tier")),
        "drops": (_("Drops by reason"), _("Refused and evicted tickets per second by reason")),
        "rate429": (_("429 rate"), _("429 answers per second by tier")),
        "seats": (_("Seats"), _("In-flight requests against the limit")),
        "kv": (_("KV-cache utilisation"), _("KV-cache utilisation by backend")),
    }
    charts = overview_charts(scene.frame, scene.pool, scene.samples)
    return tuple(_plot(scene, chart, *titles[chart.name]) for chart in charts)


def shape(found: tuple[Plot, ...]) -> str:
    """Which lines there are: when it changes, the figures are asked for again."""
    return " ".join(line.key for plot in found for line in plot.lines)


def _plot(scene: Scene, chart: Chart, title: str, words: str) -> Plot:
    lines = tuple(_line(scene, chart, series) for series in chart.series)
    return Plot(chart.name, title, "/s" if chart.unit == "/s" else "", words, lines, chart.is_last)


def _line(scene: Scene, chart: Chart, series: Series) -> PlotLine:
    value = series.value(scene.samples[-1])
    style = series.style
    if chart.name == "kv" and value is not None and value >= KV_HIGH:
        style += " bad"
    return PlotLine(series.key, series.label, style.strip(), _words(chart, value), chart.stacked)


def _words(chart: Chart, value: float | None) -> str:
    if value is None:
        return ""
    return (rate(value) if chart.digits else count(value)) + (f"{NBSP}%" if chart.unit == " %" else "")
