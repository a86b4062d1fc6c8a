"""What changed between two frames, as lines for the feed and the annotations of the charts. Pure."""

from collections.abc import Iterable
from typing import Final

from gateway.contract.frame import EventFrame, Frame, OverrideFrame

MAX_EVENTS: Final = 20
LOST_S: Final = 3.0


def changes(before: Frame | None, after: Frame) -> list[EventFrame]:
    """Events of this second, oldest first; none for the very first frame, which has nothing to differ from."""
    if before is None:
        return []
    return [
        *_overrides(before, after),
        *_breakers(before, after),
        *_shedding(before, after),
        *_gateways(before, after),
        *_revision(before, after),
    ]


def newest(events: Iterable[EventFrame]) -> tuple[EventFrame, ...]:
    """The last MAX_EVENTS, newest first."""
    return tuple(sorted(events, key=lambda e: -e.at)[:MAX_EVENTS])


def _overrides(before: Frame, after: Frame) -> Iterable[EventFrame]:
    old, new = {o.id: o for o in before.overrides}, {o.id: o for o in after.overrides}
    for key in new.keys() - old.keys():
        each = new[key]
        text = f"{each.actor} set {_what(each)}: {each.reason}"
        yield EventFrame(at=after.at, kind="override", text=text, target=each.target)
    for key in old.keys() - new.keys():
        each = old[key]
        how = "expired" if each.expires_at <= after.at else "was released"
        yield EventFrame(at=after.at, kind="override", text=f"{_what(each)} {how}", target=each.target)


def _what(override: OverrideFrame) -> str:
    return f"{override.kind} {override.value} on {override.target}"


def _breakers(before: Frame, after: Frame) -> Iterable[EventFrame]:
    old = {b.backend: b.breaker.state for b in before.backends}
    for each in after.backends:
        was, state = old.get(each.backend), each.breaker.state
        if was is not None and was != state:
            text = f"breaker of {each.backend}: {was} to {state}"
            yield EventFrame(at=after.at, kind="breaker", text=text, target=each.backend)


def _shedding(before: Frame, after: Frame) -> Iterable[EventFrame]:
    old = {(t.pool, t.tier): bool(t.shed_per_s) for t in before.tiers}
    for each in after.tiers:
        was, sheds = old.get((each.pool, each.tier)), bool(each.shed_per_s)
        if was is None or was == sheds:
            continue
        reason = max(each.shed_per_s, key=lambda r: each.shed_per_s[r]) if sheds else ""
        text = f"P{each.tier} of {each.pool} " + (f"is shed: {reason}" if sheds else "is no longer shed")
        yield EventFrame(at=after.at, kind="shedding", text=text, target=each.pool)


def _gateways(before: Frame, after: Frame) -> Iterable[EventFrame]:
    old = {g.gateway: g for g in before.gateways}
    for each in after.gateways:
        was = old.get(each.gateway)
        if was is None:
            yield _gateway(after.at, each.gateway, "reports")
            continue
        if was.report_age_s <= LOST_S < each.report_age_s:
            yield _gateway(after.at, each.gateway, f"has not reported for {LOST_S:.0f} s")
        if was.report_age_s > LOST_S >= each.report_age_s:
            yield _gateway(after.at, each.gateway, "reports again")
        if each.snapshot_refused and not was.snapshot_refused:
            yield _gateway(after.at, each.gateway, f"refused a snapshot: {each.snapshot_refused}")


def _gateway(at: float, name: str, text: str) -> EventFrame:
    return EventFrame(at=at, kind="gateway", text=f"{name} {text}", target=name)


def _revision(before: Frame, after: Frame) -> Iterable[EventFrame]:
    if before.control.revision != after.control.revision:
        text = f"policy revision {after.control.revision} published"
        yield EventFrame(at=after.at, kind="policy", text=text)
