"""The quotas of one gateway, shared through a real Valkey: what a test reserves, and what it is answered."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from gateway.clocks import Clocks
from gateway.contract.snapshot import GrantSpec
from gateway.core.events import QuotaDenied, QuotaGranted
from gateway.places import read_place
from gateway.quotas import Quotas
from gateway.quotas.sharing import Sharing
from gateway.state import Source, State, index
from gateway.valkey import Link
from tests.fakes.published import a_grant, a_snapshot
from tests.fakes.waiting import until

Answer = QuotaGranted | QuotaDenied


class QuotaGateway:
    """One gateway's quotas. `ask` waits for the answer as the gate would.

    They are patient unless told otherwise: on a busy machine a slow answer is still an answer.
    """

    def __init__(
        self, url: str, name: str = "g1", *, gateways: int = 1, patience_s: float = 1.0, **bounds: Any
    ) -> None:
        self.state = State(gateways=gateways)
        self.clocks = Clocks(time.monotonic, time.time)
        self.answers: dict[str, asyncio.Future[Answer]] = {}
        self.count = 0
        self.name = name
        self.waits_s: list[float] = []
        self.quotas = Quotas(self.state, self.clocks, asyncio.get_running_loop(), self._answered, patience_s)
        self.link = Link(read_place(url), name=name, dice=lambda: 0.0)
        self.sharing = Sharing(self.quotas, name, "boot-" + name)
        self.grant(**bounds)

    def grant(self, **bounds: Any) -> GrantSpec:
        """Put a grant with these bounds in force."""
        grant = a_grant(**bounds)
        snapshot = a_snapshot(1, grants=(grant,))
        self.quotas.apply(index(snapshot, (1, 0, 1), Source.VALKEY))
        return grant

    def _answered(self, answer: Answer) -> None:
        self.answers.pop(answer.ticket).set_result(answer)

    async def ask(self, tokens: int = 0, ticket: str | None = None) -> Answer:
        """Reserve for a new ticket and wait for the answer."""
        self.count += 1
        name = ticket or f"{self.name}-{self.count}"
        future = self.answers[name] = asyncio.get_running_loop().create_future()
        began = time.monotonic()
        answer = self.quotas.reserve(name, "acme", "chat", tokens)
        if answer is None:
            answer = await future
        else:
            del self.answers[name]
        self.waits_s.append(time.monotonic() - began)
        return answer

    async def granted(self, times: int, tokens: int = 0) -> list[str]:
        """Ask so many times, one after the other; the tickets that were granted."""
        answers = [await self.ask(tokens) for _ in range(times)]
        return [a.ticket for a in answers if isinstance(a, QuotaGranted)]

    async def until_shared(self, is_up: bool = True) -> None:
        """Wait until Valkey answers these quotas, or does not."""
        account = self.quotas.accounts["acme", "chat"]
        bounds = [bound for bound in (*account.leases, account.seats) if bound is not None]
        await until(
            lambda: (
                self.link.is_up is is_up
                and self.quotas.is_alone is not is_up
                and all(bound.is_alone is not is_up for bound in bounds)
            )
        )


@contextlib.asynccontextmanager
async def quota_gateway(url: str, name: str = "g1", **how: Any) -> AsyncIterator[QuotaGateway]:
    """Quotas that share in the background until the block ends."""
    gateway = QuotaGateway(url, name, **how)
    task = asyncio.create_task(gateway.sharing.run(gateway.link))
    try:
        yield gateway
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def all_of(*asks: Callable[[], Any]) -> list[Answer]:
    """Several asks at once."""
    return await asyncio.gather(*(ask() for ask in asks))
