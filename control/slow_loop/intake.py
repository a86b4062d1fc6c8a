"""What the slow loop reads from Valkey each second: snapshot, overrides, the gateways' reports. All of it checked."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from gateway.contract import codec, keys
from gateway.contract.envelope import EnvelopeRefused, SigningKey, unseal
from gateway.contract.overrides import Overrides
from gateway.contract.report import GatewayReport
from gateway.contract.snapshot import Snapshot

if TYPE_CHECKING:
    import redis

log = structlog.get_logger("control.slow_loop")

FORGOTTEN_S: Final = 3600.0
MAX_GATEWAYS: Final = 256
Body = TypeVar("Body")


@dataclass(slots=True)
class Intake:
    """The newest genuine bodies; what is forged, malformed or missing leaves the last good one in place."""

    client: "redis.Redis"
    signing_keys: Callable[[], tuple[SigningKey, ...]]
    snapshot: Snapshot | None = None
    overrides: Overrides = field(default_factory=lambda: Overrides(version=0, overrides=()))
    reports: tuple[GatewayReport, ...] = ()
    _seen: dict[str, bytes] = field(default_factory=dict)
    _complained: set[str] = field(default_factory=set)

    def read(self, now: float) -> None:
        """Read everything in two round trips.

        Raises:
            redis.RedisError: Valkey can't be reached.
        """
        pipe = self.client.pipeline(transaction=False)
        pipe.mget(keys.SNAPSHOT, keys.OVERRIDES)
        pipe.zremrangebyscore(keys.GATEWAYS, "-inf", now - FORGOTTEN_S)
        pipe.zrevrange(keys.GATEWAYS, 0, MAX_GATEWAYS - 1)
        (snapshot, overrides), _, members = pipe.execute()
        self.snapshot = self._take("snapshot", snapshot, codec.decode_snapshot, self.snapshot)
        self.overrides = self._take("overrides", overrides, codec.decode_overrides, self.overrides)
        names = [name.decode(errors="replace") for name in members]
        pages = self.client.mget([keys.report(name) for name in names]) if names else []
        found = (
            self._report(name, page)
            for name, page in zip(names, pages, strict=True)
            if isinstance(page, bytes)
        )
        self.reports = tuple(report for report in found if report is not None)

    def _take(self, kind: str, data: bytes | None, decode: Callable[[bytes], Body], known: Body) -> Body:
        """Decode a body unless these very bytes were decoded before."""
        if not data or self._seen.get(kind) == data:
            return known
        body = self._open(kind, kind, data, decode)
        self._seen[kind] = data
        return known if body is None else body

    def _report(self, name: str, page: bytes) -> GatewayReport | None:
        report = self._open(f"report of {name}", "report", page, codec.decode_report)
        return report if report is not None and report.gateway == name else None

    def _open(self, what: str, kind: str, data: bytes, decode: Callable[[bytes], Body]) -> Body | None:
        try:
            _, body = unseal(self.signing_keys(), kind, data)
            result = decode(body)
        except (EnvelopeRefused, codec.ContractRefused) as refused:
            if what not in self._complained:
                log.warning("refused", what=what, why=str(refused))
                self._complained.add(what)
            return None
        self._complained.discard(what)
        return result
