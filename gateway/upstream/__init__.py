"""One exchange with a backend: open, iterate, abort. The only package that speaks HTTP to backends."""

from gateway.upstream.client import Upstream
from gateway.upstream.errors import (
    AbortedError,
    ConnectError,
    FirstByteTimeout,
    IdleTimeout,
    MidstreamDeath,
    ProtocolError,
    TotalTimeout,
    UpstreamError,
)
from gateway.upstream.exchange import Exchange
from gateway.upstream.target import Target, Timeouts

__all__ = [
    "AbortedError",
    "ConnectError",
    "Exchange",
    "FirstByteTimeout",
    "IdleTimeout",
    "MidstreamDeath",
    "ProtocolError",
    "Target",
    "Timeouts",
    "TotalTimeout",
    "Upstream",
    "UpstreamError",
]
