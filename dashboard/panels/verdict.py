"""Verdict: the one sentence on top of the page. What is shed, since when, what binds, which backend is out, and P0.

The sentence names the cause that binds, not the one that is easiest to see: where tickets are shed for load, it is the
valve's account that holds back most of the backends' work; where no account binds, the shed reason itself. A tenant
over its own allowance is no overload and is never called shedding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from dashboard.panels.causes import binding_words, out_words, reason_words, slow_words
from dashboard.panels.episodes import (
    Episode,
    allowance_shed,
    quiet_since,
    shedding,
    usual_of_tenant,
    usual_offered,
)
from dashboard.panels.scene import ALLOWANCE_REASONS, GATEWAY_LOST_S, Scene, Tier, is_out, is_silent
from dashboard.panels.wording import bound_s, clock, duration, listed, percent, rate, seconds, times

SURGE_FACTOR = 1.5  # offered load above this many times the usual is worth a word
TENANT_SHARE = 0.3  # a tenant that sends more of the load than this is worth a word


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the banner says. `level`: bad, note or good. `spoken` changes only when the situation does."""

    level: str
    say: str
    why: str
    spoken: str
    tenant: str | None = None
    backends: tuple[str, ...] = ()

    @property
    def icon(self) -> str:
        """The sign beside the sentence."""
        return {"bad": "alert", "note": "flag", "good": "check"}[self.level]


def verdict(scene: Scene) -> Verdict:
    """The verdict on a scene."""
    if not any(g.report_age_s <= GATEWAY_LOST_S for g in scene.frame.gateways):
        why = _("They may serve on their own. Are they up, and do they reach Valkey?")
        return _verdict("bad", _("No gateway reports: nothing is known about the traffic."), why, scene)
    episodes = [(t, e) for t in scene.tiers if (e := shedding(scene, t.tier)) is not None]
    if episodes:
        return _shedding(scene, episodes)
    if any(is_out(b) for b in scene.backends):
        return _out(scene)
    slow = [t for t in scene.tiers if not t.is_inside]
    return _slow(scene, slow) if slow else _quiet(scene)


def _out(scene: Scene) -> Verdict:
    if all(is_out(b) for b in scene.backends):
        return _verdict(
            "bad", _("No backend takes traffic: %(what)s.") % {"what": out_words(scene)}, "", scene
        )
    values = {"what": out_words(scene), "shed": _shed_words(scene), "p0": p0_words(scene)}
    return _verdict("bad", _("%(what)s. %(shed)s %(p0)s") % values, _carried(scene), scene)


def p0_words(scene: Scene) -> str:
    """How the first tier is: healthy, slow, hit or idle, with the number that says so."""
    first = scene.tiers[0] if scene.tiers else None
    if first is None:
        return _("No tier reports.")
    name = {"tier": first.label}
    if shedding(scene, first.tier):
        return _hit(first)
    if not first.is_inside:
        return slow_tier_words(first)
    if first.offered_per_s <= 0 and first.in_flight == 0 and first.waiting == 0:
        return _("%(tier)s has no traffic.") % name
    return _("%(tier)s healthy.") % name


def slow_tier_words(tier: Tier) -> str:
    """P0 slow: TTFT p95 2.1 s, objective 1.0 s."""
    by_ttft = (tier.ttft_ratio or 0.0) >= (tier.tpot_ratio or 0.0)
    value, objective = (
        (tier.ttft_p95_s, tier.ttft_objective_s) if by_ttft else (tier.tpot_p95_s, tier.tpot_objective_s)
    )
    return _("%(tier)s slow: %(what)s p95 %(value)s, objective %(objective)s.") % {
        "tier": tier.label,
        "what": "TTFT" if by_ttft else "TPOT",
        "value": seconds(value or 0.0),
        "objective": bound_s(objective),
    }


