"""The admin in a real Chromium, served as in production: everything by hand, no violation of the strict policy."""

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Page

from control.supervisor.credentials import read_credentials
from tests.fakes.browser import running_chromium
from tests.fakes.valkey import running_valkey

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A web process with the demo in it: its address, and the operator's sign-in."""
    state = tmp_path_factory.mktemp("site")
    with running_valkey() as valkey, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.set_inheritable(True)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        environment = {
            "PATH": os.environ["PATH"],
            "REDIS_URL": valkey.url,
            "SLUICEGATE_STATE_DIR": str(state),
            "SLUICEGATE_PUBLIC_URL": url,
            **{
                f"SLUICEGATE_{name}": f"of-no-value-{name}"
                for name in ("SECRET_KEY", "KEY_PEPPER", "SIGNING_KEY")
            },
        }
        for command in (
            ("migrate", "-v0"),
            ("seed_demo", "--model=chat", "--backend=b1=http://127.0.0.1:9101,vllm"),
        ):
            subprocess.run(  # noqa: S603  # our own command
                [sys.executable, "manage.py", *command],
                cwd=ROOT,
                env=environment,
                check=True,
                capture_output=True,
            )
        served = ["control.asgi:application", "--fd", str(listener.fileno()), "--log-level", "error"]
        server = subprocess.Popen(  # noqa: S603  # our own command
            [sys.executable, "-W", "error::Warning", "-m", "uvicorn", *served],
            cwd=ROOT,
            env=environment,
            pass_fds=[listener.fileno()],
        )
        try:
            _wait(url)
            yield url, read_credentials(state)
        finally:
            server.terminate()
            server.wait(timeout=15)


def _wait(url):
    for _ in range(300):
        try:
            if httpx2.get(f"{url}/livez", timeout=5, trust_env=False).status_code == 200:
                return
        except httpx2.TransportError:
            time.sleep(0.1)
    raise AssertionError("the web process did not start")


@pytest.fixture(scope="module")
def chromium():
    with running_chromium() as browser:
        yield browser


@pytest.fixture
def page(chromium, site):
    """A signed-in page; every complaint of the browser fails the test."""
    url, credentials = site
    context = chromium.new_context(base_url=url)
    page = context.new_page()
    complaints: list[str] = []
    page.on(
        "console",
        lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None,
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto("/admin/")
    page.fill("#id_username", credentials.username)
    page.fill("#id_password", credentials.password)
    page.click("input[type=submit]")
    page.wait_for_url("**/admin/")
    yield page
    context.close()
    assert complaints == []


def save(page: Page) -> None:
    page.click("input[name=_save]")


def choose(page: Page, field: str, text: str) -> None:
    """In one of the admin's searching select boxes."""
    page.click(f".field-{field} .select2-selection")
    page.fill(".select2-search__field", text)
    page.click(f".select2-results__option:has-text('{text}')")


def test_a_tenant_with_a_grant_and_a_key_is_made_by_hand(page):
    page.goto("/admin/control/tenant/add/")
    page.fill("#id_name", "by-hand")
    page.fill("#id_title", "Made by hand")
    save(page)
    page.wait_for_selector(".messagelist .success")
    page.goto("/admin/control/grant/add/")
    choose(page, "tenant", "by-hand")
    page.select_option("#id_pool", label="chat")
    page.select_option("#id_tier", label="P2 batch-extraction")
    save(page)
    page.wait_for_selector(".messagelist .success")
    page.goto("/admin/control/apikey/add/")
    choose(page, "tenant", "by-hand")
    page.fill("#id_name", "first")
    save(page)
    key = page.input_value("#minted-key")
    assert re.fullmatch(r"sg_live_\w{12}_\w{49}", key)
    box = page.locator("#minted-key")
    assert box.evaluate("e => e.scrollHeight <= e.clientHeight"), "a person must see the whole key"
    page.goto("/admin/control/apikey/?q=by-hand")
    assert key not in page.content()
    assert key[:20] in page.content()


def test_an_invalid_queue_policy_is_refused_with_the_reason_beside_its_field(page):
    page.goto("/admin/control/queuepolicy/?q=realtime")
    page.click("th.field-name a")
    page.fill("#id_delay_budget_s", "9")
    save(page)
    assert "above timeout_s" in page.inner_text(".field-delay_budget_s .errorlist")
    page.fill("#id_delay_budget_s", "4")
    save(page)
    page.wait_for_selector(".messagelist .success")
    page.goto("/admin/control/auditevent/")
    assert "updated" in page.inner_text("#result_list tbody tr:first-child .field-action")


def test_every_page_of_the_admin_obeys_the_policy(page):
    page.goto("/admin/")
    tables = page.eval_on_selector_all(
        "#content-main th a", "links => links.map(link => link.getAttribute('href'))"
    )
    assert len(tables) > 12
    for address in tables:
        page.goto(address)
        first = page.query_selector("#result_list tbody th a")
        if first is not None:
            first.click()
            page.wait_for_load_state()
    for address in ("/admin/control/pool/add/", "/admin/auth/user/add/", "/admin/password_change/"):
        page.goto(address)
