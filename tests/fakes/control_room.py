"""The web process as it runs in production (uvicorn, its own database and Valkey), for browsers and for signals."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from tests.fakes.installation import PASSWORD
from tests.fakes.valkey import RealValkey, running_valkey

ROOT = Path(__file__).resolve().parents[2]
PEOPLE = (("vera", "viewer"), ("omar", "operator"))
_PEOPLE = """
from control.audit import Actor
from control.services import people
for name, role in {people!r}:
    people.add_person(Actor("test", "command"), people.Person(username=name, password={password!r}, role=role))
"""


class ControlRoom:
    """One web process with its Valkey."""

    def __init__(self, directory: Path, valkey: RealValkey) -> None:
        self.valkey = valkey
        self.url = ""
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._env = {k: v for k, v in os.environ.items() if not k.startswith(("SLUICEGATE_", "DJANGO_"))} | {
            "SLUICEGATE_STATE_DIR": str(directory),
            "SLUICEGATE_SECRET_KEY": "s3" * 24,
            "SLUICEGATE_KEY_PEPPER": "p3" * 24,
            "SLUICEGATE_SIGNING_KEY": "k3" * 24,
            "REDIS_URL": valkey.url,
            "DATABASE_URL": f"sqlite:///{directory}/db.sqlite3",
            "DJANGO_SETTINGS_MODULE": "control.settings",
        }

    def install(self) -> None:
        """Tables, a pool with four backends, a viewer and an operator."""
        self._manage("migrate", "-v", "0")
        backends = [("b1", "vllm"), ("b2", "vllm"), ("b3", "vllm"), ("b4", "sglang")]
        flags = [
            f"--backend={name}=http://127.0.0.1:91{i:02},{engine}"
            for i, (name, engine) in enumerate(backends)
        ]
        self._manage("seed_demo", "--pool", "chat-70b", *flags)
        self._manage("shell", "-v", "0", "-c", _PEOPLE.format(people=PEOPLE, password=PASSWORD))

    def start(self) -> None:
        """Serve on a port of the system's choice."""
        log = (self._directory / "web.log").open("ab")
        with log, socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            self._process = subprocess.Popen(  # noqa: S603  # our own arguments
                [
                    sys.executable,
                    "-m",
                    "uvicorn",
                    "control.asgi:application",
                    f"--fd={listening.fileno()}",
                    "--log-level=warning",
                ],
                cwd=ROOT,
                env=self._env,
                pass_fds=(listening.fileno(),),
                stderr=log,
            )
        deadline = time.monotonic() + 30
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"the web process did not start: {self.log()}")
            time.sleep(0.05)

    def stop(self, within_s: float = 5.0) -> float:
        """Ask it to end (SIGTERM); how long that took, in seconds."""
        process, self._process = self._process, None
        if process is None:
            return 0.0
        before = time.monotonic()
        process.terminate()
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return time.monotonic() - before

    def log(self) -> str:
        """What it wrote to stderr."""
        path = self._directory / "web.log"
        return path.read_text() if path.exists() else ""

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/livez", timeout=2) as answer:  # noqa: S310  # loopback
            return bool(answer.status == 200)
        return False

    def _manage(self, *arguments: str) -> None:
        done = subprocess.run(  # noqa: S603  # our own arguments
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self._env,
            capture_output=True,
            check=False,
            timeout=120,
        )
        if done.returncode:
            raise RuntimeError(f"manage.py {arguments[0]}: {done.stderr.decode()}")


@contextlib.contextmanager
def running_control_room():
    """An installed and started control room, ended for sure."""
    with running_valkey() as valkey, tempfile.TemporaryDirectory(prefix="sgw-") as directory:
        room = ControlRoom(Path(directory), valkey)
        room.install()
        room.start()
        try:
            yield room
        finally:
            room.stop()
