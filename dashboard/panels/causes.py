"""Causes: what holds work back, in a few words each: the binding account, slow backends, backends that are out."""

from collections.abc import Sequence

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from dashboard.panels.scene import SLOW_FACTOR, Scene, gate_ratio, is_out
from dashboard.panels.wording import listed, percent, rate, times
from gateway.contract.frame import BackendFrame
from gateway.core.vocabulary import Account, BreakerState, ShedReason

NAMED_AT_MOST = 3


def binding_words(scene: Scene) -> str:
    """The account that binds on most of the work, at its fullest backend; empty where none binds."""
    held: dict[str, list[BackendFrame]] = {}
    for backend in scene.backends:
        if backend.binding is not None and not is_out(backend):
            held.setdefault(backend.binding, []).append(backend)
    if not held:
        return ""
    account = max(held, key=lambda a: (sum(b.in_flight for b in held[a]), _fullest(held[a], a)))
    fullest = max(held[account], key=lambda b: (gate_ratio(b, account) or 0.0, b.in_flight))
    return _account_words(account, held[account], fullest)


def _fullest(backends: Sequence[BackendFrame], account: str) -> float:
    return max(gate_ratio(b, account) or 0.0 for b in backends)


def _account_words(account: str, held: Sequence[BackendFrame], fullest: BackendFrame) -> str:
    values = {"backend": fullest.backend, "share": percent(min(1.0, gate_ratio(fullest, account) or 0.0))}
    if account == Account.KV:
        return _("KV cache %(share)s on %(backend)s") % values
    if account == Account.PREFILL:
        return _("prefill %(share)s on %(backend)s") % values
    taken, limit = sum(b.in_flight for b in held), sum(b.limit for b in held)
    return _("%(taken)s of %(limit)s seats taken on %(names)s") % {
        "taken": taken,
        "limit": round(limit),
        "names": listed([b.backend for b in held]),
    }


def slow_words(scene: Scene) -> str:
    """b2 runs 4x slower; empty where nothing that takes traffic is slow."""
    slow = [b for b in scene.backends if b.slow > SLOW_FACTOR and b.in_flight > 0 and not is_out(b)]
    if not slow:
        return ""
    worst = max(slow, key=lambda b: b.slow)
    if len(slow) > 1:
        names = {"names": listed([b.backend for b in slow]), "times": times(worst.slow)}
        return _("%(names)s run up to %(times)s slower") % names
    return _("%(backend)s runs %(times)s slower") % {"backend": worst.backend, "times": times(worst.slow)}


def out_words(scene: Scene) -> str:
    """b4 is out; b3 and b4 are out; b2 is forced open; empty where all take traffic."""
    out = [b for b in scene.backends if is_out(b)]
    forced = [b.backend for b in out if b.breaker.state == BreakerState.FORCED_OPEN]
    broken = [b.backend for b in out if b.breaker.state != BreakerState.FORCED_OPEN]
    if len(out) > NAMED_AT_MOST:
        return _("%(n)s of %(all)s backends are out") % {"n": len(out), "all": len(scene.backends)}
    parts = []
    if broken:
        parts.append(
            ngettext("%(names)s is out", "%(names)s are out", len(broken)) % {"names": listed(broken)}
        )
    if forced:
        words = ngettext("%(names)s is forced open", "%(names)s are forced open", len(forced))
        parts.append(words % {"names": listed(forced)})
    return ", ".join(parts)


def reason_words(scene: Scene, reason: str | None, *, is_last_resort: bool = False) -> str:
    """What a shed reason itself says about the cause: at once where it is the cause, else as the last resort."""
    retries = sum(t.retries_per_s for t in scene.tiers)
    offered = sum(t.offered_per_s for t in scene.tiers)
    if reason == ShedReason.RETRY_BUDGET:
        share = percent(min(1.0, retries / offered)) if offered else rate(retries) + "/s"
        return _("retries are %(share)s of what is offered") % {"share": share}
    if reason in (ShedReason.NO_BACKEND, ShedReason.BREAKER_OPEN):
        return "" if any(is_out(b) for b in scene.backends) else _("no backend takes traffic")
    at_once = {
        ShedReason.ENGINE_BUSY: _("engines answer busy"),
        ShedReason.GATEWAY_OVERLOAD: _("the gateways themselves are full"),
        ShedReason.DRAINING: _("gateways are draining"),
    }
    known = ShedReason(reason) if reason in set(ShedReason) else None
    return (at_once.get(known) if known else None) or (_last_resort(reason) if is_last_resort else "")


def _last_resort(reason: str | None) -> str:
    return {
        ShedReason.QUEUE_FULL: _("queues are full"),
        ShedReason.EARLY_DROP: _("expected waits are above the delay budget"),
        ShedReason.FAST_REJECT: _("pressure is above the tier's threshold"),
        ShedReason.WATERMARK: _("the engines' own queues are above their watermark"),
        ShedReason.DISPLACED: _("higher tiers take their places"),
        ShedReason.QUEUE_TIMEOUT: _("waits are longer than the queue allows"),
        ShedReason.DEADLINE: _("work cannot start before the callers' deadlines"),
    }.get(ShedReason(reason) if reason in set(ShedReason) else ShedReason.QUEUE_FULL, _("queues are full"))
