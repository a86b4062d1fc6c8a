"""The whole system as real processes, as `make up` starts them, on ports and in a folder of its own.

Backends are whatever a test names: a real llama.cpp server, simulated engines. Processes can be ended, frozen and
started again one by one.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import httpx2
import redis

from control.supervisor import plan, valkey
from control.supervisor.children import Child, Children
from control.supervisor.credentials import Credentials, read_credentials
from control.supervisor.state import load_secrets
from gateway.contract import keys
from gateway.contract.codec import decode_frame
from gateway.contract.envelope import SigningKey, unseal
from gateway.contract.frame import Frame

ROOT = Path(__file__).resolve().parents[2]
FIRST_PORT = 20_000  # far from the usual ones; the next free one is taken


def until(condition: Callable[[], object], timeout_s: float = 10.0, what: str = "it") -> float:
    """Wait until `condition` is true; returns how long that took in seconds."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout_s:
            raise AssertionError(f"{what} did not happen within {timeout_s} s")
        time.sleep(0.02)
    return time.monotonic() - began


class System:
    """Everything but the engines. `backends`: `NAME=URL,ENGINE[,SEATS]` as `seed_demo` takes them."""

    def __init__(
        self,
        state: Path,
        backends: Sequence[str],
        model: str = "tiny",
        environment: Mapping[str, str] | None = None,
        seed: Sequence[str] = ("--retry-after-max=5", "--cpu-engine"),
    ) -> None:
        self.state = state
        self._backends = backends
        self._model = model
        self._seed = seed
        for folder in (state, state / "valkey", state / "logs"):
            folder.mkdir(parents=True, exist_ok=True)
        start = FIRST_PORT + os.getpid() % 20_000
        ports = {name: str(start) for name in ("GATEWAY_PORT", "GATEWAY_OPS_PORT", "WEB_PORT", "ENGINE_PORT")}
        self.addresses = plan.choose_addresses(state, ports, demo=False)
        outer = {name: value for name, value in os.environ.items() if not name.startswith("SLUICEGATE_")}
        outer.pop("REDIS_URL", None)
        outer.pop("DATABASE_URL", None)
        self.secrets = load_secrets(state)
        self.environment = plan.environment(
            {**outer, **(environment or {})}, self.secrets, state, self.addresses
        )
        self.said: list[str] = []
        self.children = Children(self.environment, ROOT, state / "logs", self.said.append)
        self.credentials = Credentials("", "", ())

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.children.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.children.end()

    def _start(self) -> None:
        self.start_valkey()
        self.manage("migrate", "--no-input", "--verbosity", "0")
        backends = [f"--backend={backend}" for backend in self._backends]
        self.manage("seed_demo", f"--model={self._model}", *backends, *self._seed)
        self.credentials = read_credentials(self.state)
        for spec in plan.service_specs(self.addresses, self.state):
            self.children.start(spec)
        for child in self.children.running:
            self.children.wait_ready(child, 60.0)
        until(lambda: self.frame() is not None, 30.0, "the first frame")

    def start_valkey(self) -> None:
        """Start the embedded Valkey and wait for it."""
        assert self.addresses.socket is not None
        self.addresses.socket.unlink(missing_ok=True)
        spec = plan.valkey_spec(valkey.find_binary(), self.addresses, self.state)
        self.children.wait_ready(self.children.start(spec))

    def manage(self, *words: str) -> str:
        """Run a management command; returns what it printed."""
        return self.children.run_once(words[0], [sys.executable, str(ROOT / "manage.py"), *words])

    def key(self, tier: str) -> str:
        """A demo key of that tier (P0, P1, P2)."""
        return next(key.key for key in self.credentials.keys if key.tier == tier)

    @property
    def base_url(self) -> str:
        """What an OpenAI client gets."""
        return f"http://{plan.HOST}:{self.addresses.gateway}/v1"

    @property
    def ops_url(self) -> str:
        """The gateway's operations listener."""
        return f"http://{plan.HOST}:{self.addresses.gateway_ops}"

    @property
    def web_url(self) -> str:
        """Dashboard and admin."""
        return f"http://{plan.HOST}:{self.addresses.web}"

    def child(self, name: str) -> Child:
        """A process by its name."""
        return next(child for child in self.children.running if child.spec.name == name)

    def end(self, name: str, number: int = signal.SIGKILL) -> None:
        """End a process by its id and forget it."""
        child = self.child(name)
        child.process.send_signal(number)
        child.process.wait(10)
        self.children.running.remove(child)

    def start(self, name: str) -> None:
        """Start a process that was ended, and wait until it is ready."""
        if name == "valkey":
            self.start_valkey()
            return
        spec = next(s for s in plan.service_specs(self.addresses, self.state) if s.name == name)
        self.children.wait_ready(self.children.start(spec), 30.0)

    def valkey(self) -> "redis.Redis":
        """A client for the test's own hands."""
        return redis.Redis(unix_socket_path=str(self.addresses.socket), socket_timeout=2, protocol=2)

    def frame(self) -> Frame | None:
        """The newest frame, None where there is none."""
        secret = SigningKey(self.secrets["SLUICEGATE_SIGNING_KEY"].encode())
        try:
            with self.valkey() as client:
                data = client.get(keys.FRAME)
        except (redis.RedisError, OSError):
            return None
        return decode_frame(unseal((secret,), "frame", data)[1]) if data else None

    def metric(self, name: str, **labels: str) -> float:
        """Sum of a gateway metric over the series that carry these labels."""
        page = httpx2.get(f"{self.ops_url}/metrics", timeout=5).text
        marks = [f'{key}="{value}"' for key, value in labels.items()]
        rows = [line for line in page.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
        assert rows, f"the gateway has no metric {name}"
        return sum(float(row.rsplit(" ", 1)[1]) for row in rows if all(mark in row for mark in marks))
