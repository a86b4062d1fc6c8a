"""Feed and marks: what happened, newest first, and the lettered flags of the charts."""

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from dashboard.charts.samples import KEPT_S
from dashboard.panels.scene import Scene
from dashboard.panels.wording import clock
from gateway.contract.frame import EventFrame

SHOWN = 12
FLAGS = 12

_ICONS = {
    "breaker": ("open", "is-bad"),
    "shedding": ("down", "is-bad"),
    "load": ("up", "is-bad"),
    "incident": ("flag", "is-bad"),
    "telemetry": ("pulse", "is-bad"),
    "gateway": ("server", "is-bad"),
    "snapshot": ("alert", "is-bad"),
    "limit": ("valve", ""),
    "policy": ("sliders", "is-hand"),
    "override": ("hand", "is-hand"),
    "recovery": ("check", "is-good"),
}
_GOOD_WORDS = ("to closed", "closes", "no longer", "reports again")
_FLAGGED = frozenset(_ICONS) - {"limit"}


@dataclass(frozen=True, slots=True)
class FeedItem:
    """One line of the feed."""

    at: float
    time: str
    icon: str
    style: str
    target: str
    text: str
    times: int


@dataclass(frozen=True, slots=True)
class Mark:
    """One flag on the charts; `at_ms` is where."""

    letter: str
    at_ms: int
    time: str
    text: str


def feed(scene: Scene) -> tuple[FeedItem, ...]:
    """The newest events first; the same words again are one line with their number. Unknown kinds get the plain icon."""
    newest: dict[tuple[str, str], tuple[EventFrame, int]] = {}
    for event in sorted(_of_pool(scene), key=lambda e: -e.at):
        first, times = newest.get((event.kind, event.text), (event, 0))
        newest[event.kind, event.text] = (first, times + 1)
    return tuple(_item(event, times) for event, times in list(newest.values())[:SHOWN])


def marks(scene: Scene) -> tuple[Mark, ...]:
    """The last events that belong on a time axis, lettered from left to right."""
    shown = [e for e in _of_pool(scene) if e.kind in _FLAGGED and e.at > scene.frame.at - KEPT_S]
    shown = sorted(shown, key=lambda e: e.at)[-FLAGS:]
    return tuple(
        Mark(letter, int(e.at * 1000), clock(e.at), _flag_words(e))
        for letter, e in zip(ascii_uppercase, shown, strict=False)
    )


def _of_pool(scene: Scene) -> Sequence[EventFrame]:
    """Events that concern the scene's pool: those that name another pool or its backend are left out."""
    others = {b.backend for b in scene.frame.backends if not scene.has(b.pool)}
    others |= {pool for pool in scene.pools if not scene.has(pool)}
    others -= {b.backend for b in scene.backends}
    return [e for e in scene.events if e.target is None or e.target not in others]


def _item(event: EventFrame, times: int) -> FeedItem:
    icon, style = _ICONS.get(event.kind, ("pulse", ""))
    if any(word in event.text for word in _GOOD_WORDS):
        icon, style = ("closed" if event.kind == "breaker" else "check"), "is-good"
    return FeedItem(event.at, clock(event.at), icon, style, _target(event), event.text, times)


def _target(event: EventFrame) -> str:
    """The target, unless the text says it already."""
    return event.target if event.target and event.target not in event.text else ""


def _flag_words(event: EventFrame) -> str:
    target = _target(event)
    words = f"{target} {event.text}" if target else event.text
    return words if len(words) <= 48 else words[:47] + "\N{HORIZONTAL ELLIPSIS}"
