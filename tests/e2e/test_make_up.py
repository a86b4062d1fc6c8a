"""`make up` itself, as a person uses it: start, read what it prints, call, press Ctrl-C, start again."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from control.supervisor.plan import DEMO_MODEL
from tests.fakes.system import ROOT, until

pytestmark = [pytest.mark.e2e, pytest.mark.loop]

START_S, END_S = 60.0, 5.0
FIRST_PORT = 41_000


class Up:
    """A running `make up`, without make."""

    def __init__(self, state: Path, **variables: str) -> None:
        port = str(FIRST_PORT + os.getpid() % 10_000)
        names = ("GATEWAY_PORT", "GATEWAY_OPS_PORT", "WEB_PORT", "ENGINE_PORT")
        environment = {"PATH": os.environ["PATH"], "SLUICEGATE_STATE_DIR": str(state), "HOME": str(state)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "control.supervisor"],
            cwd=ROOT,
            env=environment | dict.fromkeys(names, port) | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as out:
            self.lines.extend(iter(out.readline, ""))

    def wait_until_running(self) -> str:
        """What it printed, once everything runs."""
        deadline = time.monotonic() + START_S
        while not any("Running after" in line for line in self.lines):
            assert self._process.poll() is None, self.lines
            assert time.monotonic() < deadline, self.lines
            time.sleep(0.05)
        return "".join(self.lines)

    def descendants(self) -> set[int]:
        """Process ids of everything below it."""
        parents: dict[int, int] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                words = stat.read_text().rpartition(")")[2].split()
            except OSError:  # it ended in between
                continue
            parents[int(stat.parent.name)] = int(words[1])
        found, fresh = set(), {self._process.pid}
        while fresh:
            fresh = {child for child, parent in parents.items() if parent in fresh} - found
            found |= fresh
        return found

    def interrupt(self) -> float:
        """Ctrl-C; how long it took to end, in seconds."""
        began = time.monotonic()
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(30) == 0, self.lines
        self._reader.join(5)
        return time.monotonic() - began

    def end(self) -> None:
        """Make sure that it is gone."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@contextmanager
def make_up(state: Path, **variables: str) -> Iterator[Up]:
    up = Up(state, **variables)
    try:
        yield up
    finally:
        up.end()


def alive(processes: set[int]) -> set[int]:
    return {pid for pid in processes if Path(f"/proc/{pid}/cmdline").exists() and cmdline(pid)}


def cmdline(pid: int) -> bytes:
    try:
        return Path(
            f"/proc/{pid}/cmdline"
        ).read_bytes()  # empty for one that has ended and waits to be noticed
    except OSError:
        return b""


def found(text: str, pattern: str) -> str:
    match = re.search(pattern, text)
    assert match, f"{pattern} is not in what it printed:\n{text}"
    return match[1]


def call(gateway: str, key: str) -> httpx2.Response:
    body: dict[str, Any] = {
        "model": DEMO_MODEL,
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 4,
    }
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.post(f"{gateway}/chat/completions", json=body, headers=headers, timeout=30)


def offered(metrics: str, tier: str) -> float:
    """How many tickets of a tier arrived, by the gateway's own count."""
    rows = re.findall(
        rf'^sluicegate_offered_total{{.*tier="{tier}".*}} (\S+)$', httpx2.get(metrics).text, re.MULTILINE
    )
    return sum(map(float, rows))


def assert_ends_in_time_and_leaves_nobody(up: Up, at_least: int) -> None:
    processes = up.descendants()
    assert len(processes) >= at_least
    assert up.interrupt() < END_S
    assert not alive(processes)


def test_it_starts_serves_ends_within_five_seconds_and_goes_on_where_it_was(tmp_path: Path) -> None:
    with make_up(tmp_path) as up:
        said = up.wait_until_running()
        key = found(said, r"P0 +support-chat +(\S+)")
        answer = call(found(said, r"Gateway +(\S+/v1)"), key)
        assert (answer.status_code, answer.json()["usage"]["completion_tokens"]) == (200, 4)
        assert httpx2.get(found(said, r"Dashboard +(\S+) ") + "sign-in/", timeout=10).status_code == 200
        names = set(re.findall(r"^  ([a-z0-9-]+) {2,}\S", said, re.MULTILINE))
        product = {"valkey", "gateway", "web", "worker-loop", "worker-work", "beat"}
        assert names == product | {"engine-demo-1", "engine-demo-2", "traffic"}
        until(lambda: offered(found(said, r"Operations +(\S+)"), "1") > 0, 20.0, "demo traffic")
        assert_ends_in_time_and_leaves_nobody(up, len(names))

    with make_up(tmp_path, DEMO="0") as up:
        again = up.wait_until_running()
        assert found(again, r"P0 +support-chat +(\S+)") == key
        assert found(again, r"password (\S+)") == found(said, r"password (\S+)")
        assert "No engine was started" in again
        assert not re.search("^  (engine-|traffic)", again, re.MULTILINE)
        refusal = call(found(again, r"Gateway +(\S+/v1)"), key)
        assert refusal.status_code in (429, 502, 503), "the key is known, its backends are away"
        assert_ends_in_time_and_leaves_nobody(up, len(product))
