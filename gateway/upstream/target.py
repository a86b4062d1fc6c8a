"""Where a request goes: the parsed URL of a backend, its credential and its time-outs.

Decides what a backend's URL may look like, and which addresses may be connected to. Does not decide when to connect.
"""

import asyncio
import socket
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from gateway.contract.addresses import refused_address
from gateway.contract.urls import url_problem
from gateway.upstream.errors import ConnectError

_ADDRESSES_TRIED = 4


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds.

    Attributes:
        connect_s: name look-up, TCP and TLS together.
        first_byte_s: from the request being sent to the first byte of the answer's body.
        idle_s: between two pieces of the body, while somebody waits for them.
        total_s: from `open` to the end.
    """

    connect_s: float = 2.0
    first_byte_s: float = 60.0
    idle_s: float = 60.0
    total_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Target:
    """One backend. Make it with `parse`, once per change of configuration rather than once per request.

    Attributes:
        credential: header name and value sent with each request, or None.
        allow_private: whether loopback and private addresses may be connected to.
    """

    host: str
    port: int
    tls: bool = False
    unix_path: str | None = None
    base_path: str = ""
    credential: tuple[bytes, bytes] | None = field(default=None, repr=False)
    timeouts: Timeouts = field(default_factory=Timeouts)
    allow_private: bool = True

    @classmethod
    def parse(
        cls,
        url: str,
        *,
        credential: tuple[bytes, bytes] | None = None,
        timeouts: Timeouts | None = None,
        allow_private: bool = True,
    ) -> Self:
        """Read `http(s)://host[:port][/base]` or `unix:///path/to.sock`.

        Raises:
            ValueError: for another scheme, credentials, a query or a fragment in the URL, or a forbidden address: why.
        """
        problem = url_problem(url, allow_private=allow_private)
        if problem is not None:
            raise ValueError(f"the backend's URL {problem}")
        parts = urlsplit(url)
        timeouts = timeouts or Timeouts()
        if parts.scheme == "unix":
            path, base, host, port, tls = unquote(parts.path), "", "localhost", 80, False
        else:
            tls = parts.scheme.lower() == "https"
            path, base, host = None, parts.path.rstrip("/"), parts.hostname or ""
            port = parts.port or (443 if tls else 80)
        return cls(host, port, tls, path, base, credential, timeouts, allow_private)

    @property
    def key(self) -> tuple[str, int, bool, str | None]:
        """Connections with the same key are interchangeable."""
        return (self.host, self.port, self.tls, self.unix_path)

    @property
    def host_header(self) -> bytes:
        """The value of the Host field."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = 443 if self.tls else 80
        return (host if self.port == default else f"{host}:{self.port}").encode()


async def resolve(target: Target) -> list[str]:
    """The addresses to try, in order: resolved once and then connected to, so that no second look-up can differ.

    Raises:
        ConnectError: when the name has no address, or none that may be connected to.
    """
    try:
        ip_address(target.host)
        found = [target.host]
    except ValueError:
        found = await _look_up(target)
    allowed = [text for text in found if refused_address(text, allow_private=target.allow_private) is None]
    if not allowed:
        raise ConnectError("no address of the backend may be connected to", request_sent=False)
    return allowed[:_ADDRESSES_TRIED]


async def _look_up(target: Target) -> list[str]:
    try:
        entries = await _system_look_up(target.host, target.port)
    except OSError as error:
        raise ConnectError("the backend's name has no address", request_sent=False) from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


async def _system_look_up(host: str, port: int) -> list[Any]:
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
