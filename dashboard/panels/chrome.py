"""Chrome: what stands on every page. Overrides in force with their countdown, gateways, the slow loop, and notices."""

from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from dashboard.panels.scene import GATEWAY_LOST_S, STALE_AFTER_S
from dashboard.panels.wording import countdown, seconds, stamp
from gateway.contract.frame import Frame, OverrideFrame
from gateway.core.vocabulary import OverrideKind


@dataclass(frozen=True, slots=True)
class OverrideChip:
    """One override in force."""

    id: str
    title: str
    actor: str
    reason: str
    until: str
    expires_at: float
    left: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Something about the system itself that a reader of this page must know."""

    icon: str
    text: str


@dataclass(frozen=True, slots=True)
class Chrome:
    """Header, foot of the navigation, notices."""

    overrides: tuple[OverrideChip, ...]
    next_expiry: float | None
    next_left: str
    count_words: str
    foot: tuple[str, ...]
    notices: tuple[Notice, ...]
    incidents_open: int


def chrome(frame: Frame, now: float) -> Chrome:
    """What every page shows of a frame. An override that expired since is not shown as in force."""
    overrides = tuple(
        _override(o, now) for o in sorted(frame.overrides, key=lambda o: o.expires_at) if o.expires_at > now
    )
    n = len(overrides)
    return Chrome(
        overrides=overrides,
        next_expiry=overrides[0].expires_at if overrides else None,
        next_left=overrides[0].left if overrides else "",
        count_words=ngettext("%(n)s override", "%(n)s overrides", n) % {"n": n},
        foot=_foot(frame),
        notices=_notices(frame),
        incidents_open=frame.incidents_open,
    )


def override_title(kind: str, target: str, value: str) -> str:
    """What an override does, in words: b2 forced open; limit of b2 pinned to 24."""
    values = {"target": target, "value": value}
    words = {
        OverrideKind.BREAKER: _("%(target)s forced open")
        if value == "open"
        else _("%(target)s forced closed"),
        OverrideKind.LIMIT_PIN: _("limit of %(target)s pinned to %(value)s"),
        OverrideKind.BACKEND_DRAIN: _("%(target)s draining"),
        OverrideKind.BACKEND_DISABLE: _("%(target)s disabled"),
        OverrideKind.TENANT_WEIGHT: _("weight of %(target)s x%(value)s"),
        OverrideKind.TIER_THROTTLE: _("tier %(target)s throttled to %(value)s"),
        OverrideKind.POOL_FALLBACK: _("fallback of %(target)s on"),
    }
    if kind not in set(OverrideKind):
        return f"{kind} {target} {value}"
    return words[OverrideKind(kind)] % values


def _override(o: OverrideFrame, now: float) -> OverrideChip:
    return OverrideChip(
        id=o.id,
        title=override_title(o.kind, o.target, o.value),
        actor=o.actor,
        reason=o.reason,
        until=stamp(o.expires_at),
        expires_at=o.expires_at,
        left=countdown(o.expires_at - now),
    )


def _foot(frame: Frame) -> tuple[str, ...]:
    alive = [g for g in frame.gateways if g.report_age_s <= GATEWAY_LOST_S]
    gateways = ngettext("%(n)s gateway", "%(n)s gateways", len(alive)) % {"n": len(alive)}
    control = frame.control
    return (
        _("%(gateways)s, snapshot %(revision)s") % {"gateways": gateways, "revision": control.revision},
        _("Slow loop took %(time)s") % {"time": seconds(control.tick_duration_s)},
        _("Leader %(leader)s, epoch %(epoch)s")
        % {"leader": control.leader or _("none"), "epoch": control.epoch},
    )


def _notices(frame: Frame) -> tuple[Notice, ...]:
    notices = []
    for g in frame.gateways:
        if g.snapshot_refused:
            words = _(
                "%(gateway)s refuses the newest snapshot: %(why)s. It goes on with revision %(revision)s."
            )
            values = {
                "gateway": g.gateway,
                "why": g.snapshot_refused.rstrip("."),
                "revision": g.snapshot_revision,
            }
            notices.append(Notice("alert", words % values))
        if g.ledger_imbalance:
            words = _("%(gateway)s holds %(n)s seats, tokens or charges for nobody: report this as a bug.")
            notices.append(Notice("alert", words % {"gateway": g.gateway, "n": g.ledger_imbalance}))
        if g.report_age_s > GATEWAY_LOST_S:
            words = _("No report from %(gateway)s for %(time)s.")
            notices.append(Notice("server", words % {"gateway": g.gateway, "time": seconds(g.report_age_s)}))
        elif g.degraded:
            words = _("%(gateway)s serves without Valkey: quotas are bounded locally.")
            notices.append(Notice("server", words % {"gateway": g.gateway}))
    if frame.control.tick_age_s > STALE_AFTER_S:
        words = _("The slow loop missed its turn for %(time)s: bounds stand still, the gateways go on.")
        notices.append(Notice("clock", words % {"time": seconds(frame.control.tick_age_s)}))
    if not frame.gateways:
        notices.append(Notice("server", _("No gateway reports.")))
    return tuple(notices)