def _hit(tier: Tier) -> str:
    return _("%(tier)s is hit: %(share)s of it shed.") % {
        "tier": tier.label,
        "share": percent(tier.shed_ratio),
    }


def _shedding(scene: Scene, episodes: Sequence[tuple[Tier, Episode]]) -> Verdict:
    worst_first = sorted(episodes, key=lambda e: -e[0].tier)
    what = ", ".join(
        _("%(tier)s for %(time)s") % {"tier": t.label, "time": _lasts(e, scene.frame.at)}
        for t, e in worst_first
    )
    causes = [
        w for w in (_main_cause(scene, [t for t, _e in episodes]), slow_words(scene), out_words(scene)) if w
    ]
    say = _("Shedding %(what)s: %(causes)s. %(p0)s") % {
        "what": what,
        "causes": ", ".join(dict.fromkeys(causes)),
        "p0": p0_words(scene),
    }
    started = min(e.started_at for _t, e in episodes)
    why, tenant = _load(scene, started)
    spoken = _("Shedding %(tiers)s. %(p0)s") % {
        "tiers": listed([t.label for t, _e in worst_first]),
        "p0": _spoken_p0(scene),
    }
    return Verdict("bad", say, why, spoken, tenant, tuple(b.backend for b in scene.backends if is_out(b)))


def _main_cause(scene: Scene, tiers: Sequence[Tier]) -> str:
    if scene.backends and all(is_out(b) for b in scene.backends):
        return _("no backend takes traffic")
    reasons: dict[str, float] = {}
    for tier in tiers:
        for reason, value in tier.shed_per_s.items():
            if reason not in ALLOWANCE_REASONS:
                reasons[reason] = reasons.get(reason, 0.0) + value
    main = max(reasons, key=lambda r: reasons[r]) if any(reasons.values()) else None
    return reason_words(scene, main) or binding_words(scene) or reason_words(scene, main, is_last_resort=True)


def _load(scene: Scene, started: float) -> tuple[str, str | None]:
    """The line below: how much is offered against the usual, and who sends it."""
    offered = sum(t.offered_per_s for t in scene.tiers)
    usual = usual_offered(scene, started - 5.0)
    parts = []
    if usual and offered / usual >= SURGE_FACTOR:
        parts.append(_("Offered load is %(times)s the usual.") % {"times": times(offered / usual)})
    elif usual and offered > 0:  # 0 while something is shed: the first frame after a gap, which has no rates
        is_usual = offered * SURGE_FACTOR > usual
        line = (
            _("Offered load is the usual: %(now)s/s, before %(usual)s/s.")
            if is_usual
            else _("Offered load is below the usual: %(now)s/s, before %(usual)s/s.")
        )
        parts.append(line % {"now": rate(offered), "usual": rate(usual)})
    totals: dict[str, float] = {}
    for row in scene.tenants:
        totals[row.tenant] = totals.get(row.tenant, 0.0) + row.offered_per_s
    top = max(totals, key=lambda name: totals[name]) if totals else None
    if top is None or offered <= 0 or totals[top] < TENANT_SHARE * offered:
        return " ".join(parts), None
    before = usual_of_tenant(scene, top, started - 5.0)
    values = {
        "tenant": top,
        "share": percent(min(1.0, totals[top] / offered)),
        "now": rate(totals[top]),
        "at": clock(started),
    }
    if before is not None and totals[top] >= SURGE_FACTOR * before:
        line = _("%(tenant)s sends %(share)s of it: %(now)s/s, usually %(usual)s/s, since %(at)s.")
        values["usual"] = rate(before)
    else:
        line = _("%(tenant)s sends %(share)s of it: %(now)s/s.")
    parts.append(line % values)
    return " ".join(parts), top


