"""Connects only where a configured URL may lead: a name that passed when it was saved may resolve elsewhere today.

Looked up once, checked, and then connected to by address, so that no second look-up can differ.
"""

import asyncio
import socket
from ipaddress import ip_address
from typing import Any, Final

import httpx2

from gateway.contract.addresses import refused_address

ADDRESSES_TRIED: Final = 4


class CheckedTransport(httpx2.AsyncHTTPTransport):
    """httpx2's own transport behind that check. Sends requests without a body alone: it may try several addresses."""

    def __init__(self, *, allow_private: bool, limits: httpx2.Limits) -> None:
        """`allow_private`: whether loopback and private addresses may be connected to."""
        super().__init__(trust_env=False, limits=limits)
        self._allow_private = allow_private

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send it to the first address that may be connected to and can be.

        Raises:
            httpx2.ConnectError: there is no such address.
        """
        host = request.url.host
        fault = httpx2.ConnectError("no address of this host may be connected to")
        for address in await self._allowed(host, request.url.port):
            extensions = dict(request.extensions)
            if address != host:
                extensions["sni_hostname"] = host
            pinned = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,  # Host among them: the name
                extensions=extensions,
            )
            try:
                return await super().handle_async_request(pinned)
            except httpx2.ConnectError as error:
                fault = error
        raise fault

    async def _allowed(self, host: str, port: int | None) -> list[str]:
        try:
            ip_address(host)
            found = [host]
        except ValueError:
            found = await _look_up(host, port)
        allowed = [text for text in found if refused_address(text, allow_private=self._allow_private) is None]
        return allowed[:ADDRESSES_TRIED]


async def _look_up(host: str, port: int | None) -> list[str]:
    try:
        entries = await _system_look_up(host, port)
    except OSError as error:
        raise httpx2.ConnectError("the name has no address") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


async def _system_look_up(host: str, port: int | None) -> list[Any]:
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
