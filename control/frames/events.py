"""What changed between two frames, as lines for the feed and the annotations of the charts. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from gateway.contract.frame import EventFrame, Frame, OverrideFrame

MAX_EVENTS: Final = 20
LOST_S: Final = 3.0
CALM_S: Final = 10.0


@dataclass(slots=True)
class Feed:
    """Tells what changed, frame by frame. Shedding ends only after CALM_S without any, so that it can't flap."""

    before: Frame | None = None
    shed_at: dict[tuple[str, int], float] = field(default_factory=dict)

    def take(self, after: Frame) -> list[EventFrame]:
        """Events of this second, oldest first; none for the very first frame, which has nothing to differ from."""
        before, self.before = self.before, after
        shedding = list(self._shedding(after))
        if before is None:
            return []
        return [
            *_overrides(before, after),
            *_breakers(before, after),
            *shedding,
            *_gateways(before, after),
            *_revision(before, after),
        ]

    def _shedding(self, after: Frame) -> Iterable[EventFrame]:
        for each in after.tiers:
            key, name = (each.pool, each.tier), f"P{each.tier} of {each.pool}"
            if each.shed_per_s:
                if key not in self.shed_at:
                    reason = max(each.shed_per_s, key=lambda r: each.shed_per_s[r])
                    yield _event(after.at, "shedding", f"{name} is shed: {reason}", each.pool)
                self.shed_at[key] = after.at
            elif key in self.shed_at and after.at - self.shed_at[key] >= CALM_S:
                del self.shed_at[key]
                yield _event(after.at, "recovery", f"{name} is no longer shed", each.pool)


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
    return _event(at, "gateway", f"{name} {text}", name)


def _event(at: float, kind: str, text: str, target: str) -> EventFrame:
    return EventFrame(at=at, kind=kind, text=text, target=target)


def _revision(before: Frame, after: Frame) -> Iterable[EventFrame]:
    if before.control.revision != after.control.revision:
        text = f"policy revision {after.control.revision} published"
        yield EventFrame(at=after.at, kind="policy", text=text)
