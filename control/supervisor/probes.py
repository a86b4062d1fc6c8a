"""Small questions to the outside while starting: is that port a number, does that address answer."""

import http.client
from collections.abc import Callable

from control.supervisor.state import StartRefused

MAX_PORT = 65535


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
