"""Given this sample, the limit becomes N."""

from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.events import BackendBounds
from gateway.core.limits import FixedLimit, GaugeAimdLimit, Gradient2Limit, VegasLimit, new_limit
from gateway.core.policy import LimitPolicy
from gateway.core.vocabulary import LimitAlgorithm

FRESH = BackendBounds(backend="b", engine_running=8, engine_waiting=0, kv_ratio=0.5, telemetry_age_s=0.5)


def feed(limit, *samples, is_used=True):
    values = []
    for sample in samples:
        limit.answered(sample, is_used=is_used)
        values.append(round(limit.value, 6))
    return values


@pytest.mark.parametrize(
    ("samples", "values"),
    [
        ([0.1], [5]),  # sample = base: no delay
        ([0.1, 0.1, 0.1], [5, 6, 7]),
        ([0.1, 0.149], [5, 6]),  # .8 * .1 + .2 * .149 = .1098: a delay just below the threshold
        ([0.1, 0.155], [5, 5]),  # .111: between threshold and 1.2 x threshold
        ([0.1, 0.17], [5, 4]),  # .114 > .112: x .8, kept at the minimum
        ([0.1] * 8 + [0.2], [5, 6, 7, 8, 9, 10, 11, 12, 9.6]),
        ([0.2, 0.1, 0.1], [5, 4, 4]),  # a new base: .18 - .1 is congestion now
    ],
)
def test_vegas_moves_as_published(samples, values):
    assert feed(VegasLimit(4, 64), *samples) == values


def test_vegas_stops_at_its_maximum():
    assert feed(VegasLimit(4, 6), *[0.1] * 5) == [5, 6, 6, 6, 6]


def test_vegas_does_not_rise_on_a_half_idle_backend_and_still_falls():
    limit = VegasLimit(4, 64)
    feed(limit, *[0.1] * 8)
    assert feed(limit, 0.1, is_used=False) == [12]
    assert feed(limit, 0.5, is_used=False) == [9.6]


@pytest.mark.parametrize("nonsense", [nan, inf, -1.0, 0.0])
@pytest.mark.parametrize("kind", [VegasLimit, Gradient2Limit])
def test_a_time_that_is_none_changes_nothing(kind, nonsense):
    limit = kind(4, 64)
    assert feed(limit, nonsense) == [4]
    assert feed(limit, 0.1) == feed(kind(4, 64), 0.1)


def test_gradient2_grows_by_its_queue_while_nothing_slows():
    assert feed(Gradient2Limit(20, 200), 0.1, 0.1) == [20.8, 21.6]


def test_gradient2_shrinks_by_at_most_half_of_its_smoothing():
    limit = Gradient2Limit(1, 200, 100)
    feed(limit, *[0.1] * 600)
    before = limit.value
    (after,) = feed(limit, 10.0)
    assert after == pytest.approx(0.8 * before + 0.2 * (0.5 * before + 4))


def test_gradient2_does_nothing_while_half_idle():
    assert feed(Gradient2Limit(20, 200), 0.1, 9.0, is_used=False) == [20, 20]


def test_gradient2_forgets_a_bad_time_quickly():
    limit = Gradient2Limit(20, 200)
    feed(limit, 10.0, 0.1, 0.1)
    fed = limit._long.value
    limit.answered(0.1, is_used=False)
    assert limit._long.value < 0.97 * fed


@pytest.mark.parametrize(
    ("seen", "in_flight", "value"),
    [
        (FRESH, 20, 21),
        (FRESH, 16, 20),  # below .85 of the limit: no evidence
        (FRESH, 17, 21),
        (replace(FRESH, engine_waiting=3), 20, 17),
        (replace(FRESH, engine_waiting=3), 10, 8.5),  # from what is in flight
        (replace(FRESH, kv_ratio=0.95), 20, 17),
        (replace(FRESH, kv_ratio=nan), 20, 21),
        (replace(FRESH, kv_ratio=-1.0), 20, 21),
        (replace(FRESH, kv_ratio=55.0), 20, 21),
        (replace(FRESH, kv_ratio=None), 20, 21),
        (replace(FRESH, engine_waiting=None), 20, 20),
        (replace(FRESH, engine_waiting=-1), 20, 20),
        (replace(FRESH, engine_waiting=nan), 20, 20),
        (replace(FRESH, engine_waiting=inf), 20, 20),
        (replace(FRESH, telemetry_age_s=3.1, engine_waiting=9), 20, 20),
        (replace(FRESH, telemetry_age_s=None, engine_waiting=9), 20, 20),
        (replace(FRESH, telemetry_age_s=nan, engine_waiting=9), 20, 20),
        (replace(FRESH, telemetry_age_s=-1.0, engine_waiting=9), 20, 20),
    ],
)
def test_aimd_moves_on_engine_gauges(seen, in_flight, value):
    limit = GaugeAimdLimit(4, 64, 20, 0.9)
    limit.observed(seen, in_flight, 10.0)
    assert limit.value == pytest.approx(value)


