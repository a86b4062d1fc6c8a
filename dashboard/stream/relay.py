"""Relay: one page's stream. Frames as they are, the page's panels made of them, and honest words when there are none.

Events: `frame` (the frame's bytes, unchanged; its id is the stream's), `page` (panels as markup), `idle` (no new frame:
how old the last is, and whether Valkey answers), `bye` (why the stream ends). A reader who is slow gets the newest
frame, never a queue of old ones.
"""

import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import msgspec

from dashboard.stream.hub import Hub

RETRY_MS = 1000


@dataclass(frozen=True, slots=True)
class StreamPolicy:
    """Waiting times and bounds of one stream, in seconds. Setting `DASHBOARD_STREAM` replaces them."""

    lifetime_s: float = 1800.0
    recheck_s: float = 5.0
    idle_s: float = 1.0
    per_user: int = 5


@dataclass(frozen=True, slots=True)
class Viewer:
    """Whose stream it is, whether they may still see it, and what their page shows of the newest frame."""

    user: object
    may_go_on: Callable[[], Awaitable[bool]]
    page_key: tuple[str, ...]
    page: Callable[[], bytes]


def event(name: str, data: bytes, event_id: str = "") -> bytes:
    """One server-sent event. A line feed in the data starts another data line, as the format wants it."""
    head = f"event: {name}\n" + (f"id: {event_id}\n" if event_id else "")
    return head.encode() + b"data: " + data.replace(b"\r", b"").replace(b"\n", b"\ndata: ") + b"\n\n"


class TooManyStreams(Exception):  # noqa: N818  # a verdict
    """This user has as many streams open as one may have."""


class Place:
    """One of a user's streams. Given back when the stream ends, or when it is dropped before it ever began."""

    __slots__ = ("__weakref__", "_finalizer")

    def __init__(self, hub: Hub, user: object) -> None:
        hub.streams[user] = hub.streams.get(user, 0) + 1
        self._finalizer = weakref.finalize(self, _give_back, hub.streams, user)

    def leave(self) -> None:
        """Count the stream out, once."""
        self._finalizer()


def admit(hub: Hub, viewer: Viewer, policy: StreamPolicy) -> Place:
    """Count a stream in.

    Raises:
        TooManyStreams: the user has `per_user` already.
    """
    if hub.streams.get(viewer.user, 0) >= policy.per_user:
        raise TooManyStreams
    return Place(hub, viewer.user)


def _give_back(streams: dict[object, int], user: object) -> None:
    left = streams.get(user, 0) - 1
    if left > 0:
        streams[user] = left
    else:
        streams.pop(user, None)


async def relay(hub: Hub, viewer: Viewer, policy: StreamPolicy, place: Place) -> AsyncIterator[bytes]:
    """The stream's bytes until it has lived long enough, its viewer may not go on, or the process ends.

    `place` is what `admit` gave; it is given back here, however the stream ends.
    """
    try:
        yield f"retry: {RETRY_MS}\n\n".encode()
        started = checked = time.monotonic()
        seen = -1
        while True:
            now = time.monotonic()
            if hub.is_closing or now - started >= policy.lifetime_s:
                yield event("bye", b"closing" if hub.is_closing else b"lifetime")
                return
            if now - checked >= policy.recheck_s:
                checked = now
                if not await viewer.may_go_on():
                    yield event("bye", b"signed-out")
                    return
            yield _news(hub, viewer) if hub.version != seen and hub.recent else _idle(hub)
            seen = hub.version
            await hub.changed(seen, min(policy.idle_s, policy.recheck_s))
    finally:
        place.leave()


def _news(hub: Hub, viewer: Viewer) -> bytes:
    recent = hub.recent
    if recent is None:
        return _idle(hub)
    frame = hub.part(("frame",), lambda: event("frame", recent.body, recent.frame_id))
    page = hub.part(viewer.page_key, lambda: event("page", viewer.page()))
    return frame + page if hub.source.is_up else frame + page + _idle(hub)


def _idle(hub: Hub) -> bytes:
    recent = hub.recent
    return event(
        "idle",
        msgspec.json.encode(
            {
                "at": recent.frame.at if recent else None,
                "age_s": round(max(0.0, time.time() - recent.frame.at), 1) if recent else None,
                "is_up": hub.source.is_up,
                "since": hub.source.since,
            }
        ),
    )
