"""Publish explanations: every refused or evicted ticket and a sample of the others, in batches, off the request path.

Valkey's memory is bounded: all gateways together keep about `NEWEST` explanations. Below `NEWEST` an hour each lives an
hour; under a flood each lives so long as that number allows. What Valkey does not take is dropped and counted: an
explanation is a courtesy.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from gateway.contract import keys
from gateway.contract.codec import encode
from gateway.contract.explanation import Explanation
from gateway.core.recorder import NEWEST, is_sampled
from gateway.core.vocabulary import Outcome
from gateway.state import State
from gateway.tally import Exchange
from gateway.valkey import Command, Connection, Link, ReplyError

FLUSH_S = 0.5
MAX_WAITING = 20_000
BATCH = 500
SHORTEST_TTL_S = 10
_SHED = (Outcome.REFUSED, Outcome.EVICTED)


@dataclass(slots=True)
class Explain:
    """A sink of the tally."""

    state: State
    flush_s: float = FLUSH_S
    dropped: int = 0
    _waiting: deque[Explanation] = field(default_factory=deque)
    _taken: int = 0  # since the last flush
    _rate_per_s: float = 0.0

    def add(self, exchange: Exchange) -> None:
        """Keep one ticket's explanation, if it is of those that are kept."""
        if not exchange.outcome or not (exchange.outcome in _SHED or is_sampled(exchange.request_id)):
            return
        self._taken += 1
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(_explanation(exchange))

    async def run(self, link: Link) -> None:
        """For ever: publish what waits while Valkey answers."""
        await link.run(lambda connection: self._session(connection, link))

    async def _session(self, connection: Connection, link: Link) -> None:
        await connection.call("PING")
        link.came_up()
        while True:
            await self.flush(connection)
            await asyncio.sleep(self.flush_s)

    async def flush(self, connection: Connection) -> None:
        """Publish everything that waits.

        Raises:
            ValkeyGone: not all was taken; the rest waits on.
        """
        self._rate_per_s += 0.2 * (self._taken / self.flush_s - self._rate_per_s)
        self._taken = 0
        ttl_s = self._ttl_s()
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            replies = await connection.batch([_command(explanation, ttl_s) for explanation in batch])
            self.dropped += sum(isinstance(reply, ReplyError) for reply in replies)

    def _ttl_s(self) -> int:
        share = NEWEST / self.state.gateways
        if self._rate_per_s * keys.EXPLAIN_TTL_S <= share:
            return keys.EXPLAIN_TTL_S
        return max(SHORTEST_TTL_S, int(share / self._rate_per_s))


def _command(explanation: Explanation, ttl_s: int) -> Command:
    return ("SET", keys.explain(explanation.request_id), encode(explanation), "EX", ttl_s)


def _explanation(exchange: Exchange) -> Explanation:
    return Explanation(
        request_id=exchange.request_id,
        gateway=exchange.gateway,
        at=exchange.at,
        tenant=exchange.tenant,
        pool=exchange.pool,
        tier=exchange.tier,
        outcome=exchange.outcome,
        reason=exchange.reason,
        status=exchange.status,
        backend=exchange.backend,
        is_retry=exchange.is_retry,
        prompt_tokens=exchange.prompt_tokens,
        wait_s=exchange.wait_s,
        retry_after_s=exchange.retry_after_s,
        decision=exchange.decision,
    )
