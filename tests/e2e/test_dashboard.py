"""The overview in a real browser on the real system: live figures, honest about age, a breaker forced and given back."""

import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import openai
import pytest
from playwright.sync_api import Browser, Page

from tests.fakes.browser import Complaints, running_chromium
from tests.fakes.system import System, until

pytestmark = [pytest.mark.e2e, pytest.mark.browser, pytest.mark.loop]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with running_chromium() as browser:
        yield browser


@pytest.fixture
def page(chromium: Browser, system: System, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The overview, signed in as the operator; what the browser complains about fails the test."""
    context = chromium.new_context(base_url=system.web_url, viewport={"width": 1440, "height": 900})
    context.set_default_timeout(15_000)
    made = context.new_page()
    complaints = Complaints(made)
    made.goto("/sign-in/")
    made.fill("#id_username", system.credentials.username)
    made.fill("#id_password", system.credentials.password)
    made.click("[type=submit]")
    made.wait_for_selector("#verdict")
    yield made
    if folder := os.environ.get("SCREENSHOTS"):  # for people to look at; a busy machine takes long over it
        made.screenshot(path=str(Path(folder) / f"{request.node.name}.png"), full_page=True)
    context.close()
    assert [
        each for each in complaints.found if "status of 422" not in each
    ] == []  # a form refused on purpose


@pytest.fixture
def traffic(system: System) -> Iterator[None]:
    """A little of everything, until the test is over."""
    stop = threading.Event()

    def calls(tier: str) -> None:
        with openai.OpenAI(base_url=system.base_url, api_key=system.key(tier), max_retries=0) as client:
            while not stop.is_set():
                try:
                    client.chat.completions.create(
                        model="tiny", messages=[{"role": "user", "content": "x"}], max_tokens=32
                    )
                except openai.OpenAIError:
                    stop.wait(0.2)

    tiers = ["P0", "P1", "P1", "P1", "P2", "P2", "P2", "P2"]
    threads = [threading.Thread(target=calls, args=(tier,), daemon=True) for tier in tiers]
    for thread in threads:
        thread.start()
    yield
    stop.set()
    for thread in threads:
        thread.join(30)


def words(page: Page, selector: str) -> str:
    return (page.text_content(selector) or "").replace("\u00a0", " ").strip()


def ready(page: Page, script: str, within_s: float = 10.0) -> float:
    return until(lambda: page.evaluate(script), within_s, script)


@pytest.mark.usefixtures("traffic")
def test_the_overview_shows_what_the_system_really_does(page: Page, system: System) -> None:
    ready(page, "document.getElementById('live-words').textContent.startsWith('Live')")
    assert page.locator("#tiles .tile").count() == 3
    for chart in ("queue", "drops", "rate429", "kv", "seats"):
        assert page.locator(f"[data-chart={chart}]").count() == 1, chart
    ready(page, "document.querySelectorAll('.plot .scatterlayer .trace').length >= 5", 15.0)

    def shows_shedding() -> bool:
        frame = system.frame()
        return frame is not None and any(tier.shed_per_s for tier in frame.tiers)

    until(shows_shedding, 20.0, "shedding")
    for chart in ("drops", "rate429", "kv", "seats"):  # what is drawn is what happened, not an empty frame
        ready(page, f"document.querySelector('[data-chart={chart}]').data.some(l => l.y.some(y => y > 0))")
    card = words(page, "#backends .backend")
    assert "llama" in card
    assert re.search(r"KV\D*\d+(\.\d+)? %", card), card  # derived from /slots, never unknown here
    first = words(page, "#live-words")
    until(lambda: words(page, "#live-words") != first, 3.0, "the next frame")


def test_data_that_stops_is_called_stale_within_three_seconds(page: Page, system: System) -> None:
    ready(page, "document.getElementById('live-words').textContent.startsWith('Live')")
    system.end("worker-loop")
    try:
        assert ready(page, "document.querySelectorAll('[data-live].is-stale').length > 5", 8.0) < 4.2
        assert words(page, "#live-words").startswith("No frame for ")
        assert words(page, "#verdict .say").startswith("Last known")
    finally:
        system.start("worker-loop")
    ready(page, "document.getElementById('live-words').textContent.startsWith('Live')", 10.0)


def test_a_breaker_forced_open_holds_at_once_counts_down_is_undone_and_audited(
    page: Page, system: System
) -> None:
    assert status_of_a_call(system) == 200
    page.click("#backends a[data-dialog]")
    page.check("[name=action][value=open]", force=True)
    page.check("[name=lifetime][value='15m']", force=True)
    page.fill("#reason", "an end-to-end drill")
    pressed = time.monotonic()
    page.click("button.say-open")
    until(lambda: status_of_a_call(system) != 200, 5.0, "the forced breaker")
    assert (
        time.monotonic() - pressed < 2.0
    )  # at the gateway within 1 s; the call and the click take their time
    page.wait_for_selector("#overrides .chip.override time")
    left = words(page, "#overrides .chip.override time")
    assert re.fullmatch(r"1[45]:\d\d", left), left
    until(lambda: words(page, "#overrides .chip.override time") != left, 3.0, "the countdown")
    page.click("#backends button[form=undo]")
    until(lambda: status_of_a_call(system) == 200, 5.0, "the release")
    page.goto("/audit/")
    assert "an end-to-end drill" in words(page, "main")


def test_an_override_without_a_reason_changes_nothing_and_says_so(page: Page, system: System) -> None:
    page.click("#backends a[data-dialog]")
    page.check("[name=action][value=open]", force=True)
    page.check("[name=lifetime][value='15m']", force=True)
    page.click("button.say-open")
    page.wait_for_selector("#reason-error")
    assert status_of_a_call(system) == 200


def status_of_a_call(system: System) -> int:
    return httpx2.post(
        f"{system.base_url}/chat/completions",
        json={"model": "tiny", "max_tokens": 2, "messages": [{"role": "user", "content": "x"}]},
        headers={"Authorization": f"Bearer {system.key('P1')}"},
        timeout=30,
    ).status_code
