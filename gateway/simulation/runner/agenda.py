"""The virtual clock: what is to be done, and when. Of things due at the same time the first asked for is done first."""

from collections.abc import Callable
from heapq import heappop, heappush


class Agenda:
    """Time goes from entry to entry."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._asked = 0

    def at(self, at: float, action: Callable[..., None], *arguments: object) -> None:
        """Do that then."""
        self._asked += 1
        heappush(self._heap, (at, self._asked, action, arguments))

    def run(self, until_s: float) -> None:
        """Do everything that is due before `until_s`."""
        heap = self._heap
        while heap and heap[0][0] < until_s:
            self.now, _, action, arguments = heappop(heap)
            self.done += 1
            action(*arguments)
        self.now = until_s
