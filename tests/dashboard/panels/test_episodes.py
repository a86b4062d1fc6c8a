import pytest

from dashboard.panels.episodes import (
    Episode,
    allowance_shed,
    out_since,
    quiet_since,
    shedding,
    usual_of_tenant,
    usual_offered,
)
from tests.fakes.scenes import NOW, backend, breaker, frame, scene, tenant, tier
from tests.fakes.scenes import shedding as shed_tier

CALM = frame()
STORM = frame(tiers=(tier(0), shed_tier(2, 40.0)))


@pytest.mark.parametrize(
    ("past", "started"),
    [
        ([CALM] * 10, NOW),
        ([CALM] * 10 + [STORM] * 30, NOW - 30),
        ([CALM] * 10 + [STORM] * 30 + [CALM] * 4, NOW - 34),
        ([CALM] * 10 + [STORM] * 30 + [CALM] * 6, NOW),
    ],
)
def test_an_episode_survives_gaps_of_five_seconds(past, started):
    assert shedding(scene(STORM, past), 2) == Episode(started, is_longer=False)


def test_an_episode_that_fills_the_past_began_before_it():
    assert shedding(scene(STORM, [STORM] * 100), 2) == Episode(NOW - 100, is_longer=True)


def test_a_tier_that_sheds_nothing_is_in_no_episode():
    assert shedding(scene(STORM), 0) is None


@pytest.mark.parametrize(
    ("rate", "offered", "counts"),
    [(0.05, 1.0, False), (0.2, 1.0, True), (0.2, 100.0, False), (0.6, 100.0, True)],
)
def test_shedding_needs_a_rate_and_a_share(rate, offered, counts):
    found = shedding(scene(frame(tiers=(shed_tier(2, rate, offered=offered),))), 2)
    assert (found is not None) is counts


def test_allowance_and_load_are_told_apart():
    over = scene(frame(tiers=(shed_tier(2, 9.0, "token_limited"),)))
    assert shedding(over, 2) is None
    assert shedding(over, 2, allowance_shed) is not None


def test_a_backend_is_out_since_its_breaker_left_closed():
    out = frame(backends=(backend("b1", breaker=breaker("open")),))
    probing = frame(backends=(backend("b1", breaker=breaker("half-open")),))
    found = scene(out, [CALM] * 9 + [out] * 30 + [probing] * 2 + [out] * 8)
    assert out_since(found, "b1", "chat") == Episode(NOW - 40, is_longer=False)
    assert out_since(found, "b2", "chat") is None


def test_quiet_ends_with_any_refusal_however_small():
    little = frame(tiers=(shed_tier(2, 0.1, "deadline", offered=100.0),))
    assert quiet_since(scene(CALM, [little] + [CALM] * 20)) == Episode(NOW - 20, is_longer=False)
    assert quiet_since(scene(little)) is None


def test_the_usual_is_a_median_of_a_minute_at_least():
    surge = frame(tiers=(tier(0, offered_per_s=90.0),))
    assert usual_offered(scene(surge, [CALM] * 80 + [surge] * 30), NOW - 35) == 15.0
    assert usual_offered(scene(surge, [CALM] * 40 + [surge] * 30), NOW - 35) is None


def test_a_tenant_that_was_not_among_the_largest_usually_sends_nothing():
    loud = frame(tenants=(tenant("new", offered_per_s=90.0),))
    assert usual_of_tenant(scene(loud, [CALM] * 100), "new", NOW - 5) == 0.0
