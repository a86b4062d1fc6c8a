"""Effects: what an override of a breaker would do, computed from the current frame before anybody presses the button.

Certain first (in-flight, waiting, seats, who is left), then an estimate: the pool's present rate of admission, scaled
by the seats that would be left and dealt out to the tiers in their order. It ignores prompt sizes and says so.
"""

from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from dashboard.panels.causes import NAMED_AT_MOST
from dashboard.panels.scene import Scene, Tier, is_out
from dashboard.panels.wording import listed, percent
from gateway.contract.frame import BackendFrame
from gateway.core.vocabulary import BreakerState

OPEN, CLOSED, AUTO = "open", "closed", "auto"
MOST_GROWTH = 4.0  # an idle pool's spare rate is not extrapolated further than this


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected for one tier."""

    label: str
    style: str
    words: str


@dataclass(frozen=True, slots=True)
class Effect:
    """The preview of one action. `rows` are (what, what happens to it)."""

    action: str
    warning: str
    rows: tuple[tuple[str, str], ...]
    expected: tuple[Expected, ...]


def effects(scene: Scene, backend: str) -> tuple[Effect, ...]:
    """The preview of each action on a backend; empty where the frame does not know it."""
    found = next((b for b in scene.backends if b.backend == backend), None)
    if found is None:
        return ()
    peers = Scene(scene.frame, scene.samples, scene.events, scene.now, found.pool)
    return tuple(_effect(peers, found, action) for action in (OPEN, CLOSED, AUTO))


def _effect(scene: Scene, backend: BackendFrame, action: str) -> Effect:
    others = [b for b in scene.backends if b.backend != backend.backend and not is_out(b)]
    takes_now, takes_then = not is_out(backend), _takes_then(backend, action)
    before = sum(b.limit for b in others) + (backend.limit if takes_now else 0)
    after = sum(b.limit for b in others) + (_seats_then(backend, scene) if takes_then else 0)
    rows = [
        (_("In flight here"), _in_flight(backend, takes_then=takes_then)),
        _waiting(scene, others, takes_then=takes_then),
    ]
    rows.append((_("Pool limit"), _pool_limit(before, after)))
    rows.extend(_breaker_rows(backend, action))
    return Effect(
        action=action,
        warning=_warning(scene, backend, action, len(others)),
        rows=tuple(rows),
        expected=_expected(scene, before, after) if round(before) != round(after) else (),
    )


def _takes_then(backend: BackendFrame, action: str) -> bool:
    if action == AUTO:  # what the breaker itself decided; a forced one starts again closed or half-open
        return backend.breaker.state != BreakerState.OPEN
    return action == CLOSED


def _seats_then(backend: BackendFrame, scene: Scene) -> float:
    """Its own limit; where it has none now, that of its peers."""
    if backend.limit >= 1:
        return backend.limit
    peers = [b.limit for b in scene.backends if not is_out(b) and b.backend != backend.backend]
    return sum(peers) / len(peers) if peers else float(backend.limit_max or 0)


def _in_flight(backend: BackendFrame, *, takes_then: bool) -> str:
    if backend.in_flight == 0:
        return _("none")
    if takes_then:
        return _("%(n)s, go on as they are") % {"n": backend.in_flight}
    return _("%(n)s, finish normally, nothing is aborted") % {"n": backend.in_flight}


def _waiting(scene: Scene, others: list[BackendFrame], *, takes_then: bool) -> tuple[str, str]:
    waiting = sum(t.waiting for t in scene.tiers)
    if takes_then or waiting == 0:
        return _("Waiting"), _("%(n)s, unchanged") % {"n": waiting}
    if not others:
        return _("Waiting"), _("%(n)s would find no backend: fallback where the pool has one, else 503") % {
            "n": waiting
        }
    names = listed([b.backend for b in others], NAMED_AT_MOST)
    return _("Waiting"), _("%(n)s stay queued, go to %(names)s") % {"n": waiting, "names": names}


def _pool_limit(before: float, after: float) -> str:
    if round(before) == round(after):
        return _("%(n)s seats, unchanged") % {"n": round(before)}
    return _("%(before)s to %(after)s seats") % {"before": round(before), "after": round(after)}


def _breaker_rows(backend: BackendFrame, action: str) -> list[tuple[str, str]]:
    if action == CLOSED:
        return [(_("Breaker"), _("failures are ignored until it ends; calls may fail one by one"))]
    if action == AUTO:
        if backend.breaker.manual:
            return [(_("Breaker"), _("the override ends now; the breaker decides again"))]
        return [(_("Breaker"), _("no override is in force; nothing changes"))]
    return [(_("Breaker"), _("no new requests here until it ends or is undone"))]


def _warning(scene: Scene, backend: BackendFrame, action: str, others: int) -> str:
    total = len(scene.backends)
    if action == OPEN:
        if others == 0:
            return _("No backend of %(pool)s would be left.") % {"pool": backend.pool}
        out = [b.backend for b in scene.backends if is_out(b) and b.backend != backend.backend]
        if out:
            already = ngettext("%(names)s is out already.", "%(names)s are out already.", len(out))
            left = ngettext(
                "%(n)s of %(all)s backends would be left.", "%(n)s of %(all)s backends would be left.", others
            )
            return already % {"names": listed(out)} + " " + left % {"n": others, "all": total}
        if backend.breaker.state == BreakerState.FORCED_OPEN:
            return _("It is forced open already; this sets a new reason and expiry.")
    if action == CLOSED and backend.breaker.state in (BreakerState.OPEN, BreakerState.HALF_OPEN):
        return _("The breaker opened because calls failed. Callers would see those failures.")
    return ""


def _expected(scene: Scene, before: float, after: float) -> tuple[Expected, ...]:
    """Tiers in their order get what is left of the scaled rate."""
    admitted = sum(t.admitted_per_s for t in scene.tiers)
    if admitted <= 0 or before <= 0:
        return ()
    in_flight = sum(b.in_flight for b in scene.backends)
    headroom = min(MOST_GROWTH, max(1.0, before / max(in_flight, 1)))
    left = admitted * headroom * after / before
    rows = []
    for tier in scene.tiers:
        gets = min(tier.offered_per_s, left)
        left -= gets
        rows.append(Expected(tier.label, tier.style, _tier_words(tier, gets)))
    return tuple(rows)


def _tier_words(tier: Tier, gets: float) -> str:
    if tier.offered_per_s <= 0:
        return _("no traffic")
    now, then = tier.shed_ratio, max(0.0, 1 - gets / tier.offered_per_s)
    if abs(now - then) < 0.01:
        return _("shed stays %(now)s") % {"now": percent(now)}
    return _("shed %(now)s to about %(then)s") % {"now": percent(now), "then": percent(then)}
