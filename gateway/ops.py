"""The operations listener: `/livez`, `/readyz`, `/metrics`, for load balancers and Prometheus, never for callers.

Ready means: a snapshot is in force and nobody has asked for a drain. Valkey and the database do not matter to it,
because requests do not need them; `degraded` says when they are away.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.metrics import CONTENT_TYPE, Metrics
from gateway.state import State

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

JSON = "application/json"
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class OpsApp:
    """An ASGI application."""

    state: State
    metrics: Metrics
    gateway: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI
        """Answer GET and HEAD on three paths."""
        if scope["type"] != "http":
            return
        status, kind, body = self._answer(scope["method"], scope["path"])
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        headers.append((b"cache-control", b"no-store"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        if path not in {"/livez", "/readyz", "/metrics"}:
            return 404, JSON, b'{"error":"not found"}'
        if method not in {"GET", "HEAD"}:
            return 405, JSON, b'{"error":"method not allowed"}'
        if path == "/metrics":
            return 200, CONTENT_TYPE, self.metrics.render()
        if path == "/livez":
            return 200, JSON, b'{"status":"alive"}'
        return self._readiness()

    def _readiness(self) -> tuple[int, str, bytes]:
        state = self.state
        if state.draining:
            status = "draining"
        elif state.applied is None:
            status = "no snapshot"
        else:
            status = "ready"
        told = {
            "status": status,
            "gateway": self.gateway,
            "degraded": state.degraded,
            "snapshot_revision": state.applied.revision if state.applied else None,
            "snapshot_source": state.applied.source if state.applied else None,
            "snapshot_refused": state.snapshot_refused,
            "bounds_epoch": state.bounds_version[1],
        }
        return (200 if status == "ready" else 503), JSON, _encode(told)
