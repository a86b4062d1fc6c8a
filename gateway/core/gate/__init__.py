"""The gate: one state machine that decides who goes, who waits, who is refused, and when to come back.

    commands = gate.handle(event, now)

Nothing else changes admission state. Every ticket gets exactly one outcome: refused before queueing, evicted after
it, or dispatched and then completed, failed or abandoned.

`machine` takes the events; `admission` lets in and sheds, `pool` dispatches, `lifecycle` follows what is in flight,
`configuration` takes policies, bounds and overrides, `overview` shows. They share one `state`.
"""

from gateway.core.gate.machine import Gate

__all__ = ["Gate"]
