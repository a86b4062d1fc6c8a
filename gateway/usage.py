"""LLM tokens that tenants used: to the stream `keys.USAGE`, on disk while Valkey is away, counted once whatever happens.

Usage is summed per (tenant, pool) for `FLUSH_S`, then becomes UsageDeltas numbered (gateway, boot, seq): the ledger
upserts by that number, so a delta that is sent twice counts once. A delta leaves the spool only after Valkey has
taken it. SIGKILL loses at most what the last flush had not reached: one second.

Spool: one file per boot, `usage-<boot>.spool`, a JSON line per delta, appended and fsynced in a thread. Files of earlier
boots are sent first. At `MAX_SPOOL_BYTES` further deltas are dropped and counted: never unbounded, never silent.
"""

import asyncio
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gateway.clocks import Clocks
from gateway.contract import keys
from gateway.contract.codec import ContractRefused, decode_usage, encode
from gateway.contract.envelope import Header, SigningKey, seal
from gateway.contract.report import UsageDelta
from gateway.tally import Exchange
from gateway.valkey import Command, Connection, Link, ReplyError, ValkeyGone

FLUSH_S = 1.0
MAX_SPOOL_BYTES = 64 << 20
BATCH = 200  # deltas in one write to Valkey
STREAM_MAX = 200_000  # entries; the ledger reads them within seconds

log = logging.getLogger("sluicegate.usage")


class Sum(msgspec.Struct):
    """What one tenant used in one pool since the last flush."""

    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0


@dataclass(slots=True)
class Usage:
    """A sink of the tally."""

    gateway: str
    boot: str
    directory: Path
    clocks: Clocks
    signing_key: SigningKey
    flush_s: float = FLUSH_S
    max_spool_bytes: int = MAX_SPOOL_BYTES
    dropped: int = 0
    spooled_bytes: int = 0
    _sums: dict[tuple[str, str], Sum] = field(default_factory=dict)
    _unsent: list[UsageDelta] = field(default_factory=list)
    _seq: int = 0
    _disk: asyncio.Lock = field(default_factory=asyncio.Lock)  # one writer of the spool at a time

    def add(self, exchange: Exchange) -> None:
        """Count one request that a backend worked on."""
        if not exchange.attempts or not (exchange.prompt_tokens or exchange.output_tokens):
            return
        name = (exchange.tenant, exchange.pool)
        total = self._sums.get(name)
        if total is None:
            total = self._sums[name] = Sum()
        total.requests += 1
        total.prompt_tokens += exchange.prompt_tokens
        total.output_tokens += exchange.output_tokens

    def collect(self) -> list[UsageDelta]:
        """Turn what was summed into numbered deltas, and forget the sums."""
        sums, self._sums = self._sums, {}
        return [self._delta(name, total) for name, total in sums.items()]

    def _delta(self, name: tuple[str, str], total: Sum) -> UsageDelta:
        self._seq += 1
        return UsageDelta(
            gateway=self.gateway,
            boot=self.boot,
            seq=self._seq,
            at=self.clocks.wall(),
            tenant=name[0],
            pool=name[1],
            requests=total.requests,
            prompt_tokens=total.prompt_tokens,
            output_tokens=total.output_tokens,
        )

    # -- the spool ------------------------------------------------------------------------------------------------

    async def spool(self) -> None:
        """For ever: every `flush_s`, write what was used to disk. What is there is what `run` sends."""
        while True:
            await asyncio.sleep(self.flush_s)
            await self.flush()

    async def flush(self) -> None:
        """Number what was used and write it to disk. A disk that refuses costs safety, not usage: memory holds it."""
        deltas = self.collect()
        if not deltas:
            return
        data = b"".join(encode(delta) + b"\n" for delta in deltas)
        if self.spooled_bytes + len(data) > self.max_spool_bytes:
            self.dropped += len(deltas)
            return
        self._unsent += deltas
        async with self._disk:
            self.spooled_bytes += len(data)
            try:
                await asyncio.to_thread(_append, self._file, data)
            except OSError as fault:
                log.error("usage could not be spooled: %s", fault.strerror)  # noqa: TRY400  # a full disk is no bug

    @property
    def _file(self) -> Path:
        return self.directory / f"usage-{self.boot}.spool"

    def recover(self) -> None:
        """Take up what earlier boots had not sent. A line cut off by a crash is left out. Blocks: once, at the start."""
        for path in sorted(self.directory.glob("usage-*.spool")):
            for line in path.read_bytes().splitlines():
                try:
                    self._unsent.append(decode_usage(line))
                except ContractRefused:
                    log.warning("usage: a damaged line of %s is left out", path.name)
            self.spooled_bytes += path.stat().st_size

    # -- to Valkey ------------------------------------------------------------------------------------------------

    async def run(self, link: Link) -> None:
        """For ever: send what is spooled while Valkey answers."""
        await link.run(lambda connection: self._session(connection, link))

    async def _session(self, connection: Connection, link: Link) -> None:
        await connection.call("PING")
        link.came_up()
        while True:
            await self.send(connection)
            await asyncio.sleep(self.flush_s)

    async def send(self, connection: Connection) -> None:
        """Send everything that is not sent yet.

        Raises:
            ValkeyGone: not everything was taken; the rest stays spooled.
        """
        while self._unsent:
            deltas = self._unsent[:BATCH]
            for reply in await connection.batch([self._command(delta) for delta in deltas]):
                if isinstance(reply, ReplyError):
                    raise ValkeyGone(f"usage refused: {reply}")
            del self._unsent[: len(deltas)]
        async with self._disk:
            if self.spooled_bytes and not self._unsent:
                self.spooled_bytes = 0
                await asyncio.to_thread(_remove, self.directory)

    def _command(self, delta: UsageDelta) -> Command:
        header = Header(
            kind="usage", generation=0, epoch=0, seq=delta.seq, sent_at=self.clocks.wall(), key_id=""
        )
        data = seal(self.signing_key, header, encode(delta))
        return ("XADD", keys.USAGE, "MAXLEN", "~", STREAM_MAX, "*", keys.USAGE_FIELD, data)


def _append(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(directory: Path) -> None:
    """Everything was sent: the spool begins anew."""
    for path in directory.glob("usage-*.spool"):
        path.unlink(missing_ok=True)
