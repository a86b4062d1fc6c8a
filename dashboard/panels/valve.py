"""Valve and queues: seats and who holds them, which gate binds where, and what waits against its delay budget."""

from collections import Counter
from dataclasses import dataclass

from django.utils.translation import gettext as _

from dashboard.charts.samples import since
from dashboard.charts.series import tier_name, tier_style
from dashboard.panels.scene import NO_NEW_WORK, SATURATED_RATIO, Scene, Tier, gate_ratio, is_out
from dashboard.panels.wording import bound_s, count, percent, rate, seconds
from gateway.contract.frame import BackendFrame
from gateway.core.vocabulary import Account, BreakerState

GATE_COLUMNS = 6
DOTS = 40


@dataclass(frozen=True, slots=True)
class Seats:
    """One tier's part of the bar, in percent of all seats."""

    style: str
    label: str
    held: int
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Gate:
    """One account on one backend. `words` is empty where it is not known; `out` says why a backend has no seats."""

    words: str
    share: float
    binds: bool
    out: str = ""


@dataclass(frozen=True, slots=True)
class GateRow:
    """One account over the backends. A backend that is out has one cell, in the first row, over all rows."""

    name: str
    cells: tuple[Gate, ...]


@dataclass(frozen=True, slots=True)
class Valve:
    """What the backends can take right now."""

    limit: str
    in_flight: str
    waiting: str
    gate: str
    gate_words: str
    seats: tuple[Seats, ...]
    free: int
    reserved: int
    reserve_x: float
    reserve_width: float
    columns: tuple[str, ...]
    rows: tuple[GateRow, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class Dot:
    """A waiting ticket (or `per_dot` of them), in percent of the delay budget and pixels from the top."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Lane:
    """One tier's queue."""

    label: str
    style: str
    waiting: str
    max_size: str
    budget: str
    oldest: str
    is_late: bool
    dispatched: str
    shed: str
    dots: tuple[Dot, ...]
    per_dot: int


def valve(scene: Scene) -> Valve:
    """Limit, in-flight, waiting, seats and gates."""
    taking = [b for b in scene.backends if not is_out(b)]
    limit = max(0, round(sum(b.limit for b in taking)))
    in_flight = sum(b.in_flight for b in scene.backends)
    reserved = min(limit, sum(b.reserved_seats for b in taking))
    bar = max(limit, in_flight, 1)
    free = max(0, limit - in_flight)
    shown = scene.backends[:GATE_COLUMNS]
    gate, gate_words = _held_back(scene)
    return Valve(
        limit=count(limit),
        in_flight=count(in_flight),
        waiting=count(sum(t.waiting for t in scene.tiers)),
        gate=gate,
        gate_words=gate_words,
        seats=_seats(scene, bar),
        free=free,
        reserved=min(reserved, free),
        reserve_x=round(100 - min(reserved, free) / bar * 100, 2),
        reserve_width=round(min(reserved, free) / bar * 100 - 0.1, 2),
        columns=tuple(b.backend for b in shown),
        rows=tuple(
            _row(name, account, shown, is_first=not i) for i, (name, account) in enumerate(_accounts())
        ),
        left_out=len(scene.backends) - len(shown),
    )


def lanes(scene: Scene) -> tuple[Lane, ...]:
    """One lane per tier."""
    return tuple(_lane(tier) for tier in scene.tiers)


def retries_words(scene: Scene) -> str:
    """How much of what is offered are retries."""
    offered, retries = sum(t.offered_per_s for t in scene.tiers), sum(t.retries_per_s for t in scene.tiers)
    if offered <= 0 or retries <= 0:
        return _("none")
    shed = sum(t.shed_per_s.get("retry_budget", 0.0) for t in scene.tiers)
    share = percent(min(1.0, retries / offered))
    if shed > 0:
        return _("%(share)s of offered, %(shed)s/s of them shed without credit") % {
            "share": share,
            "shed": rate(shed),
        }
    return _("%(share)s of offered") % {"share": share}


def _accounts() -> tuple[tuple[str, Account], ...]:
    return ((_("Prefill"), Account.PREFILL), (_("KV"), Account.KV), (_("Sequences"), Account.SEQUENCES))


def _held_back(scene: Scene) -> tuple[str, str]:
    """Which gate bound most in the last minute, and how much of it: over seconds, and backends that take traffic."""
    bound: Counter[str] = Counter()
    seen = 0
    for sample in since(scene.samples, scene.frame.at - 60):
        taking = [b for b in sample.backends if scene.has(b.pool) and b.breaker not in NO_NEW_WORK]
        seen += len(taking)
        bound.update(b.binding for b in taking if b.binding)
    if not bound:
        return _("No gate"), _("held anything back in the last minute")
    names = {str(account): name for name, account in _accounts()}
    parts = [(names.get(account, account), percent(n / seen)) for account, n in bound.most_common()]
    rest = "".join(f", {name[:1].lower() + name[1:]} {share}" for name, share in parts[1:])
    return parts[0][0], _("bound for %(share)s of the last minute%(rest)s") % {
        "share": parts[0][1],
        "rest": rest,
    }


def _seats(scene: Scene, bar: int) -> tuple[Seats, ...]:
    held: Counter[int] = Counter()
    for backend in scene.backends:
        for tier, n in enumerate(backend.in_flight_by_tier):
            held[tier] += n
    parts, x = [], 0.0
    for tier in sorted(set(held) | {t.tier for t in scene.tiers}):
        width = held[tier] / bar * 100
        parts.append(
            Seats(
                tier_style(tier), tier_name(tier), held[tier], round(x, 2), round(max(0.0, width - 0.15), 2)
            )
        )
        x += width
    return tuple(parts)


def _out(backend: BackendFrame) -> str:
    match backend.breaker.state:
        case BreakerState.OPEN:
            return _("breaker open")
        case BreakerState.FORCED_OPEN:
            return _("forced open")
        case _:
            return ""


def _row(name: str, account: Account, backends: tuple[BackendFrame, ...], *, is_first: bool) -> GateRow:
    shown = [b for b in backends if is_first or not is_out(b)]
    return GateRow(
        name,
        tuple(Gate("", 0.0, binds=False, out=_out(b)) if is_out(b) else _gate(b, account) for b in shown),
    )


def _gate(backend: BackendFrame, account: Account) -> Gate:
    ratio = gate_ratio(backend, account)
    if ratio is None:
        return Gate("", 0.0, binds=False)
    words = f"{backend.in_flight}/{round(backend.limit)}" if account == Account.SEQUENCES else percent(ratio)
    return Gate(words, round(min(1.0, ratio) * 100, 1), binds=backend.binding == account)


def _lane(tier: Tier) -> Lane:
    per_dot = max(1, -(-tier.waiting // DOTS))
    budget = tier.delay_budget_s if tier.delay_budget_s > 0 else max(tier.oldest_wait_s, 1.0)
    reach = min(1.0, tier.oldest_wait_s / budget)
    n = -(-tier.waiting // per_dot)
    dots = tuple(Dot(round(2 + 96 * reach * (i + 1) / n, 1), (18.0, 11.5, 24.5)[i % 3]) for i in range(n))
    return Lane(
        label=tier.label,
        style=tier.style,
        waiting=count(tier.waiting),
        max_size=count(tier.max_size),
        budget=bound_s(round(budget, 3)),
        oldest=seconds(tier.oldest_wait_s),
        is_late=tier.oldest_wait_s > budget * SATURATED_RATIO and tier.waiting > 0,
        dispatched=rate(tier.admitted_per_s),
        shed=rate(tier.shed_total_per_s) if tier.shed_total_per_s > 0 else "",
        dots=dots,
        per_dot=per_dot,
    )
