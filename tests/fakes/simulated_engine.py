"""A simulated engine as a process of its own, for as long as a `with` block lasts."""

import json
import subprocess
import sys
import urllib.request
from types import TracebackType
from typing import Any, Self


class SimulatedEngine:
    """`python -m gateway.simulation.serve` on a free loopback port, ended by its process id. `url` has no path."""

    def __init__(
        self, *arguments: str, profile: str = "gpu", engine: str = "vllm", model: str = "tiny"
    ) -> None:
        self.model = model
        self.url = ""
        self.pid = 0
        self._command = [sys.executable, "-m", "gateway.simulation.serve", "--listen", "127.0.0.1:0"]
        self._command += ["--profile", profile, "--engine", engine, "--model", model, *arguments]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        process = self._process = subprocess.Popen(  # noqa: S603  # our own arguments
            self._command, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        self.pid = process.pid
        self.url = process.stdout.readline().strip()
        if not self.url:
            self.close()
            raise RuntimeError("the simulated engine did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process now. A second call does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def fault(self, kind: str, **settings: float) -> None:
        """Set a fault (gateway/simulation/serve/faults.py)."""
        body = json.dumps({"fault": kind, **settings}).encode()
        request = urllib.request.Request(f"{self.url}/sim/faults", body)  # noqa: S310  # our own URL
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310  # our own URL
            assert answer.status == 200

    def state(self) -> dict[str, Any]:
        """What really happens inside: running, waiting, kv_ratio, counters."""
        with urllib.request.urlopen(f"{self.url}/sim/state", timeout=5) as answer:  # noqa: S310  # our own URL
            state: dict[str, Any] = json.load(answer)
        return state
