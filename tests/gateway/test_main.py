"""The gateway as a running process: start, settings, signals, and what it does without Valkey."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from gateway import lastgood
from gateway.contract import keys
from tests.fakes.backend import FakeBackend
from tests.fakes.gateway import a_world, key_of
from tests.fakes.gateway_process import GatewayProcess, gateway_process
from tests.fakes.published import sealed
from tests.fakes.valkey import RealValkey, running_valkey
from tests.fakes.waiting import until

NOWHERE = "unix:///nonexistent/valkey.sock"


@pytest.fixture
def valkey() -> Iterator[RealValkey]:
    with running_valkey() as server:
        yield server


def publish(server: RealValkey, snapshot, revision: int = 1) -> None:
    with server.client() as client:
        client.set(keys.SNAPSHOT, sealed(snapshot, (1, 0, revision)))
        client.publish(keys.CHANGES, f"snapshot {revision}")


def on_disk(state_dir: Path, snapshot) -> None:
    lastgood.store(state_dir / "gateway-gateway-1" / "snapshot.sealed", sealed(snapshot, (1, 0, 1)))


async def ask(gateway: GatewayProcess, tenant: str = "t0") -> "httpx2.Response":
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    headers = {"authorization": f"Bearer {key_of(tenant).key}"}
    async with httpx2.AsyncClient(trust_env=False) as client:
        return await client.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers, timeout=10)


async def test_it_serves_from_disk_with_everything_down_within_two_seconds(tmp_path):
    async with FakeBackend() as backend:
        on_disk(tmp_path, a_world(backend))
        with gateway_process(tmp_path, NOWHERE) as gateway:
            assert gateway.ready_line.endswith("snapshot revision 1 from disk")
            assert gateway.boot_s < 2
            ready = gateway.readyz()
            assert (ready.status_code, ready.json()["degraded"]) == (200, True)
            assert (await ask(gateway)).status_code == 200


async def test_it_serves_what_valkey_holds_and_keeps_it_on_disk(valkey, tmp_path):
    async with FakeBackend() as backend:
        publish(valkey, a_world(backend))
        with gateway_process(tmp_path, valkey.url) as gateway:
            assert gateway.ready_line.endswith("snapshot revision 1 from valkey")
            assert gateway.readyz().json()["degraded"] is False
            assert (await ask(gateway)).status_code == 200
            await until((tmp_path / "gateway-gateway-1" / "snapshot.sealed").exists)


async def test_without_any_snapshot_it_is_alive_but_not_ready(tmp_path):
    with gateway_process(tmp_path, NOWHERE) as gateway:
        assert gateway.ready_line.endswith("no snapshot yet")
        assert httpx2.get(f"{gateway.ops_url}/livez", trust_env=False).status_code == 200
        ready = gateway.readyz()
        assert (ready.status_code, ready.json()["status"]) == (503, "no snapshot")
        assert (await ask(gateway)).status_code == 503


async def test_access_line_metric_and_report_tell_the_same(valkey, tmp_path):
    async with FakeBackend() as backend:
        publish(valkey, a_world(backend))
        with gateway_process(tmp_path, valkey.url) as gateway:
            answer = await ask(gateway)
            lines: list[dict] = []
            await until(lambda: bool(lines.extend(gateway.access_lines()) or lines))
            assert [(x["request_id"], x["outcome"], x["status"]) for x in lines] == [
                (answer.headers["x-request-id"], "completed", 200)
            ]
            ended = 'sluicegate_tickets_total{outcome="completed",pool="pool",reason="",tier="0"}'
            assert gateway.metric(ended) == 1
            assert gateway.metric("sluicegate_ledger_imbalance") == 0


def test_nothing_heavy_is_loaded_and_memory_stays_small(tmp_path):
    program = (
        "import gateway.__main__, sys;"
        "print(sorted({m.split('.')[0] for m in sys.modules} & "
        "{'django', 'celery', 'ninja', 'plotly', 'pydantic', 'redis', 'httpx', 'httpx2', 'structlog'}))"
    )
    run = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"
    with gateway_process(tmp_path, NOWHERE) as gateway:
        resident = int(Path(f"/proc/{gateway.process.pid}/statm").read_text().split()[1]) * 4096
        assert resident < 80 << 20


# -- signals -----------------------------------------------------------------------------------------------------------


async def test_sigterm_drains_and_ends_with_0_soon_after_the_last_answer(tmp_path):
    async with FakeBackend() as backend:
        on_disk(tmp_path, a_world(backend))
        with gateway_process(tmp_path, NOWHERE, SLUICEGATE_DRAIN_DELAY_S="2") as gateway:
            gateway.terminate()
            await until(lambda: gateway.readyz().status_code == 503)
            assert gateway.readyz().json()["status"] == "draining"
            assert (await ask(gateway)).status_code == 200  # load balancers have not noticed yet
            assert gateway.wait() == 0


async def test_a_second_sigterm_ends_at_once(tmp_path):
    with gateway_process(tmp_path, NOWHERE, SLUICEGATE_DRAIN_DELAY_S="30") as gateway:
        gateway.terminate()
        await until(lambda: gateway.readyz().status_code == 503)
        began = time.monotonic()
        gateway.terminate()
        assert gateway.wait() == 0
        assert time.monotonic() - began < 5


async def test_a_gateway_that_ends_leaves_the_list_of_gateways(valkey, tmp_path):
    with gateway_process(tmp_path, valkey.url) as gateway, valkey.client() as client:
        await until(lambda: client.zscore(keys.GATEWAYS, "gateway-1") is not None)
        gateway.terminate()
        assert gateway.wait() == 0
        assert client.zscore(keys.GATEWAYS, "gateway-1") is None
        assert client.get(keys.report("gateway-1")) is None


# -- what is wrong is said in one line ---------------------------------------------------------------------------------


def refused(tmp_path: Path, **variables: str) -> tuple[int, list[str]]:
    gateway = GatewayProcess(tmp_path, NOWHERE, **variables)
    gateway.start("--check")
    return gateway.wait(), gateway.errors


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SLUICEGATE_KEY_PEPPER", ""),
        ("SLUICEGATE_SIGNING_KEY", "changeme-changeme"),
        ("SLUICEGATE_LISTEN", "nonsense"),
        ("REDIS_URL", "http://valkey"),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_code_2(tmp_path, variable, value):
    code, errors = refused(tmp_path, **{variable: value})
    assert code == 2
    assert len(errors) == 1
    assert errors[0].startswith(f"gateway: {variable}: ")


def test_a_taken_port_is_one_line_and_exit_code_2(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        address = f"127.0.0.1:{port}"
        gateway = GatewayProcess(
            tmp_path, NOWHERE, SLUICEGATE_LISTEN=address, SLUICEGATE_LOG_LEVEL="CRITICAL"
        )
        with pytest.raises(AssertionError, match="not ready"):
            gateway.start()
        assert gateway.wait() == 2
        assert len(gateway.errors) == 1
        assert str(port) in gateway.errors[0]


def test_check_names_what_is_wrong_with_the_snapshot_on_disk(tmp_path):
    directory = tmp_path / "gateway-gateway-1"
    lastgood.store(directory / "snapshot.sealed", b"nonsense\n{}")
    gateway = GatewayProcess(tmp_path, NOWHERE, SLUICEGATE_LOG_LEVEL="ERROR")
    gateway.start("--check")
    assert gateway.wait() == 1
    assert "malformed" in gateway.lines.get_nowait()
    on_disk(tmp_path, a_world("http://127.0.0.1:9"))
    gateway.start("--check")
    assert gateway.wait() == 0
    assert "revision 1 on disk good" in gateway.lines.get_nowait()
