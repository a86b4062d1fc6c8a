"""Start child processes, keep them running, end them all: no orphan, also when this process is killed.

Children start from the main thread, because the kernel ties PR_SET_PDEATHSIG to the thread that forked.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from control.supervisor.state import StartRefused

BACKOFF_S: Final = (1.0, 2.0, 5.0, 10.0)
CALM_S: Final = 30.0  # a child that ran this long starts again at the first back-off
END_S: Final = 3.5  # of the 5 s in which everything must be gone; the rest is for the store and for killing
LOG_BYTES: Final = 10_000_000
_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One process: its name, what it is in one line, its command, and how to tell that it is ready.

    A store ends after everybody else, so that they can still give back what they hold.
    """

    name: str
    what: str
    command: Sequence[str]
    is_ready: Callable[[], bool] | None = None
    end_s: float = END_S
    is_store: bool = False


@dataclass(slots=True)
class Child:
    """A spec and its running process."""

    spec: ChildSpec
    process: subprocess.Popen[bytes]
    started_at: float
    crashes: int = 0
    restart_at: float | None = None


def _die_with(parent: int) -> Callable[[], None]:
    """What a child runs between fork and exec: ask for SIGTERM when its parent dies."""

    def prepare() -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:  # it died in between
                os._exit(1)

    return prepare


@dataclass(slots=True)
class Children:
    """All children of this process, in the order in which they were started."""

    environment: Mapping[str, str]
    folder: Path
    logs: Path
    say: Callable[[str], None]
    running: list[Child] = field(default_factory=list)
    is_stopping: Callable[[], bool] = lambda: False  # ends waiting for readiness early

    def start(self, spec: ChildSpec) -> Child:
        """Start and remember a child."""
        child = Child(spec, self._spawn(spec), time.monotonic())
        self.running.append(child)
        return child

    def run_once(self, name: str, command: Sequence[str], timeout_s: float = 120.0) -> str:
        """Run a command to its end and return what it printed.

        Raises:
            StartRefused: it failed, the message is the last line that it printed; or it took too long.
        """
        try:
            done = subprocess.run(  # noqa: S603  # commands of our own
                command,
                env=dict(self.environment),
                cwd=self.folder,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
                preexec_fn=_die_with(os.getpid()),  # one thread only
            )
        except subprocess.TimeoutExpired:
            raise StartRefused(f"{name} did not end within {timeout_s:.0f} s.") from None
        if done.returncode:
            lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
            raise StartRefused(f"{name} failed: {lines[-1]}")
        return done.stdout

    def wait_ready(self, child: Child, timeout_s: float = 30.0) -> None:
        """Wait until a child is ready, or until it is time to stop.

        Raises:
            StartRefused: it ended, or was not ready in time; the message has the last line of its log.
        """
        until = time.monotonic() + timeout_s
        while child.spec.is_ready is not None and not child.spec.is_ready():
            if self.is_stopping():
                return
            if child.process.poll() is not None:
                raise StartRefused(f"{child.spec.name} ended at its start: {self.last_line(child.spec)}")
            if time.monotonic() > until:
                raise StartRefused(
                    f"{child.spec.name} is not ready after {timeout_s:.0f} s: {self.last_line(child.spec)}"
                )
            time.sleep(0.05)

    def last_line(self, spec: ChildSpec) -> str:
        """The last line that a child wrote, for a person."""
        path = self._log(spec)
        lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
        return f"{lines[-1]} (all of it: {path})" if lines else f"it wrote nothing to {path}"

    def keep(self) -> None:
        """Look once at every child: say who ended, start again who waited long enough."""
        now = time.monotonic()
        for child in self.running:
            if child.restart_at is None and child.process.poll() is not None:
                self._schedule(child, now)
            elif child.restart_at is not None and now >= child.restart_at:
                child.process, child.started_at, child.restart_at = self._spawn(child.spec), now, None
                self.say(f"{child.spec.name} started again")

    def end(self) -> None:
        """End all children, last started first and stores at the very end; kill what does not listen.

        Takes END_S and what a store needs at most; nobody is left behind, not even a child of a child.
        """
        backwards = list(reversed(self.running))
        for is_store in (False, True):
            self._end([child for child in backwards if child.spec.is_store is is_store])

    def _end(self, leaving: Sequence[Child]) -> None:
        now = time.monotonic()
        for child in leaving:
            _signal_child(child, signal.SIGTERM)
        for child in leaving:
            left = max(0.0, now + child.spec.end_s - time.monotonic())
            try:
                child.process.wait(left)
            except subprocess.TimeoutExpired:
                self.say(f"{child.spec.name} did not end by itself and is killed")
            _signal_group(child, signal.SIGKILL)
            child.process.wait()

    def _schedule(self, child: Child, now: float) -> None:
        calm = now - child.started_at > CALM_S
        child.crashes = 0 if calm else child.crashes
        delay = BACKOFF_S[min(child.crashes, len(BACKOFF_S) - 1)]
        child.crashes += 1
        child.restart_at = now + delay
        code = child.process.returncode
        how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
        _signal_group(child, signal.SIGKILL)
        self.say(f"{child.spec.name} {how}, starts again in {delay:.0f} s: {self.last_line(child.spec)}")

    def _spawn(self, spec: ChildSpec) -> subprocess.Popen[bytes]:
        path = self._log(spec)
        if path.exists() and path.stat().st_size > LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
        with path.open("ab") as log:
            return subprocess.Popen(  # noqa: S603  # commands of our own
                spec.command,
                env=dict(self.environment),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with(os.getpid()),  # noqa: PLW1509  # one thread only
            )

    def _log(self, spec: ChildSpec) -> Path:
        return self.logs / f"{spec.name}.log"


def _signal_child(child: Child, number: int) -> None:
    if child.process.poll() is None:
        child.process.send_signal(number)


def _signal_group(child: Child, number: int) -> None:
    """Signal whatever is left of the child's session (a worker's pool, say)."""
    try:
        os.killpg(child.process.pid, number)
    except (ProcessLookupError, PermissionError):
        return
