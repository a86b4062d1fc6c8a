"""Tenants: the largest by what was shed of them or by what they use."""

from collections.abc import Callable
from dataclasses import dataclass

from dashboard.charts.series import ALL_POOLS, tier_name, tier_style
from dashboard.panels.scene import Scene
from dashboard.panels.wording import count, percent, rate
from gateway.contract.frame import TenantFrame


@dataclass(frozen=True, slots=True)
class TenantRow:
    """One tenant in one pool and tier."""

    tenant: str
    pool: str
    tier: str
    style: str
    offered: str
    admitted: str
    shed: str
    is_shed: bool
    bar: float
    bar_words: str
    reason: str
    waiting: str
    in_flight: str
    use: str


def tenant_rows(scene: Scene) -> tuple[TenantRow, ...]:
    """In the order asked for: `by` is "shed" or "use". The bar is the part of all shed, or of all use."""
    rows = sorted(scene.tenants, key=_order(scene.by))
    total_shed = sum(t.shed_total_per_s for t in scene.tiers)
    return tuple(_row(scene, row, total_shed) for row in rows)


def _order(by: str) -> Callable[[TenantFrame], tuple[float, float, str, int]]:
    if by == "use":
        return lambda t: (-t.cost_share, -t.in_flight, t.tenant, t.tier)
    return lambda t: (-t.shed_per_s, -t.offered_per_s, t.tenant, t.tier)


def _row(scene: Scene, row: TenantFrame, total_shed: float) -> TenantRow:
    share = row.cost_share if scene.by == "use" else row.shed_per_s / total_shed if total_shed > 0 else 0.0
    return TenantRow(
        tenant=row.tenant,
        pool=row.pool if scene.pool == ALL_POOLS else "",
        tier=tier_name(row.tier),
        style=tier_style(row.tier),
        offered=rate(row.offered_per_s),
        admitted=rate(row.admitted_per_s),
        shed=rate(row.shed_per_s) if row.shed_per_s > 0 else "0",
        is_shed=row.shed_per_s > 0,
        bar=round(min(1.0, share) * 100, 1),
        bar_words=percent(min(1.0, share)),
        reason=row.main_reason or "",
        waiting=count(row.waiting),
        in_flight=count(row.in_flight),
        use=percent(min(1.0, row.cost_share)),
    )
