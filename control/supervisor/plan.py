"""What `make up` starts: addresses, environment and one spec per process. Pure but for asking which ports are free."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from control.supervisor import probes, valkey
from control.supervisor.children import ChildSpec
from control.supervisor.state import free_port, socket_path

HOST: Final = "127.0.0.1"
GATEWAY_PORT, GATEWAY_OPS_PORT, WEB_PORT, ENGINE_PORT = 8080, 8081, 8000, 9101
ENGINES: Final = ("demo-1", "demo-2")
DEMO_MODEL: Final = "demo-chat"
# Sequences that a demo engine runs at once: so few that the demo callers' overloaded minute is more than they can do.
ENGINE_SEATS: Final = 16


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where everything listens."""

    gateway: int
    gateway_ops: int
    web: int
    engines: tuple[int, ...]
    socket: Path | None  # None: REDIS_URL names a Valkey of yours


def choose_addresses(state: Path, wanted: Mapping[str, str], *, demo: bool) -> Addresses:
    """Free ports from the usual ones upwards (`GATEWAY_PORT`, `WEB_PORT` and `ENGINE_PORT` move the start)."""
    taken: list[int] = []

    def pick(name: str, usual: int) -> int:
        port = free_port(probes.port_number(name, wanted.get(name), usual), HOST, taken)
        taken.append(port)
        return port

    gateway = pick("GATEWAY_PORT", GATEWAY_PORT)
    return Addresses(
        gateway=gateway,
        gateway_ops=pick("GATEWAY_OPS_PORT", GATEWAY_OPS_PORT),
        web=pick("WEB_PORT", WEB_PORT),
        engines=tuple(pick("ENGINE_PORT", ENGINE_PORT) for _ in ENGINES) if demo else (),
        socket=None if wanted.get("REDIS_URL") else socket_path(state),
    )


def environment(
    outer: Mapping[str, str], secrets: Mapping[str, str], state: Path, addresses: Addresses
) -> dict[str, str]:
    """What every process gets. What the caller has set wins, except where things listen."""
    here = {
        "SLUICEGATE_STATE_DIR": str(state),
        "SLUICEGATE_GATEWAY_ID": "gateway-1",
        "SLUICEGATE_PUBLIC_URL": f"http://{HOST}:{addresses.web}",
        "SLUICEGATE_GATEWAY_URL": f"http://{HOST}:{addresses.gateway}",
        "SLUICEGATE_DRAIN_S": "2",  # Ctrl-C ends all of it within 5 s
        "SLUICEGATE_DRAIN_DELAY_S": "0",
    }
    fixed = {
        "SLUICEGATE_LISTEN": f"{HOST}:{addresses.gateway}",
        "SLUICEGATE_OPS_LISTEN": f"{HOST}:{addresses.gateway_ops}",
        "PYTHONUNBUFFERED": "1",
    }
    if addresses.socket is not None:
        fixed["REDIS_URL"] = f"unix://{addresses.socket}"
    return {**here, **secrets, **outer, **fixed}


def valkey_spec(binary: str, addresses: Addresses, state: Path) -> ChildSpec:
    """The embedded Valkey."""
    path = addresses.socket
    assert path is not None, "only where Valkey is embedded"  # noqa: S101  # programming error
    return ChildSpec(
        "valkey",
        "snapshots, bounds, quota leases and live frames, on a Unix socket",
        valkey.arguments(binary, path, state / "valkey"),
        lambda: valkey.answers(path),
        end_s=1.0,
        is_store=True,
    )


def engine_specs(addresses: Addresses) -> list[ChildSpec]:
    """The simulated engines."""
    return [
        _module(
            f"engine-{name}",
            "simulated inference engine (an engine model behind HTTP, vLLM's metrics)",
            [
                "gateway.simulation.serve",
                "--listen",
                f"{HOST}:{port}",
                "--model",
                DEMO_MODEL,
                "--seed",
                str(port),
                "--seats",
                str(ENGINE_SEATS),
            ],
            probes.http_ok(HOST, port, "/health"),
        )
        for name, port in zip(ENGINES, addresses.engines, strict=False)
    ]


def seed_words(addresses: Addresses) -> list[str]:
    """What `seed_demo` is told. An engine with vLLM's metrics doesn't tell its seats, so they are told here."""
    pairs = zip(ENGINES, addresses.engines, strict=False)
    words = [f"--backend={name}=http://{HOST}:{port},vllm,{ENGINE_SEATS}" for name, port in pairs]
    return [f"--model={DEMO_MODEL}", *words]


def service_specs(addresses: Addresses, state: Path) -> list[ChildSpec]:
    """The product itself: gateway, web, beat and both workers."""
    celery = ["celery", "-A", "control.celery"]
    worker = [*celery, "worker", "--without-gossip", "--without-mingle", "--loglevel", "WARNING"]
    web = ["uvicorn", "control.asgi:application", "--host", HOST, "--port", str(addresses.web)]
    return [
        _module(
            "gateway",
            "takes the callers' requests and decides who goes, waits or is refused",
            ["gateway"],
            probes.http_ok(HOST, addresses.gateway_ops, "/livez"),
        ),
        _module(
            "web",
            "dashboard and admin (Django on uvicorn)",
            [*web, "--timeout-graceful-shutdown", "1", "--no-access-log", "--log-level", "warning"],
            probes.http_ok(HOST, addresses.web, "/livez"),
        ),
        _module(
            "worker-loop",
            "the slow loop: scrapes engines, publishes bounds and one frame a second",
            [*worker, "-Q", "loop", "-P", "solo", "-n", "loop@%h"],
        ),
        _module(
            "worker-work",
            "long jobs, so that they never stop the slow loop",
            [*worker, "-Q", "work", "-c", "1", "-n", "work@%h"],
        ),
        _module(
            "beat",
            "says each second that the slow loop has to run",
            [*celery, "beat", "--loglevel", "WARNING", "-s", str(state / "celerybeat-schedule")],
        ),
    ]


def traffic_spec(addresses: Addresses, credentials: Path) -> ChildSpec:
    """The demo callers."""
    return _module(
        "traffic",
        "demo callers of all three tiers, calm and overloaded in turn",
        ["control.supervisor.traffic", f"http://{HOST}:{addresses.gateway}", str(credentials), DEMO_MODEL],
    )


def _module(name: str, what: str, words: list[str], is_ready: Callable[[], bool] | None = None) -> ChildSpec:
    return ChildSpec(name, what, [sys.executable, "-m", *words], is_ready)
