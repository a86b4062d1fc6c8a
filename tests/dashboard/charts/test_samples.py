from dashboard.charts.samples import sample_of, since
from tests.fakes.scenes import NOW, backend, breaker, frame, shedding, tenant


def test_a_sample_keeps_what_charts_and_episodes_need():
    kept = sample_of(
        frame(
            tiers=(shedding(2, 9.0),),
            backends=(backend("b1", kv_ratio=None, binding="kv", breaker=breaker("open")),),
            tenants=(tenant("acme"),),
        )
    )
    assert kept.tiers[0].shed_per_s == {"fast_reject": 9.0}
    assert (kept.backends[0].kv_ratio, kept.backends[0].binding, kept.backends[0].breaker) == (
        None,
        "kv",
        "open",
    )
    assert kept.tenants[0].tenant == "acme"


def test_since_takes_the_end_of_the_past():
    samples = [sample_of(frame(at=NOW + t)) for t in range(10)]
    assert [s.at - NOW for s in since(samples, NOW + 7)] == [7, 8, 9]
    assert since([], NOW) == []
