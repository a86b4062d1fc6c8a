"""What `make up` keeps between runs (secrets), and what it finds out at each start (free ports, the one lock)."""

import fcntl
import os
import secrets
import socket
import tempfile
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import IO

SECRET_NAMES = ("SLUICEGATE_SECRET_KEY", "SLUICEGATE_KEY_PEPPER", "SLUICEGATE_SIGNING_KEY")
MAX_SOCKET_PATH_BYTES = 100
PORTS_TRIED = 200


class StartRefused(Exception):  # noqa: N818  # one clear line for a person, not a fault of the program
    """`make up` can't start; the message is one line that says why and what to do."""


def load_secrets(state: Path) -> dict[str, str]:
    """Read `secrets.env`, first adding what is missing; the file is readable by its owner only.

    Raises:
        StartRefused: the file has a line that is not NAME=value.
    """
    path = state / "secrets.env"
    values: dict[str, str] = {}
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else (), 1):
        name, equals, value = line.partition("=")
        if not line.strip() or line.startswith("#"):
            continue
        if not equals or not value:
            raise StartRefused(f"{path}:{number}: expected NAME=value. Mend the line, or remove the file.")
        values[name] = value
    missing = [name for name in SECRET_NAMES if name not in values]
    if missing:
        values |= {name: secrets.token_urlsafe(48) for name in missing}
        write_private(path, "".join(f"{name}={value}\n" for name, value in values.items()))
    return values


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(temporary).replace(path)


def lock(state: Path) -> IO[str]:
    """Hold the state folder for this process; the lock ends with the returned file.

    Raises:
        StartRefused: another process holds it.
    """
    file = (state / "up.lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise StartRefused(
            f"{state} is in use by process {holder}. Stop that `make up` first, or set SLUICEGATE_STATE_DIR."
        ) from None
    file.seek(0)
    file.truncate()
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def socket_path(state: Path) -> Path:
    """Where Valkey listens: in the state folder, or, where that path is too long for a socket, in a private one."""
    path = state / "valkey" / "valkey.sock"
    if len(os.fsencode(path)) < MAX_SOCKET_PATH_BYTES:
        return path
    name = f"sluicegate-{os.getuid()}-{sha256(os.fsencode(state)).hexdigest()[:12]}"
    folder = Path(tempfile.gettempdir()) / name
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise StartRefused(f"{folder} belongs to somebody else. Set SLUICEGATE_STATE_DIR to a shorter path.")
    folder.chmod(0o700)
    return folder / "valkey.sock"


def free_port(wanted: int, host: str, taken: Iterable[int] = ()) -> int:
    """The wanted TCP port, or the next free one above it.

    Raises:
        StartRefused: none of the next PORTS_TRIED is free, or the host is not an address of this machine.
    """
    avoid = set(taken)
    for port in range(wanted, min(wanted + PORTS_TRIED, 65536)):
        if port not in avoid and _can_bind(host, port):
            return port
    raise StartRefused(f"No free port on {host} from {wanted} to {wanted + PORTS_TRIED - 1}.")


def _can_bind(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
