"""An operator changes policy in the admin while the gateway runs; the slow loop ticks; overrides expire by themselves."""

import re
import time
from collections.abc import Iterator

import httpx2
import pytest

from tests.e2e.conftest import SLOTS
from tests.fakes.system import System, until

pytestmark = [pytest.mark.e2e, pytest.mark.loop]


class Operator:
    """A signed-in person at the admin, without a browser."""

    def __init__(self, system: System) -> None:
        self._client = httpx2.Client(base_url=system.web_url, follow_redirects=True, timeout=20)
        sign_in = {"username": system.credentials.username, "password": system.credentials.password}
        self.post("/sign-in/", sign_in)

    def close(self) -> None:
        self._client.close()

    def get(self, path: str) -> str:
        answer = self._client.get(path)
        assert answer.status_code == 200, (path, answer.status_code)
        return answer.text

    def post(self, path: str, fields: dict[str, str]) -> str:
        """Fill in a form as it is shown, change some of its fields, send it; returns the page that follows."""
        page = self.get(path)
        answer = self._client.post(
            path, data={**shown(page), **fields}, headers={"Referer": str(self._client.base_url)}
        )
        assert answer.status_code == 200, (path, answer.status_code, answer.text[:300])
        return answer.text

    def row(self, model: str, name: str) -> str:
        """The path of a row's form in the admin, by what its list shows."""
        page = self.get(f"/admin/control/{model}/")
        found = re.search(
            rf'<a href="(/admin/control/{model}/[^"]+/change/)[^"]*">{re.escape(name)}</a>', page
        )
        assert found, f"{model} {name} is not listed"
        return found[1]


def shown(page: str) -> dict[str, str]:
    """The fields of a page's forms with the values that they have."""
    fields = {}
    for tag in re.findall(r"<input[^>]*>", page):
        name, value = re.search(r'name="([^"]*)"', tag), re.search(r'value="([^"]*)"', tag)
        kind = re.search(r'type="([^"]*)"', tag)
        is_left_out = kind is not None and kind[1] in ("checkbox", "radio", "submit") and "checked" not in tag
        if name and not is_left_out:
            fields[name[1]] = value[1].replace("&quot;", '"') if value else ""
    for name, body in re.findall(r'<select[^>]*name="([^"]*)"[^>]*>(.*?)</select>', page, re.DOTALL):
        chosen = re.search(r'<option value="([^"]*)"[^>]*selected', body)
        fields[name] = chosen[1] if chosen else ""
    for name, body in re.findall(r'<textarea[^>]*name="([^"]*)"[^>]*>(.*?)</textarea>', page, re.DOTALL):
        fields[name] = body.strip().replace("&quot;", '"')
    return fields


@pytest.fixture(scope="module")
def operator(system: System) -> Iterator[Operator]:
    made = Operator(system)
    yield made
    made.close()


@pytest.fixture
def closed(system: System) -> Iterator[None]:
    """Not one seat: what arrives waits for as long as its queue policy lets it."""
    said = system.manage(
        "override", "--kind=limit-pin", "--target=llama", "--value=0", "--reason=a test", "--seconds=60"
    )
    yield
    system.manage("override", f"--release={said.split()[0]}")
    until(lambda: call(system, "P0")[0] == 200, 10.0, "the seats' return")


def call(system: System, tier: str) -> tuple[int, str, float]:
    """One call, without retries: status, reason, how long it took."""
    began = time.monotonic()
    answer = httpx2.post(
        f"{system.base_url}/chat/completions",
        json={"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": "x"}]},
        headers={"Authorization": f"Bearer {system.key(tier)}"},
        timeout=30,
    )
    error = answer.json().get("error") or {}
    return answer.status_code, error.get("reason", ""), time.monotonic() - began


def revision(system: System) -> int:
    return int(httpx2.get(f"{system.ops_url}/readyz", timeout=5).json()["snapshot_revision"])


@pytest.mark.usefixtures("closed")
def test_a_queue_policy_changed_in_the_admin_holds_at_the_gateway_within_a_second(
    system: System, operator: Operator
) -> None:
    status, reason, took_s = call(system, "P1")
    assert (status, reason) == (429, "deadline")
    assert took_s > 2.0  # .8 x its objective of 8 s, less .2 s
    before = revision(system)
    path = operator.row("queuepolicy", "agent-workflow")
    kept = shown(operator.get(path))
    page = operator.post(path, {"drop": "tail", "timeout_s": "1.0", "delay_budget_s": "0.5"})
    assert "successfully" in page
    assert until(lambda: revision(system) > before, 5.0, "the new policy") < 1.0
    status, reason, took_s = call(system, "P1")
    assert (status, reason) == (429, "queue_timeout")
    assert 0.9 < took_s < 2.0
    operator.post(path, kept)
    assert call(system, "P1")[1] == "deadline"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"timeout_s": "-1"}, "greater than or equal to"),
        ({"max_size": "many"}, "Enter a whole number"),
        ({"delay_budget_s": "90", "timeout_s": "60"}, "delay_budget_s"),
    ],
)
def test_an_invalid_queue_policy_is_refused_by_the_form_with_the_reason(
    system: System, operator: Operator, fields: dict[str, str], words: str
) -> None:
    before = revision(system)
    page = operator.post(operator.row("queuepolicy", "batch-extraction"), fields)
    assert "successfully" not in page
    assert words in page
    time.sleep(0.5)
    assert revision(system) == before


def test_the_loop_ticks_every_second_and_scrapes_the_engine_at_its_own_pace(system: System) -> None:
    first = system.frame()
    assert first is not None
    ages, seqs, deadline = set(), {first.control.seq}, time.monotonic() + 6
    while time.monotonic() < deadline:
        frame = system.frame()
        assert frame is not None
        seqs.add(frame.control.seq)
        ages.add(frame.backends[0].telemetry_age_s)
        time.sleep(0.2)
    last = system.frame()
    assert last is not None
    assert 4 <= len(seqs) <= 9
    elapsed = last.at - first.at
    assert abs((last.control.seq - first.control.seq) - elapsed) <= 1.5
    backend = last.backends[0]
    assert (backend.kv_source, backend.limit_max) == ("slots", SLOTS)
    assert backend.kv_ratio is not None
    assert backend.engine_running is not None
    assert max(age for age in ages if age is not None) > 0.9, (
        "llama.cpp is scraped every 2 s, not every second"
    )


def test_the_gateway_applies_the_bounds_of_the_loop(system: System) -> None:
    def applied() -> bool:
        frame = system.frame()
        assert frame is not None
        gateway = frame.gateways[0]
        return gateway.bounds_epoch == frame.control.epoch and frame.control.seq - gateway.bounds_seq <= 3

    until(applied, 10.0, "the bounds at the gateway")
    frame = system.frame()
    assert frame is not None
    assert frame.backends[0].limit <= SLOTS


def test_an_override_expires_by_itself_even_with_control_dead(system: System) -> None:
    system.manage(
        "override",
        "--kind=breaker",
        "--target=llama",
        "--value=open",
        "--reason=a short drill",
        "--seconds=4",
    )
    began = time.monotonic()
    until(lambda: call(system, "P2")[1] == "breaker_open", 5.0, "the forced breaker")
    system.end("worker-loop")
    try:
        until(lambda: call(system, "P2")[0] == 200, 10.0, "its end")
        assert 3.0 < time.monotonic() - began < 7.0
    finally:
        system.start("worker-loop")
