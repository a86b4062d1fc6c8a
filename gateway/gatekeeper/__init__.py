"""Drives the gate: turns what happens into events, and carries out its commands in order. The only owner of the Gate.

One future per waiting ticket, one timer for all of them, one Progress per backend and loop pass. Everything here but
`verdict` is synchronous: a caller's departure gives its seat back before the next line runs, whatever its coroutine
is waiting for.

Whose duty: who calls `arrive` calls exactly one of `finished`, `failed`, `leave` for that ticket sooner or later;
after the gate has ended it (refused, evicted) or after the first of them, more of them do nothing.
"""

from gateway.gatekeeper.alarm import INNER_TICK_S
from gateway.gatekeeper.driver import Gatekeeper
from gateway.gatekeeper.ticket import Quotas, Ticket, Verdict

__all__ = ["INNER_TICK_S", "Gatekeeper", "Quotas", "Ticket", "Verdict"]
