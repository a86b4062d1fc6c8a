"""Samples over time: the formulas, and the bounds that they promise."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.windows import Ewma, LateRise, SlidingCounts, StepReference


def test_the_first_samples_of_an_average_are_a_plain_mean():
    average = Ewma(0.05)
    assert average.value is None
    for sample in (1.0, 2.0, 6.0):
        average.add(sample)
    assert average.value == pytest.approx(3.0)


def test_a_long_average_moves_by_its_weight():
    average = Ewma(0.5)
    for _ in range(10):
        average.add(1.0)
    average.add(3.0)
    assert average.value == pytest.approx(2.0)


@pytest.mark.parametrize("nonsense", [nan, inf, -inf])
def test_nonsense_does_not_move_an_average(nonsense):
    average = Ewma(0.05)
    average.add(2.0)
    average.add(nonsense)
    assert (average.value, average.count) == (2.0, 1)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_an_average_stays_between_its_samples(samples):
    average = Ewma(0.05)
    for sample in samples:
        average.add(sample)
    assert average.value is not None
    slack = 1e-6 * max(1.0, *map(abs, samples))
    assert min(samples) - slack <= average.value <= max(samples) + slack


def test_counts_forget_what_is_older_than_the_window():
    counts = SlidingCounts(10.0, 0.0)
    counts.add(failed=True, now=0.5)
    counts.add(failed=False, now=9.5)
    assert (counts.failures, counts.successes) == (1, 1)
    counts.forget(10.0)
    assert (counts.failures, counts.successes) == (0, 1)
    counts.forget(19.0)
    assert (counts.failures, counts.successes) == (0, 0)


def test_counts_survive_a_gap_longer_than_the_window():
    counts = SlidingCounts(1.0, 0.0)
    counts.add(failed=True, now=0.0)
    counts.add(failed=True, now=1e6)
    assert counts.failures == 1


def test_cleared_counts_are_empty():
    counts = SlidingCounts(1.0, 0.0)
    counts.add(failed=True, now=0.0)
    counts.clear(0.1)
    counts.forget(0.2)
    assert counts.failures == 0


@given(st.lists(st.tuples(st.floats(0, 5), st.booleans()), max_size=60))
def test_counts_hold_between_nine_tenths_and_the_whole_window(steps):
    counts = SlidingCounts(10.0, 0.0)
    now, events = 0.0, []
    for gap, failed in steps:
        now += gap
        events.append((now, failed))
        counts.add(failed=failed, now=now)
        surely = sum(1 for at, bad in events if bad and now - at < 8.999)
        at_most = sum(1 for at, bad in events if bad and now - at < 10.001)
        assert surely <= counts.failures <= at_most


def test_an_unknown_step_is_zero():
    assert StepReference().step(10) == 0.0


def test_the_first_step_is_taken_as_it_is():
    reference = StepReference()
    reference.learn(4, 0.02)
    assert (reference.step(4), reference.mean, reference.largest_n) == (0.02, 0.02, 4)


def test_the_reference_learns_that_larger_batches_take_longer():
    reference = StepReference()
    for i in range(400):
        n = 1 + i % 40
        reference.learn(n, 0.015 + 0.0002 * n)
    assert reference.step(1) == pytest.approx(0.0152, rel=0.05)
    assert reference.step(40) == pytest.approx(0.023, rel=0.05)


def test_without_variance_the_slope_stays_zero():
    reference = StepReference()
    for _ in range(50):
        reference.learn(3, 0.02)
    assert reference.step(60) == pytest.approx(reference.step(3))


def test_a_sample_counts_at_most_twice_its_prediction():
    reference = StepReference()
    for _ in range(100):
        reference.learn(3, 0.02)
    reference.learn(3, 60.0)
    assert reference.mean == pytest.approx(0.02 + 0.02 * 0.02)


def test_a_prediction_is_at_least_three_tenths_of_the_mean():
    reference = StepReference()
    for i in range(200):
        reference.learn(1 + (i % 2) * 99, 0.001 + 0.001 * (1 + (i % 2) * 99))
    assert reference.step(0) >= 0.3 * (reference.mean or 0)


@pytest.mark.parametrize("nonsense", [nan, inf, -1.0, 0.0])
def test_a_step_without_a_length_is_not_learnt(nonsense):
    reference = StepReference()
    reference.learn(1, nonsense)
    assert reference.mean is None


@given(st.lists(st.tuples(st.integers(0, 500), st.floats(1e-6, 1e3)), min_size=1, max_size=200))
def test_a_known_step_is_always_positive_and_finite(samples):
    reference = StepReference()
    for n, interval in samples:
        reference.learn(n, interval)
        assert 0.0 < reference.step(n) < inf
        assert 0.0 < reference.step(0) < inf


def test_a_shared_bound_falls_at_once_and_rises_a_second_later():
    bound = LateRise(0.5)
    bound.set(0.2, 10.0)
    assert bound.value == 0.2
    bound.set(0.9, 11.0)
    bound.advance(11.9)
    assert bound.value == 0.2
    bound.advance(12.0)
    assert bound.value == 0.9


def test_a_waiting_rise_only_gets_smaller():
    bound = LateRise(0.2)
    bound.set(0.9, 0.0)
    bound.set(0.5, 0.5)
    bound.set(0.8, 0.6)
    bound.advance(1.0)
    assert bound.value == 0.5


def test_a_fall_forgets_a_waiting_rise():
    bound = LateRise(0.4)
    bound.set(0.9, 0.0)
    bound.set(0.1, 0.5)
    bound.advance(5.0)
    assert bound.value == 0.1


def test_bounds_that_come_every_second_rise_every_second():
    bound = LateRise(0.0)
    for second in range(1, 5):
        bound.set(second / 10, float(second))
    assert bound.value == pytest.approx(0.3)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.45)), max_size=40))
def test_two_gateways_never_hold_more_than_the_whole(rounds):
    """Each round halves the whole differently; the gateways hear of it up to .45 s apart."""
    one, other = LateRise(0.5), LateRise(0.5)
    for second, (part, first, delay) in enumerate(rounds, start=1):
        early, late = (one, other) if first < 0.5 else (other, one)
        own, rest = (part, 1 - part) if early is one else (1 - part, part)
        one.advance(float(second))
        other.advance(float(second))
        early.set(own, float(second))
        assert one.value + other.value <= 1.0 + 1e-9 or delay > 0
        one.advance(second + delay)
        other.advance(second + delay)
        late.set(rest, second + delay)
        assert one.value + other.value <= 1.0 + 1e-9
