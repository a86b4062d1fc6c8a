import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from control.supervisor.children import Child, Children, ChildSpec
from control.supervisor.state import StartRefused

pytestmark = pytest.mark.loop

SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]
# Ignores SIGTERM and has a child of its own, as a worker's pool would.
STUBBORN = [
    sys.executable,
    "-c",
    """
import signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(subprocess.Popen(['sleep', '60']).pid, flush=True)
time.sleep(60)
""",
]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def children(tmp_path: Path, said: list[str]) -> Iterator[Children]:
    made = Children(dict(os.environ), tmp_path, tmp_path, said.append)
    yield made
    made.end()


def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split(") ")[1].startswith("Z")


def test_a_child_that_crashed_starts_again_after_its_back_off(
    children: Children, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control.supervisor.children.BACKOFF_S", (0.05, 0.2))
    child = children.start(ChildSpec("sleeper", "sleeps", SLEEPS))
    first = child.process.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: (children.keep(), child.process.pid != first and child.restart_at is None)[1])
    assert "sleeper was ended by signal 9, starts again in" in said[0]
    assert said[1] == "sleeper started again"
    assert not is_gone(child.process.pid)


def test_ending_leaves_nobody_behind_not_even_children_of_a_child_that_would_not_listen(
    children: Children, said: list[str], tmp_path: Path
) -> None:
    children.start(ChildSpec("sleeper", "sleeps", SLEEPS))
    stubborn: Child = children.start(ChildSpec("stubborn", "ignores", STUBBORN, end_s=0.2))
    log = tmp_path / "stubborn.log"
    until(lambda: log.exists() and log.read_text().strip() != "")
    grandchild = int(log.read_text())
    children.end()
    assert said == ["stubborn did not end by itself and is killed"]
    until(lambda: is_gone(stubborn.process.pid) and is_gone(grandchild))


def test_children_end_with_their_parent_even_when_it_is_killed(tmp_path: Path) -> None:
    program = f"""
import sys, time
from pathlib import Path
from control.supervisor.children import Children, ChildSpec
children = Children({{}}, Path("."), Path({str(tmp_path)!r}), print)
print(children.start(ChildSpec("sleeper", "", {SLEEPS!r})).process.pid, flush=True)
time.sleep(60)
"""
    root = Path(__file__).parents[3]
    parent = subprocess.Popen(  # noqa: S603  # our own program
        [sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=root, text=True
    )
    assert parent.stdout is not None
    with parent.stdout as out:
        child = int(out.readline())
    time.sleep(0.1)
    parent.kill()
    parent.wait()
    until(lambda: is_gone(child))


def test_a_child_that_ends_while_it_should_become_ready_is_told_with_its_last_words(
    children: Children,
) -> None:
    broken = [sys.executable, "-c", "import sys; print('first'); sys.exit('no such port')"]
    child = children.start(ChildSpec("broken", "breaks", broken, is_ready=lambda: False))
    with pytest.raises(StartRefused, match="broken ended at its start: no such port"):
        children.wait_ready(child)


def test_a_child_that_never_becomes_ready_is_told(children: Children) -> None:
    child = children.start(ChildSpec("slow", "sleeps", SLEEPS, is_ready=lambda: False))
    with pytest.raises(StartRefused, match="slow is not ready after 0 s: it wrote nothing"):
        children.wait_ready(child, timeout_s=0.05)


def test_waiting_for_a_child_ends_when_it_is_time_to_stop(children: Children) -> None:
    child = children.start(ChildSpec("slow", "sleeps", SLEEPS, is_ready=lambda: False))
    children.is_stopping = lambda: True
    children.wait_ready(child, timeout_s=30.0)


def test_a_command_that_does_not_end_is_told(children: Children) -> None:
    with pytest.raises(StartRefused, match=r"migrate did not end within 0 s\."):
        children.run_once("migrate", SLEEPS, timeout_s=0.1)


def test_a_command_that_fails_is_told_with_its_last_line(children: Children) -> None:
    assert children.run_once("ok", [sys.executable, "-c", "print('done')"]) == "done\n"
    with pytest.raises(StartRefused, match="migrate failed: no such table"):
        children.run_once(
            "migrate", [sys.executable, "-c", "import sys; sys.exit('Traceback\\nno such table')"]
        )
