"""`/livez`, `/readyz`, `/metrics`: for load balancers and Prometheus."""

import json

import pytest

from gateway.core.gauges import GateView
from gateway.metrics import Metrics
from gateway.ops import OpsApp
from gateway.state import Source, State, index
from gateway.tally import Tally
from tests.fakes.published import a_snapshot

EMPTY = GateView(queues=(), backends=(), tickets=0, ledger_imbalance=0, draining=False)


def a_ready_state(**facts) -> State:
    return State(applied=index(a_snapshot(7), (1, 0, 7), Source.DISK), **facts)


async def ask(state: State, path: str, method: str = "GET") -> tuple[int, bytes]:
    sent: list[dict] = []

    async def send(message: dict) -> None:
        sent.append(message)

    async def receive() -> dict:
        raise AssertionError("nothing of the body is read")

    app = OpsApp(state, Metrics(Tally(), state, lambda: EMPTY), "g1")
    await app({"type": "http", "method": method, "path": path}, receive, send)
    return sent[0]["status"], sent[1]["body"]


async def test_alive_is_alive_whatever_else():
    assert (await ask(State(), "/livez"))[0] == 200


@pytest.mark.parametrize(
    ("state", "status", "word"),
    [
        (State(), 503, "no snapshot"),
        (a_ready_state(), 200, "ready"),
        (a_ready_state(draining=True), 503, "draining"),
    ],
)
async def test_ready_needs_a_snapshot_and_no_drain_but_not_valkey(state, status, word):
    code, body = await ask(state, "/readyz")
    assert (code, json.loads(body)["status"]) == (status, word)
    assert json.loads(body)["degraded"] is True


async def test_ready_tells_what_is_in_force_and_what_was_refused():
    _, body = await ask(a_ready_state(live_valkey=True, snapshot_refused="pools: why"), "/readyz")
    told = json.loads(body)
    assert (told["snapshot_revision"], told["snapshot_source"]) == (7, "disk")
    assert (told["snapshot_refused"], told["degraded"]) == ("pools: why", False)


async def test_metrics_are_rendered_and_head_has_no_body():
    assert b"sluicegate_ledger_imbalance 0.0" in (await ask(State(), "/metrics"))[1]
    assert await ask(State(), "/livez", "HEAD") == (200, b"")


@pytest.mark.parametrize(("path", "method", "status"), [("/", "GET", 404), ("/livez", "POST", 405)])
async def test_nothing_else_is_served_there(path, method, status):
    assert (await ask(State(), path, method))[0] == status


async def test_other_protocols_are_ignored():
    state = State()
    app = OpsApp(state, Metrics(Tally(), state, lambda: EMPTY), "g1")
    assert await app({"type": "lifespan"}, None, None) is None
