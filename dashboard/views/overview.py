"""Overview: the whole page, and the part of it that each frame renews."""

import time
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string

from control import selectors
from dashboard.charts.figures import figure_json, overview_charts
from dashboard.charts.samples import since
from dashboard.charts.series import ALL_POOLS, columns
from dashboard.panels.backends import cards
from dashboard.panels.chrome import chrome
from dashboard.panels.feed import feed, marks
from dashboard.panels.plots import plots, shape
from dashboard.panels.scene import Scene
from dashboard.panels.tenants import tenant_rows
from dashboard.panels.tiles import tiles
from dashboard.panels.valve import lanes, retries_words, valve
from dashboard.panels.verdict import verdict
from dashboard.panels.wording import stamp
from dashboard.stream.history import Recent
from dashboard.views.page import Page, viewer_page

EVERY_POOL = "all"  # in the URL; an empty value means the first pool
RANGES_S = {"5m": 300, "15m": 900}
ORDERS = ("shed", "use")


@viewer_page
def overview(request: HttpRequest, page: Page) -> HttpResponse:
    """The page. Without a frame it still loads and says what is missing."""
    names = pool_names(page.recent)
    pool = chosen_pool(request.GET.get("pool", ""), names)
    by = request.GET.get("by", "") if request.GET.get("by") in ORDERS else ORDERS[0]
    chosen_range = request.GET.get("range", "") if request.GET.get("range") in RANGES_S else "15m"
    context = page.shell("overview") | {
        "pools": names,
        "pool": pool,
        "pool_in_url": EVERY_POOL if pool == ALL_POOLS else pool,
        "by": by,
        "range": chosen_range,
        "range_s": RANGES_S[chosen_range],
    }
    if page.recent is not None:
        recent = page.recent
        scene = Scene(recent.frame, recent.samples, recent.events, page.now, pool, by)
        context |= panels(scene) | {"is_stale": scene.is_stale or not page.source.is_up}
    return render(request, "dashboard/overview.html", context)


@viewer_page
def history(request: HttpRequest, page: Page) -> HttpResponse:
    """Figures and what is in memory for them: JSON for the charts, joined by the stream without a seam."""
    if page.recent is None:
        return JsonResponse({"figures": [], "at": [], "values": {}})
    recent = page.recent
    pool = chosen_pool(request.GET.get("pool", ""), pool_names(recent))
    charts = overview_charts(recent.frame, pool, recent.samples)
    seconds = RANGES_S.get(request.GET.get("range", ""), 900)
    samples = since(recent.samples, recent.frame.at - seconds)
    series = [s for chart in charts for s in chart.series]
    return JsonResponse({"figures": [figure_json(c) for c in charts]} | columns(samples, series))


def pool_names(recent: Recent | None) -> tuple[str, ...]:
    """Every pool: from the frame, else from the tables."""
    if recent is not None:
        frame = recent.frame
        return tuple(sorted({t.pool for t in frame.tiers} | {b.pool for b in frame.backends}))
    return tuple(sorted(p.name for p in selectors.pools()))


def chosen_pool(asked: str, names: tuple[str, ...]) -> str:
    """The pool that the URL names; all of them for "all"; the first one otherwise."""
    if asked == EVERY_POOL or not names:
        return ALL_POOLS
    return asked if asked in names else names[0]


def panels(scene: Scene) -> dict[str, Any]:
    """What the panels print of a scene."""
    found = plots(scene)
    return {
        "scene": scene,
        "as_of": stamp(scene.frame.at),
        "is_stale": scene.is_stale,
        "verdict": verdict(scene),
        "tiles": tiles(scene),
        "valve": valve(scene),
        "lanes": lanes(scene),
        "retries": retries_words(scene),
        "plots": found,
        "shape": shape(found),
        "marks": marks(scene),
        "cards": cards(scene),
        "tenants": tenant_rows(scene),
        "feed": feed(scene),
        "by": scene.by,
        "backends_left_out": scene.frame.backends_left_out,
    }


def live_part(recent: Recent, pool: str, by: str) -> bytes:
    """The markup that replaces what the page shows: the same for every viewer of this pool and language."""
    scene = Scene(recent.frame, recent.samples, recent.events, time.time(), pool, by)
    context = panels(scene) | {"chrome": chrome(recent.frame, scene.now), "pool_in_url": pool or EVERY_POOL}
    return render_to_string("dashboard/live_overview.html", context).encode()


def live_shell(recent: Recent) -> bytes:
    """The markup that every other page renews: overrides, notices, foot."""
    context = {"chrome": chrome(recent.frame, time.time()), "as_of": stamp(recent.frame.at)}
    return render_to_string("dashboard/live_shell.html", context).encode()
