"""The flight recorder: why each ticket was refused or evicted, and a sample of the others; and the events to replay.

`Recorder` keeps decisions: all refusals and evictions, and those dispatches whose id falls into a fixed 1 % (by a
checksum of the id, so that every gateway and every run keeps the same ones). It is bounded by number and by age.

`Tape` keeps events, instants and rolls of the dice of a gate from its start, so that `replay` gives the same commands
again, bit for bit. A tape that ran over its length no longer begins at the start and says so.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple
from zlib import crc32

from gateway.core.commands import Command, Decision
from gateway.core.events import Event
from gateway.core.vocabulary import ShedReason

NEWEST = 200_000
LONGEST_S = 3600.0
SAMPLE = 100  # one ticket in so many is kept though nothing happened to it


class Entry(NamedTuple):
    """One decision about a ticket. `reason` is None where it was dispatched."""

    ticket: str
    at: float
    pool: str
    tier: int
    tenant: str
    reason: ShedReason | None
    decision: Decision


Fields = tuple[str, float, str, int, str, ShedReason | None, Decision]


def is_sampled(ticket: str) -> bool:
    """Whether an undisturbed ticket is kept: a function of its id alone."""
    return crc32(ticket.encode("utf-8", "surrogatepass")) % SAMPLE == 0


class Recorder:
    """The newest decisions. Reading changes nothing."""

    __slots__ = ("_entries", "_longest_s")

    def __init__(self, *, newest: int = NEWEST, longest_s: float = LONGEST_S) -> None:
        """Keep at most `newest` decisions, none older than `longest_s`."""
        self._entries: deque[Fields] = deque(maxlen=newest)
        self._longest_s = longest_s

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return map(Entry._make, self._entries)

    def add(self, fields: Fields) -> None:
        """Keep one more, given as the fields of an `Entry`; forget what is too old."""
        entries = self._entries
        entries.append(fields)
        oldest = fields[1] - self._longest_s
        while entries[0][1] < oldest:
            entries.popleft()

    def find(self, ticket: str) -> Entry | None:
        """The newest decision about a ticket that is still known."""
        return next((Entry._make(fields) for fields in reversed(self._entries) if fields[0] == ticket), None)


class Tape:
    """Events, instants and rolls since the start of a gate, at most `length` events."""

    __slots__ = ("events", "length", "overran", "rolls")

    def __init__(self, length: int) -> None:
        """Start before the first event."""
        self.length = length
        self.events: list[tuple[Event, float]] = []
        self.rolls: list[float] = []
        self.overran = False

    def keep(self, event: Event, now: float) -> None:
        """Write one event down; beyond the length, give up: half a tape replays nothing."""
        if len(self.events) >= self.length:
            self.overran = True
            self.events.clear()
            self.rolls.clear()
        if not self.overran:
            self.events.append((event, now))

    def dice(self, roll: Callable[[], float]) -> Callable[[], float]:
        """The same dice, written down."""

        def rolled() -> float:
            value = roll()
            if not self.overran:
                self.rolls.append(value)
            return value

        return rolled


def replay(
    tape: Tape, start: Callable[[Callable[[], float]], Callable[[Event, float], list[Command]]]
) -> Iterator[list[Command]]:
    """Play a tape on a gate that `start(dice)` builds empty; `start` returns its `handle`. Yields commands per event.

    Raises:
        ValueError: where the tape ran over its length.
    """
    if tape.overran:
        raise ValueError("tape: it ran over its length and no longer begins at the start of the gate")
    rolls = iter(tape.rolls)
    handle = start(lambda: next(rolls))
    for event, now in tape.events:
        yield handle(event, now)
