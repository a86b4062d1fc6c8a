"""The pages in a real browser: live, honest about age, calm under the content policy, usable by keyboard."""

import json
import os
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.fakes.frames import backfill
from tests.fakes.scenes import gateway, override

pytestmark = pytest.mark.browser

STALE = "document.querySelectorAll('[data-live].is-stale').length"


def wait(page, expression, within_s=10.0):
    """Until a JavaScript expression holds; how long it took. (A string in wait_for_function would need eval.)"""
    before = time.monotonic()
    while not page.evaluate(expression):
        assert time.monotonic() - before < within_s, f"did not happen: {expression}"
        page.wait_for_timeout(40)
    return time.monotonic() - before


def text(page, selector):
    return page.text_content(selector).replace("\u00a0", " ").strip()


def keep(page, name):
    """A picture for people to look at, where SCREENSHOTS names a folder."""
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


def history(room, second, seconds=300):
    with room.valkey.client() as client:
        backfill(client, seconds, second, time.time())


def test_the_overview_lives(room, write, open_page):
    history(room, 540.0)
    write(540.0)
    page = open_page("vera")
    assert "Shedding P2 for" in text(page, "#verdict .say")
    first = text(page, "#live-words")
    assert first.startswith("Live ")
    wait(
        page,
        f"document.getElementById('live-words').textContent !== {json.dumps(page.text_content('#live-words'))}",
    )
    wait(page, "document.querySelectorAll('.plot .scatterlayer .trace').length >= 12")
    assert page.evaluate(STALE) == 0
    assert page.evaluate("document.querySelectorAll('#tiles .tile').length") == 3
    keep(page, "overview-light")


def test_history_and_live_frames_join_without_a_seam_and_by_the_same_rule(room, write, open_page):
    history(room, 540.0)
    write(540.0)
    page = open_page("vera")
    wait(page, "Number(document.getElementById('charts').dataset.points) > 300")
    points = page.evaluate("Number(document.getElementById('charts').dataset.points)")
    wait(page, f"Number(document.getElementById('charts').dataset.points) >= {points + 4}")
    drawn = page.evaluate("Array.from(document.querySelector('[data-chart=seats]').data[0].x)")
    steps = [b - a for a, b in pairwise(drawn)]
    assert max(steps) <= 2500, "a hole between history and the first live frame"
    assert None not in page.evaluate("Array.from(document.querySelector('[data-chart=seats]').data[0].y)")
    told = page.evaluate("fetch(document.getElementById('charts').dataset.history).then((r) => r.json())")
    live = page.evaluate(
        "Object.fromEntries(Array.from(document.querySelectorAll('.plot')).flatMap((el) =>"
        " el.data.map((d) => [el.dataset.chart + '/' + d.name, Object.fromEntries(d.x.map((x, i) => [x, d.y[i]]))])))"
    )
    compared = 0
    for figure in told["figures"]:
        for rule, trace in zip(figure["meta"]["series"], figure["data"], strict=True):
            line = live[f"{figure['meta']['name']}/{trace['name']}"]
            for at, value in zip(told["at"][-8:], told["values"][rule["key"]][-8:], strict=True):
                if str(at) in line:
                    assert line[str(at)] == pytest.approx(value, abs=0.002), (rule["key"], at)
                    compared += 1
    assert compared > 20


def test_data_that_stops_is_called_stale_within_three_seconds(room, write, open_page):
    history(room, 540.0)
    writer = write(540.0)
    page = open_page("vera")
    wait(page, f"{STALE} === 0 && document.getElementById('live-words').textContent.startsWith('Live')")
    writer.stop()
    assert wait(page, f"{STALE} > 5", 6.0) < 3.3
    assert text(page, "#live-words").startswith("No frame for ")
    assert text(page, "#verdict .say").startswith("Last known, ")
    assert page.evaluate("getComputedStyle(document.querySelector('#valve .badge-stale')).display") != "none"
    keep(page, "overview-stale")
    write(545.0)
    wait(page, f"{STALE} === 0")
    assert text(page, "#live-words").startswith("Live ")
    assert text(page, "#verdict .say").startswith("Shedding")


def test_a_frozen_valkey_is_named_and_comes_back_by_itself(room, write, open_page):
    history(room, 540.0)
    write(540.0)
    page = open_page("vera")
    wait(page, "document.getElementById('live-words').textContent.startsWith('Live')")
    room.valkey.freeze()
    try:
        assert wait(page, f"{STALE} > 5", 6.0) < 3.6
        wait(page, "document.getElementById('live-words').textContent.startsWith('No live data since')", 5.0)
        page.reload()
        assert "No live data since" in text(page, "#live-words")
        assert page.evaluate(STALE) > 5, "what is known is still shown, as old"
    finally:
        room.valkey.thaw()
    wait(page, f"{STALE} === 0 && document.getElementById('live-words').textContent.startsWith('Live')")


def test_before_the_first_frame_the_page_waits_and_then_fills_by_itself(room, write, open_page):
    room.stop()  # a web process that has seen frames remembers them
    room.start()
    page = open_page("vera")
    wait(page, "document.getElementById('live-words').textContent === 'No frame yet'")
    keep(page, "overview-first")
    write(100.0)
    page.wait_for_selector("#tiles .tile")
    wait(page, "document.getElementById('live-words').textContent.startsWith('Live')")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)], ids=["desk", "phone"])
@pytest.mark.parametrize("path", ["/", "/audit/", "/backends/b2/override/"])
def test_no_page_is_wider_than_its_window(room, write, open_page, dark, width, height, path):
    history(room, 540.0, 60)
    write(540.0)
    page = open_page("omar", "/", width=width, height=height, dark=dark)
    page.goto(path)
    page.wait_for_timeout(700)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    keep(page, f"{path.strip('/').replace('/', '-') or 'overview'}-{width}-{'dark' if dark else 'light'}")


