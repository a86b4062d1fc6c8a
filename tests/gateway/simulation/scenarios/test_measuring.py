"""From outcomes to the values of targets, on outcomes made by hand."""

import pytest

from gateway.simulation.scenarios import measuring as m
from gateway.simulation.scenarios.cases import Case, Outcome
from gateway.simulation.scenarios.measuring import Book

CASE = Case("gpu", "x10")
OTHER = Case("gpu", "x10", "48")
SEEDS = (1, 2)


def made(**changes):
    given = {
        "goodput": 100.0,
        "ratio": 0.9,
        "in_objective": (1.0, 0.5, 0.25),
        "answered": (0.99, 0.9, 0.8),
        "ttft_p99_s": 0.2,
        "preemptions": 4,
        "preemptions_per_1000": 2.0,
        "useless": 0.01,
        "attempts": 2.5,
        "jain": 0.99,
        "series": (100.0,) * 100,
    }
    return Outcome(**{**given, **changes})


def book(case=CASE, outcomes=None, others=None):
    outcomes = outcomes or (made(), made())
    found = {case.seeded(seed): outcome for seed, outcome in zip(SEEDS, outcomes, strict=True)}
    if others is not None:
        found |= {OTHER.seeded(seed): outcome for seed, outcome in zip(SEEDS, others, strict=True)}
    return Book(found)


def test_ratios_and_parts_are_told_per_seed():
    some = book(outcomes=(made(), made(ratio=0.8, in_objective=(0.9, 0.0, 0.0))))
    assert m.ratio(some, CASE, SEEDS) == [0.9, 0.8]
    assert m.in_objective(0)(some, CASE, SEEDS) == [100.0, 90.0]
    assert m.in_objective(1)(some, CASE, SEEDS) == [50.0, 0.0]
    assert m.answered(some, CASE, SEEDS) == [99.0, 99.0]
    assert m.useless(some, CASE, SEEDS) == [1.0, 1.0]
    assert m.attempts(some, CASE, SEEDS) == [2.5, 2.5]
    assert m.jain(some, CASE, SEEDS) == [0.99, 0.99]
    assert m.preemptions(some, CASE, SEEDS) == [4.0, 4.0]
    assert m.preemptions_per_1000(some, CASE, SEEDS) == [2.0, 2.0]


def test_the_tail_is_a_multiple_of_the_unloaded_one():
    some = {case: made(ttft_p99_s=0.05) for case in m.unloaded_cases("unloaded", SEEDS)}
    some |= {CASE.seeded(seed): made() for seed in SEEDS}
    assert m.tail(Book(some), CASE, SEEDS) == pytest.approx([4.0, 4.0])


def test_unloaded_runs_have_seeds_of_their_own():
    cases = m.unloaded_cases("unloaded", SEEDS)
    assert len(set(cases)) == len(SEEDS) * m.UNLOADED_RUNS


def test_comparisons_with_another_case():
    some = book(
        others=(made(goodput=80.0, preemptions=8, ttft_p99_s=0.1), made(goodput=120.0, preemptions=32))
    )
    assert m.goodput_against(OTHER)(some, CASE, SEEDS) == pytest.approx([1.25, 100 / 120])
    assert m.loss_against(OTHER)(some, CASE, SEEDS) == pytest.approx([0.0])
    assert m.preemptions_against(OTHER)(some, CASE, SEEDS) == pytest.approx([20.0])
    assert m.tail_against(OTHER)(some, CASE, SEEDS) == pytest.approx([0.2 / 0.15])


def test_a_change_counts_in_both_directions():
    more = book(others=(made(goodput=80.0), made(goodput=80.0)))
    assert m.loss_against(OTHER)(more, CASE, SEEDS) == pytest.approx([-25.0])
    assert m.change_against(OTHER)(more, CASE, SEEDS) == pytest.approx([25.0])


def test_reactions_of_all_seeds_are_taken_together():
    some = book(outcomes=(made(reactions=(0.05, 0.1)), made(reactions=(0.2, 2.0))))
    assert m.reaction_ms(0.5)(some, CASE, SEEDS) == pytest.approx([150.0])
    assert m.reaction_ms(1.0)(some, CASE, SEEDS) == pytest.approx([2000.0])


def test_false_alarms_refusals_and_engine_waiting():
    some = book(outcomes=(made(false_alarms=0.02, refusals_of_first=0.001, engine_waiting=3), made()))
    assert m.false_alarms(some, CASE, SEEDS) == [2.0, 0.0]
    assert m.refusals(some, CASE, SEEDS) == [1.0, 0.0]
    assert m.engine_waiting(some, CASE, SEEDS) == [3.0, 0.0]


def test_recovery_is_measured_on_the_mean_of_the_seeds():
    slow = Case("gpu", "slow-down")
    down = made(series=(100.0,) * 20 + (0.0,) * 20 + (0.0, 0.0) + (160.0,) * 38)
    calm = made(series=(100.0,) * 80)
    assert m.recovery(book(slow, (down, down)), slow, SEEDS) == [1.0]
    assert m.recovery(book(slow, (calm, calm)), slow, SEEDS) == [0.0]
