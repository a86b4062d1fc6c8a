"""History: the last fifteen minutes in memory. Frames go in, in order of time; samples and events stay."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from dashboard.charts.samples import KEPT_S, Sample, sample_of
from gateway.contract.frame import EventFrame, Frame

EVENTS_KEPT = 200
CLOCK_JUMP_S = 60.0  # a frame this much older than the last means that the clock was set back


@dataclass(frozen=True, slots=True)
class Recent:
    """What a page can be made of: the newest frame, its bytes as they came, its id, and the past."""

    frame: Frame
    body: bytes
    frame_id: str
    samples: Sequence[Sample]
    events: Sequence[EventFrame]


class History:
    """Keeps samples of `KEPT_S` seconds and the last events. Not safe for threads: one event loop owns it."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()
        self._events: dict[tuple[float, str, str, str], EventFrame] = {}
        self._newest: tuple[Frame, bytes, str] | None = None

    def __repr__(self) -> str:
        newest = self._newest[2] if self._newest else "none"
        return f"<History samples={len(self._samples)} events={len(self._events)} newest={newest}>"

    def add(self, frame: Frame, body: bytes, frame_id: str) -> bool:
        """Take one frame. False where it is not newer than what is kept: it is left out."""
        last = self._samples[-1].at if self._samples else None
        if last is not None and frame.at <= last:
            if last - frame.at < CLOCK_JUMP_S:
                return False
            self._samples.clear()
            self._events.clear()
        self._samples.append(sample_of(frame))
        while self._samples[0].at < frame.at - KEPT_S:
            self._samples.popleft()
        for event in frame.events:
            self._events.setdefault((event.at, event.kind, event.text, event.target or ""), event)
        while len(self._events) > EVENTS_KEPT:
            self._events.pop(min(self._events))
        self._newest = (frame, body, frame_id)
        return True

    def recent(self) -> Recent | None:
        """Everything as of now; None before the first frame."""
        if self._newest is None:
            return None
        frame, body, frame_id = self._newest
        return Recent(frame, body, frame_id, tuple(self._samples), tuple(self._events.values()))