def test_an_override_by_keyboard_alone(room, write, open_page):  # noqa: PLR0915  # one journey
    history(room, 200.0, 60)
    write(200.0)
    page = open_page("omar", expected_faults=("422",))
    wait(page, "document.getElementById('live-words').textContent.startsWith('Live')")
    page.focus("[data-id='chat-70b/b2'] a[data-dialog]")
    page.keyboard.press("Enter")
    page.wait_for_selector("#dialog[open]")
    assert page.evaluate("document.activeElement.value") == "open"
    assert "finish normally, nothing is aborted" in page.text_content("#dialog .of-open")
    assert text(page, "#dialog [data-lasting]").startswith("until ")
    page.keyboard.press("Tab")  # from the action to when it ends
    page.keyboard.press("ArrowRight")  # 1 h
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")  # past the reason, left empty, to "Keep as is"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Force open"
    page.keyboard.press("Enter")
    page.wait_for_selector("#dialog [aria-invalid='true']")
    assert page.evaluate("document.activeElement.id") == "reason", "the field that is wrong has the focus"
    assert "Say why" in page.text_content("#reason-error")
    page.keyboard.type("restart of the engine")
    keep(page, "dialog")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector(".toast")
    assert text(page, ".toast").startswith("Set: b2 forced open until ")
    assert not page.evaluate("document.getElementById('dialog').open")
    page.goto("/audit/")
    assert "restart of the engine" in page.text_content("#main")
    assert "in force" in page.text_content("#main")
    page.click("#main button:has-text('Undo')")
    page.wait_for_selector(".toast")
    assert text(page, ".toast") == "Undone: b2 forced open."


def test_escape_leaves_the_dialog_and_returns_to_the_button(room, write, open_page):
    history(room, 200.0, 60)
    write(200.0)
    page = open_page("omar")
    page.focus("[data-id='chat-70b/b1'] a[data-dialog]")
    page.keyboard.press("Enter")
    page.wait_for_selector("#dialog[open]")
    page.wait_for_timeout(600)  # frames come while it is open
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.closest('[data-id]').dataset.id") == "chat-70b/b1"


def test_an_override_counts_down_on_every_page_and_is_undone_in_the_header(room, write, open_page):
    history(room, 200.0, 30)
    writer = write(200.0)
    writer.changes = {"overrides": (override("b2", "open", expires_at=time.time() + 754),)}
    page = open_page("vera", "/audit/")
    wait(page, "document.querySelector('#overrides time') !== null")
    first = text(page, "#overrides .chip time")
    wait(page, f"document.querySelector('#overrides .chip time').textContent !== {json.dumps(first)}")
    page.click("#overrides .chip")
    assert "b2 forced open" in text(page, "#overrides-list")
    assert page.is_hidden("#overrides-list button"), "a viewer gets no lever"


def test_focus_and_open_menus_survive_new_frames(room, write, open_page):
    history(room, 200.0, 30)
    write(200.0)
    page = open_page("omar")
    page.focus("#tenants .scroll")
    at = page.text_content("#live-words")
    wait(page, f"document.getElementById('live-words').textContent !== {json.dumps(at)}")
    assert page.evaluate("document.activeElement.matches('#tenants .scroll')")


def test_pause_holds_the_numbers_and_says_so(room, write, open_page):
    history(room, 540.0, 30)
    write(540.0)
    page = open_page("vera")
    wait(page, "document.getElementById('live-words').textContent.startsWith('Live')")
    page.keyboard.press("p")
    wait(page, "document.getElementById('live-words').textContent.startsWith('Paused')")
    held = page.text_content("#valve .at")
    page.wait_for_timeout(1500)
    assert page.text_content("#valve .at") == held
    page.keyboard.press("p")
    wait(page, f"document.querySelector('#valve .at').textContent !== {json.dumps(held)}")


def test_every_chart_can_be_read_as_a_table(room, write, open_page):
    history(room, 540.0)
    write(540.0)
    page = open_page("vera")
    wait(page, "document.querySelectorAll('.plot .scatterlayer .trace').length >= 12")
    page.click("[data-table]")
    assert page.evaluate("document.querySelectorAll('.datatable table').length") == 5
    page.wait_for_timeout(600)
    assert page.evaluate("document.querySelectorAll('.datatable table').length") == 5, (
        "frames do not close it"
    )
    page.click("[data-table]")
    assert page.evaluate("document.querySelectorAll('.datatable').length") == 0


def test_a_refused_snapshot_is_told_at_the_top(room, write, open_page):
    history(room, 200.0, 10)
    writer = write(200.0)
    writer.changes = {"gateways": (gateway("gw-2", snapshot_refused="schema 9 is newer than this gateway"),)}
    page = open_page("vera")
    wait(page, "document.querySelector('#notices .notice') !== null")
    assert "gw-2 refuses the newest snapshot: schema 9 is newer than this gateway." in text(page, "#notices")


def test_the_theme_follows_the_system_and_can_be_chosen(room, write, open_page):
    write(200.0)
    page = open_page("vera", dark=True)
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.keyboard.press("t")
    assert page.evaluate(background) != dark


def test_signing_out_ends_the_stream_of_another_tab(room, write, open_page):
    write(200.0)
    page = open_page("vera")
    other = page.context.new_page()
    other.goto("/")
    other.click("text=Sign out")
    page.wait_for_url("**/sign-in/**", timeout=12_000)
