"""A metrics URL whose name passed when it was saved, and leads elsewhere now."""

import asyncio
from typing import Any

import httpx2
import pytest

from control import addresses
from control.observations import Scraper
from gateway.contract.snapshot import BackendSpec
from gateway.core.policy import BackendPolicy

pytestmark = pytest.mark.loop
PAGE = b"vllm:num_requests_running 3\nvllm:num_requests_waiting 1\nvllm:kv_cache_usage_perc 0.5\n"


class Engine:
    """Answers everything with PAGE and keeps the heads that it was sent."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []

    async def __aenter__(self) -> "Engine":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + PAGE)
        await writer.drain()
        writer.close()


def resolves_to(monkeypatch: pytest.MonkeyPatch, *found: str) -> None:
    async def look_up(host: str, port: int | None) -> list[Any]:
        return [(None, None, None, None, (address, port)) for address in found]

    monkeypatch.setattr(addresses, "_system_look_up", look_up)


async def scraped(port: int) -> str | None:
    """What a scrape of `engine.test` says went wrong; None where it went well."""
    scraper = Scraper(lambda: 1000.0)
    backend = BackendSpec(
        policy=BackendPolicy(name="b", pool="m"), url=f"http://engine.test:{port}", engine="vllm"
    )
    try:
        return (await scraper.observe([backend], 2.0))["b"].error
    finally:
        await scraper.close()


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1%1", "fd00:ec2::254", "::"]
)
async def test_a_name_that_leads_to_metadata_is_not_connected_to(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    resolves_to(monkeypatch, address)
    async with Engine() as engine:
        assert "no address of this host may be connected to" in (await scraped(engine.port) or "")
        assert not engine.heads


async def test_a_good_address_is_tried_after_a_dead_or_a_refused_one_and_gets_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolves_to(monkeypatch, "169.254.169.254", "::1", "127.0.0.1")
    async with Engine() as engine:
        assert await scraped(engine.port) is None
        assert f"Host: engine.test:{engine.port}".encode() in engine.heads[0]


async def test_private_addresses_are_refused_where_the_settings_say_so(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.ALLOW_PRIVATE_BACKENDS = False
    resolves_to(monkeypatch, "127.0.0.1")
    async with Engine() as engine:
        assert await scraped(engine.port) is not None
        assert not engine.heads


async def test_a_name_without_an_address_is_a_failed_connection() -> None:
    transport = addresses.CheckedTransport(allow_private=True, limits=httpx2.Limits())
    async with httpx2.AsyncClient(transport=transport) as client:
        with pytest.raises(httpx2.ConnectError, match="has no address"):
            await client.get("http://no-such-name.invalid/metrics")
