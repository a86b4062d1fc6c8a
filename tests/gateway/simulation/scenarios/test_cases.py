"""One run of one play, and what it was worth."""

import pickle

import pytest

from gateway.simulation.scenarios.cases import NONE, Case, outcome


@pytest.fixture(scope="module")
def calm_case():
    return Case("gpu", "unloaded", seed=1)


@pytest.fixture(scope="module")
def calm_outcome(calm_case):
    return outcome(calm_case)


def test_an_unloaded_run_serves_everybody_within_objectives(calm_outcome):
    assert calm_outcome.in_objective == (1.0, 1.0, 1.0)
    assert calm_outcome.answered[0] == 1.0
    assert calm_outcome.preemptions == 0
    assert calm_outcome.attempts == pytest.approx(1.0)
    assert 0.02 < calm_outcome.ttft_p99_s < 0.2


def test_the_goodput_of_each_second_makes_the_goodput(calm_outcome):
    assert sum(calm_outcome.series) / len(calm_outcome.series) == pytest.approx(calm_outcome.goodput)


def test_a_case_and_its_outcome_can_go_to_another_process(calm_case, calm_outcome):
    assert pickle.loads(pickle.dumps((calm_case, calm_outcome))) == (calm_case, calm_outcome)  # noqa: S301  # our own


def test_cases_have_an_order_and_a_name():
    assert min(Case("gpu", "x10", seed=2), Case("gpu", "x10", seed=1)).seed == 1
    assert str(Case("gpu", "x10", NONE, seed=3)) == "gpu / x10 / none / 1 gw / fresh / 3"


def test_a_case_can_be_seeded():
    assert Case("gpu", "jump", gateways=3).seeded(7) == Case("gpu", "jump", gateways=3, seed=7)


@pytest.mark.parametrize("guard", ["12", NONE])
def test_other_guards_run_too(guard):
    assert outcome(Case("gpu", "unloaded", guard, seed=1)).in_objective[0] == 1.0
