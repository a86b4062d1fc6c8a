"""Shutdown: streams end when the server is told to stop, not when it has waited long enough for them.

A web server that stops gracefully waits for open responses, and a stream would never end by itself. ASGI has no notice
for that, so the signal is watched: our handler ends the streams, then hands on to the handler that was there.
"""

import asyncio
import signal
import threading
from types import FrameType
from weakref import WeakSet

from dashboard.stream.hub import Hub

_WATCHED = (signal.SIGTERM, signal.SIGINT)
_watching: WeakSet[Hub] = WeakSet()


def watch_signals(hub: Hub) -> None:
    """Close `hub` when the process is told to end. Does nothing outside the main thread, and the second time."""
    if threading.current_thread() is not threading.main_thread() or hub in _watching:
        return
    _watching.add(hub)
    loop = asyncio.get_running_loop()
    for number in _WATCHED:
        before = signal.getsignal(number)
        # Only a server that handles the signal itself waits for streams; without one the process just ends.
        if callable(before) and before is not signal.default_int_handler:
            _chain(number, before, hub, loop)


def _chain(number: signal.Signals, before: object, hub: Hub, loop: asyncio.AbstractEventLoop) -> None:
    def told(received: int, frame: FrameType | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(hub.close)
        if callable(before):
            before(received, frame)

    signal.signal(number, told)
