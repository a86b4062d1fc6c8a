"""`python -m gateway` as a real process: started, asked, signalled, and ended by its id."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

import httpx2

from tests.fakes.gateway import PEPPER
from tests.fakes.published import SIGNING

START_TIMEOUT_S = 10.0
_READY = re.compile(r"serving on (\S+), operations on (\S+), (.+)")


class GatewayProcess:
    """One process. Use `gateway_process` to have it ended for sure."""

    def __init__(self, state_dir: Path, redis_url: str, **variables: str) -> None:
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path.cwd()),
            "REDIS_URL": redis_url,
            "SLUICEGATE_KEY_PEPPER": PEPPER.decode(),
            "SLUICEGATE_SIGNING_KEY": SIGNING.secret.decode(),
            "SLUICEGATE_STATE_DIR": str(state_dir),
            "SLUICEGATE_LISTEN": "127.0.0.1:0",
            "SLUICEGATE_OPS_LISTEN": "127.0.0.1:0",
            "SLUICEGATE_DRAIN_DELAY_S": "0",
            "SLUICEGATE_RESYNC_S": "0.2",
            "SLUICEGATE_REPORT_INTERVAL_S": "0.1",
            **variables,
        }
        self.lines: Queue[str] = Queue()
        self.ready_line = ""
        self.url = self.ops_url = ""
        self.boot_s = 0.0

    def start(self, *arguments: str) -> None:
        """Start it and wait for its line."""
        began = time.monotonic()
        self.lines = Queue()
        self.process = subprocess.Popen(  # noqa: S603  # our own program
            [sys.executable, "-m", "gateway", *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.errors: list[str] = []
        self._readers = [
            Thread(target=self._read, args=(self.process.stdout, self.lines.put)),
            Thread(target=self._read, args=(self.process.stderr, self.errors.append)),
        ]
        for reader in self._readers:
            reader.start()
        if not arguments:
            self._await_ready()
            self.boot_s = time.monotonic() - began

    @staticmethod
    def _read(pipe: Any, put: Any) -> None:
        with pipe:
            for line in pipe:
                put(line.rstrip("\n"))
            put("")  # that was all

    def _await_ready(self) -> None:
        with suppress(Empty):
            self.ready_line = self.lines.get(timeout=START_TIMEOUT_S)
        match = _READY.fullmatch(self.ready_line)
        if match is None:
            raise AssertionError(f"not ready: {self.ready_line} {self.errors}")
        self.url, self.ops_url = f"http://{match[1]}", f"http://{match[2]}"

    def readyz(self) -> "httpx2.Response":
        """What a load balancer is told."""
        return httpx2.get(f"{self.ops_url}/readyz", timeout=5, trust_env=False)

    def metric(self, line: str) -> float:
        """One sample's value by its name and labels, 0 where it is absent."""
        text = httpx2.get(f"{self.ops_url}/metrics", timeout=5, trust_env=False).text
        for found in text.splitlines():
            if found.startswith(line + " "):
                return float(found.rpartition(" ")[2])
        return 0.0

    def access_lines(self) -> list[dict[str, Any]]:
        """Access lines so far that were not returned before."""
        lines = []
        while not self.lines.empty():
            line = self.lines.get_nowait()
            if line:
                lines.append(json.loads(line))
        return lines

    def terminate(self) -> None:
        """SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, at once."""
        self.process.kill()
        self.wait()

    def wait(self, timeout_s: float = 10.0) -> int:
        """Its exit code."""
        code = self.process.wait(timeout_s)
        for reader in self._readers:
            reader.join(timeout_s)
        self.errors = [line for line in self.errors if line]
        return code


@contextmanager
def gateway_process(state_dir: Path, redis_url: str, **variables: str) -> Iterator[GatewayProcess]:
    """A started gateway that is gone after the block."""
    gateway = GatewayProcess(state_dir, redis_url, **variables)
    gateway.start()
    try:
        yield gateway
    finally:
        if gateway.process.poll() is None:
            gateway.kill()
