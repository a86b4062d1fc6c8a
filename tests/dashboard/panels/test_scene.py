import pytest

from dashboard.panels.scene import gate_ratio, is_out, is_silent
from tests.fakes.scenes import NOW, backend, breaker, frame, scene, shedding, tenant, tier


def test_a_frame_is_stale_after_three_seconds_not_before():
    assert not scene(frame(), now=NOW + 2.9).is_stale
    assert scene(frame(), now=NOW + 3.1).is_stale


def test_a_clock_that_runs_behind_gives_no_negative_age():
    assert scene(frame(), now=NOW - 5).age_s == 0.0


def test_one_pool_sees_only_its_own_rows():
    whole = frame(
        tiers=(tier(0), tier(0, pool="embed")),
        backends=(backend("b2"), backend("b1"), backend("e1", pool="embed")),
        tenants=(tenant("a"), tenant("b", pool="embed")),
    )
    found = scene(whole)
    assert [b.backend for b in found.backends] == ["b1", "b2"]
    assert [t.tenant for t in found.tenants] == ["a"]
    assert found.pools == ("chat", "embed")


def test_all_pools_add_up_and_percentiles_are_those_of_the_worst():
    whole = frame(
        tiers=(
            tier(0, offered_per_s=5.0, waiting=3, ttft_p95_s=0.9),
            tier(0, pool="embed", offered_per_s=2.0, waiting=1, ttft_p95_s=0.5, ttft_objective_s=0.2),
        )
    )
    (merged,) = scene(whole, pool="").tiers
    assert (merged.offered_per_s, merged.waiting) == (7.0, 4)
    assert (merged.ttft_p95_s, merged.ttft_objective_s, merged.is_inside) == (0.5, 0.2, False)


def test_unknown_percentiles_are_no_breach():
    (only,) = scene(frame(tiers=(tier(0, ttft_p95_s=None, tpot_p95_s=None),))).tiers
    assert only.is_inside
    assert only.ttft_ratio is None


@pytest.mark.parametrize(
    ("row", "ratio"),
    [
        (shedding(2, 3.0, offered=4.0), 0.75),
        (tier(2, offered_per_s=0.0, shed_per_s={}), 0.0),
        (shedding(2, 3.0, offered=0.0), 1.0),  # evicted now, offered in an earlier second
    ],
)
def test_the_shed_part_never_leaves_0_to_1(row, ratio):
    (only,) = scene(frame(tiers=(row,))).tiers
    assert only.shed_ratio == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("state", "out"),
    [
        ("closed", False),
        ("half-open", False),
        ("open", True),
        ("forced-open", True),
        ("forced-closed", False),
    ],
)
def test_only_open_breakers_take_a_backend_out(state, out):
    assert is_out(backend(breaker=breaker(state))) is out


def test_silence_is_an_old_signal_and_not_a_missing_scraper():
    assert is_silent(backend(telemetry_age_s=6.0))
    assert not is_silent(backend(telemetry_age_s=None))


def test_the_kv_gate_falls_back_on_the_engines_gauge_and_is_none_without_both():
    assert gate_ratio(backend(kv_use_ratio=None, kv_ratio=0.5), "kv") == 0.5
    assert gate_ratio(backend(kv_use_ratio=None, kv_ratio=None), "kv") is None
    assert gate_ratio(backend(), "a gate of a newer gateway") is None