def test_aimd_falls_once_per_period_however_often_it_is_told():
    limit = GaugeAimdLimit(4, 64, 20, 0.9)
    for now in (10.0, 10.1, 10.5, 10.8):
        limit.observed(replace(FRESH, engine_waiting=3), 20, now)
    assert limit.value == pytest.approx(17)
    limit.observed(replace(FRESH, engine_waiting=3), 20, 11.0)
    assert limit.value == pytest.approx(17 * 0.85)


def test_aimd_keeps_its_minimum_during_a_long_overload_and_comes_back():
    limit = GaugeAimdLimit(2, 64, 40, 0.9)
    for second in range(900):
        limit.observed(replace(FRESH, engine_waiting=5), min(8, int(limit.value)), float(second))
        assert 2 <= limit.value <= 40
    assert limit.value == 2
    for second in range(900, 1000):
        limit.observed(FRESH, int(limit.value), float(second))
    assert limit.value == 64


def test_a_fixed_limit_is_its_maximum_and_learns_nothing():
    limit = FixedLimit(4, 36)
    limit.answered(9.0, is_used=True)
    limit.observed(replace(FRESH, engine_waiting=99), 36, 1.0)
    assert limit.value == 36
    limit.bound(4, 20)
    assert limit.value == 20
    limit.bound(4, 36)
    assert limit.value == 36


def test_a_fixed_limit_may_be_set_below_its_maximum():
    assert FixedLimit(4, 36, 12).value == 12


@pytest.mark.parametrize(
    ("algorithm", "kind", "start"),
    [
        (LimitAlgorithm.FIXED, FixedLimit, 64),
        (LimitAlgorithm.VEGAS, VegasLimit, 4),
        (LimitAlgorithm.GRADIENT2, Gradient2Limit, 4),
        (LimitAlgorithm.AIMD, GaugeAimdLimit, 4),
        (LimitAlgorithm.TOKEN_VALVE, FixedLimit, 64),
    ],
)
def test_each_name_has_its_limit(algorithm, kind, start):
    limit = new_limit(LimitPolicy(algorithm=algorithm), 4, 64)
    assert type(limit) is kind
    assert limit.value == start
    assert new_limit(LimitPolicy(algorithm=algorithm, initial_limit=9), 4, 64).value == 9


SAMPLES = st.lists(
    st.one_of(
        st.tuples(st.floats(), st.booleans()),
        st.builds(
            BackendBounds,
            backend=st.just("b"),
            engine_waiting=st.one_of(st.none(), st.integers(), st.floats()),
            kv_ratio=st.one_of(st.none(), st.floats()),
            telemetry_age_s=st.one_of(st.none(), st.floats()),
        ),
    ),
    max_size=60,
)


@given(
    SAMPLES, st.sampled_from(list(LimitAlgorithm)), st.integers(1, 9), st.integers(9, 99), st.integers(0, 99)
)
def test_no_sample_moves_a_limit_out_of_its_bounds(samples, algorithm, low, high, in_flight):
    limit = new_limit(LimitPolicy(algorithm=algorithm), low, high)
    for second, sample in enumerate(samples):
        if isinstance(sample, BackendBounds):
            limit.observed(sample, in_flight, float(second))
        else:
            limit.answered(sample[0], is_used=sample[1])
        assert low <= limit.value <= high


@given(st.lists(st.floats(0.001, 10.0), max_size=60), st.sampled_from(list(LimitAlgorithm)))
def test_nothing_rises_below_half_use(samples, algorithm):
    limit = new_limit(LimitPolicy(algorithm=algorithm, initial_limit=20), 4, 64)
    for second, sample in enumerate(samples):
        before = limit.value
        limit.answered(sample, is_used=False)
        limit.observed(FRESH, int(before / 2.1), float(second))
        assert limit.value <= before


@pytest.mark.parametrize("algorithm", [LimitAlgorithm.VEGAS, LimitAlgorithm.GRADIENT2])
def test_a_limit_falls_when_the_backend_becomes_ten_times_slower(algorithm):
    limit = new_limit(LimitPolicy(algorithm=algorithm, min_limit=2), 2, 64)
    feed(limit, *[0.1] * 200)
    assert limit.value == 64
    feed(limit, *[1.0] * 60)
    assert limit.value <= 16


def test_vegas_does_not_climb_while_the_backend_stays_slow():
    """Its base is the minimum, so a long incident never becomes the new normal."""
    limit = VegasLimit(2, 64)
    feed(limit, *[0.1] * 200)
    assert max(feed(limit, *[1.0] * 9000)[100:]) <= 4
    feed(limit, *[0.1] * 200)
    assert limit.value == 64
