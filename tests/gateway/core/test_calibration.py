import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.calibration import Calibration, Sample, calibrate, seats, shares

KNOWN = Calibration(0.9)


def sample(**changes: object) -> Sample:
    values = {
        "elapsed_s": 1.0,
        "age_s": 0.5,
        "kv_ratio": 0.5,
        "kv_capacity_tokens": 1000,
        "counted_tokens": 500.0,
        "preemptions_per_s": 0.0,
    }
    return Sample(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("preemptions", "target"),
    [
        (0.0, 0.903),
        (0.5, 0.903),
        (1.0, 0.9 * 0.985),
        (2.0, 0.9 * 0.985),
        (3.0, 0.9 * 0.96),
        (None, 0.9),
        (math.nan, 0.9),
    ],
)
def test_preemptions_lower_the_kv_target_and_calm_raises_it(preemptions: float | None, target: float) -> None:
    assert calibrate(KNOWN, sample(preemptions_per_s=preemptions)).kv_target == pytest.approx(target)


def test_the_kv_target_stays_inside_its_bounds() -> None:
    low, high = KNOWN, KNOWN
    for _ in range(500):
        low = calibrate(low, sample(preemptions_per_s=9.0))
        high = calibrate(high, sample())
    assert low.kv_target == pytest.approx(0.70)
    assert high.kv_target == pytest.approx(0.95)


def test_a_target_that_a_person_set_below_the_floor_is_not_raised_by_preemptions() -> None:
    assert calibrate(Calibration(0.5), sample(preemptions_per_s=9.0)).kv_target == 0.5


def test_kappa_follows_the_ratio_of_the_averages_and_is_clamped() -> None:
    known = KNOWN
    for _ in range(200):
        known = calibrate(known, sample(kv_ratio=0.6))
    assert known.kappa == pytest.approx(1.2, rel=1e-3)
    for _ in range(200):
        known = calibrate(known, sample(kv_ratio=1.0, counted_tokens=201.0))
    assert known.kappa == 3.0
    for _ in range(200):
        known = calibrate(known, sample(kv_ratio=0.0001))
    assert known.kappa == 0.3


def test_kappa_begins_as_if_it_were_right_and_moves_by_a_twentieth() -> None:
    empty_as_late_gauges_tell_of_a_cold_start = sample(kv_ratio=0.0, counted_tokens=500.0)
    assert calibrate(KNOWN, empty_as_late_gauges_tell_of_a_cold_start).kappa == pytest.approx(0.95)


@pytest.mark.parametrize(
    "changes",
    [{"counted_tokens": 200.0}, {"kv_ratio": None}, {"kv_capacity_tokens": None}, {"kv_capacity_tokens": 0}],
)
def test_kappa_stays_where_the_evidence_says_nothing(changes: dict[str, object]) -> None:
    assert calibrate(KNOWN, sample(**changes)).kappa == 1.0


def test_stale_telemetry_freezes_and_long_stale_telemetry_pulls_towards_caution() -> None:
    assert calibrate(KNOWN, sample(age_s=5.0, kv_ratio=1.0, preemptions_per_s=9.0)) == KNOWN
    assert calibrate(KNOWN, sample(age_s=None)) == KNOWN
    assert calibrate(KNOWN, sample(age_s=31.0)).kv_target == pytest.approx(0.89)
    assert calibrate(Calibration(0.8), sample(age_s=31.0)).kv_target == pytest.approx(0.81)
    assert calibrate(Calibration(0.852), sample(age_s=31.0)).kv_target == pytest.approx(0.85)


@pytest.mark.parametrize("elapsed_s", [0.0, -1.0, math.nan, math.inf])
def test_no_time_moves_nothing(elapsed_s: float) -> None:
    informed = replace(KNOWN, is_informed=True)
    assert calibrate(informed, sample(elapsed_s=elapsed_s, preemptions_per_s=9.0)) == informed


def test_a_fifth_is_shared_evenly_and_the_rest_by_demand() -> None:
    known: dict[str, float] = {}
    for _ in range(60):
        known = shares({"a": 30.0, "b": 10.0}, known)
    assert known == pytest.approx({"a": 0.7, "b": 0.3}, abs=1e-6)


def test_no_demand_is_shared_evenly_and_nobody_gets_nothing() -> None:
    assert shares({"a": 0.0, "b": math.nan}, {}) == pytest.approx({"a": 0.5, "b": 0.5})
    assert shares({}, {}) == {}


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=3), st.floats(allow_nan=True, allow_infinity=True), max_size=8
    ),
    st.integers(0, 300),
    st.integers(0, 20),
)
def test_shares_sum_to_one_and_seats_to_the_total(
    demand: dict[str, float], total: int, rotation: int
) -> None:
    share = shares(demand, {})
    whole = seats(share, total, rotation)
    if demand:
        assert sum(share.values()) == pytest.approx(1.0)
        assert min(share.values()) > 0
        assert sum(whole.values()) == total
        assert all(abs(whole[name] - share[name] * total) < 1 + 1e-6 for name in share)
    else:
        assert whole == {}


def test_ties_rotate_so_that_no_gateway_gets_every_odd_seat() -> None:
    share = {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}
    assert [max(seats(share, 4, n), key=seats(share, 4, n).__getitem__) for n in range(3)] == ["a", "b", "c"]


def test_only_a_fresh_gauge_informs_and_it_stays_informed() -> None:
    assert not calibrate(KNOWN, sample(age_s=None)).is_informed
    assert not calibrate(KNOWN, sample(age_s=9.0)).is_informed
    assert not calibrate(KNOWN, sample(kv_ratio=None, preemptions_per_s=None)).is_informed
    informed = calibrate(KNOWN, sample(elapsed_s=0.0, preemptions_per_s=None))
    assert informed.is_informed
    assert calibrate(informed, sample(age_s=None)).is_informed
