"""How the edge tells the request path that a caller has gone: at once, without a task that waits for it.

The edge puts one `Departure` into each request's scope, at `scope["extensions"][EXTENSION]`, and calls `left()` when
the connection is lost or cut before the answer is complete. Under a plain ASGI server there is none; the request
path then waits in `receive` instead, with a task of its own.
"""

from collections.abc import Callable

EXTENSION = "sluicegate.departure"


class Departure:
    """Tells one watcher, once. `has_left` is true from the first `left()` on.

    The other way round, `is_cut` tells the edge that an answer is left incomplete on purpose: its backend died inside
    an event, and the caller has to see a broken transfer.
    """

    __slots__ = ("_watcher", "has_left", "is_cut")

    def __init__(self) -> None:
        self.has_left = False
        self.is_cut = False
        self._watcher: Callable[[], None] | None = None

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` when the caller leaves; at once where it has left already."""
        if self.has_left:
            watcher()
        else:
            self._watcher = watcher

    def forget(self) -> None:
        """The answer is complete, or nobody cares any more."""
        self._watcher = None

    def left(self) -> None:
        """The caller has gone. Any number of times."""
        if self.has_left:
            return
        self.has_left = True
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher()
