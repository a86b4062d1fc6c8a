from dashboard.panels.tenants import tenant_rows
from dashboard.panels.wording import NBSP
from tests.fakes.scenes import frame, scene, shedding, tenant

WHOLE = frame(
    tiers=(shedding(2, 10.0),),
    tenants=(
        tenant("quiet", offered_per_s=1.0, cost_share=0.6),
        tenant("loud", offered_per_s=9.0, shed_per_s=7.5, main_reason="fast_reject", cost_share=0.1),
        tenant("other", pool="embed"),
    ),
)


def test_by_shed_the_one_that_is_refused_most_comes_first():
    rows = tenant_rows(scene(WHOLE))
    assert [(r.tenant, r.shed, r.bar, r.reason) for r in rows] == [
        ("loud", "7.5", 75.0, "fast_reject"),
        ("quiet", "0", 0.0, ""),
    ]


def test_by_use_the_one_that_takes_most_comes_first():
    rows = tenant_rows(scene(WHOLE, by="use"))
    assert [(r.tenant, r.bar, r.use) for r in rows] == [
        ("quiet", 60.0, f"60{NBSP}%"),
        ("loud", 10.0, f"10{NBSP}%"),
    ]


def test_over_all_pools_each_row_names_its_pool():
    assert {(r.tenant, r.pool) for r in tenant_rows(scene(WHOLE, pool=""))} == {
        ("quiet", "chat"),
        ("loud", "chat"),
        ("other", "embed"),
    }
