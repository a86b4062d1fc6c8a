"""Small questions to the outside while starting: is that port a number, does that address answer."""

import http.client
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from control.supervisor.state import StartRefused

MAX_PORT = 65535
REDIS_PORT = 6379


def port_number(name: str, text: str | None, usual: int) -> int:
    """A TCP port from the environment.

    Raises:
        StartRefused: it is no number from 1 to 65535; the message names the variable.
    """
    if not text:
        return usual
    if not text.isdecimal() or not 1 <= int(text) <= MAX_PORT:
        raise StartRefused(f"{name}={text!r}: expected a port number from 1 to {MAX_PORT}.")
    return int(text)


def http_ok(host: str, port: int, path: str) -> Callable[[], bool]:
    """A check that asks `path` and is content with 200."""

    def answers() -> bool:
        connection = http_client(host, port)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    return answers


def http_client(host: str, port: int) -> http.client.HTTPConnection:
    """A connection that waits a second at most."""
    return http.client.HTTPConnection(host, port, timeout=1.0)


def store_problem(url: str) -> str | None:
    """Why nothing can be reached at a `REDIS_URL`, without its password; None where something listens there.

    What is no such URL is no problem here: the settings refuse it by name.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or REDIS_PORT
    except ValueError:
        return None
    where = parts.path if parts.scheme == "unix" else f"{host}:{port}"
    try:
        if parts.scheme == "unix":
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(parts.path)
        elif parts.scheme in {"redis", "rediss"} and host:
            socket.create_connection((host, port), timeout=1.0).close()
    except OSError as error:
        return f"nothing answers at {where} ({error.strerror or error})"
    return None
