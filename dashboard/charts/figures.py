"""Figures: plotly's layout and traces as JSON, without data.

All plots of a page share the left margin, the right margin and the x range, so that one instant is one vertical line.
Colours are names of css tokens, `var(--p0)` or `var(--p0/0.55)` with an alpha; the browser resolves them against the
theme. No legend and no hover box: the label column beside each plot is both.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from dashboard.charts.samples import Sample
from dashboard.charts.series import Series, drops, per_backend, per_tier, seats
from gateway.contract.frame import Frame

_DASH = {"dash": "5px,3px", "dot": "2px,2px", "dashdot": "7px,3px,2px,3px"}
_REASON_TOKENS = {
    "fast_reject": "--r-fast-reject",
    "rate_limited": "--r-rate-limited",
    "retry_budget": "--r-retry-budget",
    "early_drop": "--r-early-drop",
    "queue_full": "--r-queue",
    "queue_timeout": "--r-queue",
    "token_limited": "--r-quota",
    "quota_exhausted": "--r-quota",
    "concurrency_limited": "--r-quota",
    "deadline": "--r-deadline",
    "breaker_open": "--r-backend",
    "no_backend": "--r-backend",
    "engine_busy": "--r-backend",
}
LEFT_PX = 40
RIGHT_PX = 8


@dataclass(frozen=True, slots=True)
class Chart:
    """One plot: its lines, how numbers read, and the least upper end of its y axis."""

    name: str
    series: tuple[Series, ...]
    unit: str = ""  # "", "/s" or " %"
    digits: int = 0
    stacked: bool = False
    steps: bool = False
    floor: float = 10.0  # the y axis never ends below this, so that noise looks like noise
    fixed: tuple[float, float] | None = None
    rule: float | None = None
    is_last: bool = False

    @property
    def is_pointless(self) -> bool:
        """Nothing to draw."""
        return not self.series


def overview_charts(frame: Frame, pool: str, samples: Sequence[Sample]) -> tuple[Chart, ...]:
    """The five plots of the overview, top to bottom."""
    return (
        Chart("queue", per_tier(frame, pool, "waiting"), steps=True),
        Chart("drops", drops(pool, samples), unit="/s", digits=1, stacked=True, floor=5.0),
        Chart("rate429", per_tier(frame, pool, "refused_429_per_s"), unit="/s", digits=1, floor=5.0),
        Chart("seats", seats(pool), steps=True),
        Chart("kv", per_backend(frame, pool), unit=" %", fixed=(0.0, 104.0), is_last=True),
    )


def figure_json(chart: Chart) -> dict[str, object]:
    """One figure as plotly's JSON; `meta` carries what the browser needs to feed it."""
    figure = go.Figure(data=[_trace(chart, s) for s in chart.series], layout=_layout(chart))
    plain: dict[str, object] = figure.to_plotly_json()
    plain["data"] = [t.to_plotly_json() for t in figure.data]
    plain["meta"] = {
        "name": chart.name,
        "unit": chart.unit,
        "digits": chart.digits,
        "stacked": chart.stacked,
        "floor": chart.floor,
        "fixed": chart.fixed,
        "series": [s.rule() for s in chart.series],
    }
    return plain


def _token(chart: Chart, series: Series) -> str:
    if chart.name == "drops":
        return _REASON_TOKENS.get(series.style, "--r-other")
    first = series.style.split(" ")[0]
    return {"p0": "--p0", "p1": "--p1", "p2": "--p2", "limit": "--text-2", "accent": "--accent"}.get(
        first, "--s-quiet"
    )


def _trace(chart: Chart, series: Series) -> go.Scatter:
    token = _token(chart, series)
    line: dict[str, object] = {
        "color": f"var({token})",
        "width": 1.8,
        "shape": "hv" if chart.steps else "linear",
        "dash": _DASH.get(series.style.split(" ")[-1], "solid"),
    }
    more: dict[str, object] = {}
    if chart.stacked:
        line["width"] = 0.8
        more = {"stackgroup": "one", "fillcolor": f"var({token}/0.55)"}
    elif series.key == "seats.in_flight":
        more = {"fill": "tozeroy", "fillcolor": f"var({token}/0.13)"}
    return go.Scatter(
        x=[], y=[], mode="lines", name=series.label, connectgaps=False, hoverinfo="skip", line=line, **more
    )


def _layout(chart: Chart) -> go.Layout:
    axis: dict[str, object] = {
        "gridcolor": "var(--grid)",
        "zeroline": False,
        "fixedrange": True,
        "tickfont": {"size": 11, "color": "var(--text-3)"},
        "tickcolor": "var(--line-strong)",
    }
    x = axis | {
        "type": "date",
        "showgrid": False,
        "showline": True,
        "linecolor": "var(--line-strong)",
        "showticklabels": chart.is_last,
        "ticks": "outside" if chart.is_last else "",
        "ticklen": 4,
        "tickformat": "%H:%M",
        "nticks": 9,
    }
    y = axis | {"nticks": 4, "ticks": "", "rangemode": "tozero"}
    if chart.unit == " %":
        y |= {"ticksuffix": chart.unit, "ticklabeloverflow": "allow"}
    if chart.fixed:
        y["range"] = list(chart.fixed)
    return go.Layout(
        margin={"l": LEFT_PX, "r": RIGHT_PX, "t": 9, "b": 24 if chart.is_last else 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        showlegend=False,
        hovermode=False,
        dragmode=False,
        uirevision="keep",
        font={"size": 11, "color": "var(--text-2)"},
        xaxis=x,
        yaxis=y,
        template="none",
    )
