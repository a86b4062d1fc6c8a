"""Requests with an Idempotency-Key that are on their way.

A newer one with the same body takes over the older one's ticket, its place in the queue or its seat included; one with
another body is the caller's mistake.
"""

import hashlib

from gateway.faults import CallerError, CallerFault
from gateway.gatekeeper import Ticket
from gateway.proxy.call import Call


class InFlight:
    """By (tenant, key); holds only what is on its way, so it is as bounded as the gate's tickets are."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[tuple[str, bytes], tuple[bytes, Call]] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def enter(self, call: Call) -> Ticket | None:
        """Note a request; returns the ticket of the one that it supersedes, where that still has one.

        Raises:
            CallerError: the key is in use for another body.
        """
        name = _name(call)
        if name is None:
            return None
        digest = hashlib.sha256(call.endpoint.path.encode() + b"\0" + call.body).digest()
        known = self._calls.get(name)
        if known is not None and known[0] != digest:
            raise CallerError(
                CallerFault.KEY_REUSED,
                "This Idempotency-Key is in use for a request with another body.",
                "Idempotency-Key",
            )
        ticket = known[1].supersede(call) if known is not None else None
        self._calls[name] = (digest, call)
        return ticket

    def leave(self, call: Call) -> None:
        """A request is over."""
        name = _name(call)
        if name is not None:
            known = self._calls.get(name)
            if known is not None and known[1] is call:
                del self._calls[name]


def _name(call: Call) -> tuple[str, bytes] | None:
    key = call.hints.idempotency_key
    return None if key is None else (call.record.tenant, key)