def _slow(scene: Scene, slow: Sequence[Tier]) -> Verdict:
    cause = slow_words(scene) or binding_words(scene)
    others = [slow_tier_words(t).rstrip(".") for t in slow]
    what = "; ".join(others)
    values = {"what": what, "cause": cause, "shed": _shed_words(scene)}
    say = (_("%(what)s: %(cause)s. %(shed)s") if cause else _("%(what)s. %(shed)s")) % values
    return Verdict("bad" if slow[0].tier == scene.tiers[0].tier else "note", say, "", _spoken_p0(scene))


def _quiet(scene: Scene) -> Verdict:
    silent = [b.backend for b in scene.backends if is_silent(b)]
    over = [t for t in scene.tiers if shedding(scene, t.tier, allowance_shed)]
    if silent:
        say = _("No signal from %(names)s; answers still come. %(shed)s %(p0)s") % {
            "names": listed(silent),
            "shed": _shed_words(scene),
            "p0": p0_words(scene),
        }
        return _verdict(
            "note", say, _("The valve goes on without telemetry, from the answers it sees."), scene
        )
    if over:
        return _over_allowance(scene, over)
    if not any(t.offered_per_s or t.in_flight or t.waiting for t in scene.tiers):
        return _verdict("good", _("No traffic. Nothing is shed."), _carried(scene), scene)
    quiet = quiet_since(scene)
    all_inside = _("All tiers inside their objectives.")
    shed = (
        _("Nothing shed for %(time)s.") % {"time": _lasts(quiet, scene.frame.at)}
        if quiet
        else _shed_words(scene)
    )
    return _verdict("good", f"{all_inside} {shed}", _carried(scene), scene, all_inside)


def _over_allowance(scene: Scene, over: Sequence[Tier]) -> Verdict:
    refused = sum(v for t in over for r, v in t.shed_per_s.items() if r in ALLOWANCE_REASONS)
    who = [row.tenant for row in sorted(scene.tenants, key=lambda t: -t.shed_per_s) if row.shed_per_s > 0]
    say = _("Refusing %(rate)s/s of %(tiers)s over tenants' own limits. %(p0)s") % {
        "rate": rate(refused),
        "tiers": listed([t.label for t in over]),
        "p0": p0_words(scene),
    }
    why = _("There is room; nobody else is affected.")
    if who:
        why = _("Mostly %(tenant)s. There is room; nobody else is affected.") % {"tenant": who[0]}
    return Verdict("note", say, why, _spoken_p0(scene), who[0] if who else None)


def _carried(scene: Scene) -> str:
    taking = [b for b in scene.backends if not is_out(b)]
    limit, in_flight = sum(b.limit for b in taking), sum(b.in_flight for b in taking)
    if not limit:
        return ""
    share = percent(min(1.0, in_flight / limit))
    return ngettext(
        "%(n)s backend takes traffic, %(share)s of the seats taken.",
        "%(n)s backends take traffic, %(share)s of the seats taken.",
        len(taking),
    ) % {"n": len(taking), "share": share}


def _lasts(episode: Episode, now: float) -> str:
    time = duration(episode.lasts_s(now) + 1)
    return (
        _("more than %(time)s") % {"time": time} if episode.is_longer and episode.lasts_s(now) > 60 else time
    )


def _shed_words(scene: Scene) -> str:
    """How much is shed where that is not the news: nothing, hardly anything, or only what is over an allowance."""
    over = any(shedding(scene, t.tier, allowance_shed) for t in scene.tiers)
    if over:
        return _("Only tenants over their own limits are refused.")
    total = sum(t.shed_total_per_s for t in scene.tiers)
    return _("Hardly anything shed: %(rate)s/s.") % {"rate": rate(total)} if total > 0 else _("Nothing shed.")


def _spoken_p0(scene: Scene) -> str:
    return p0_words(scene).split(":")[0].rstrip(".") + "."


def _verdict(level: str, say: str, why: str, scene: Scene, spoken: str = "") -> Verdict:
    return Verdict(
        level, say, why, spoken or say, None, tuple(b.backend for b in scene.backends if is_out(b))
    )
