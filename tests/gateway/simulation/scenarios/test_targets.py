"""The table itself: complete, with a negative control in every scenario that protects somebody."""

import pytest

from gateway.simulation.profiles import PROFILES
from gateway.simulation.scenarios import plays
from gateway.simulation.scenarios.cases import OUTER, Case
from gateway.simulation.scenarios.measuring import ratio
from gateway.simulation.scenarios.targets import Target, all_targets, jump_control_target


def target(**changes):
    given = {"case": Case("gpu", "x10"), "title": "goodput", "measure": ratio, "must": 0.9}
    return Target(**{**given, **changes})


def test_a_must_holds_for_the_mean_and_no_seed_is_far_below():
    assert target().holds([0.85, 0.95])
    assert not target().holds([0.85, 0.94])
    assert not target(slack=0.03).holds([0.86, 0.96])
    assert target(slack=0.03).holds([0.88, 0.94])


def test_an_upper_bound_is_met_from_below():
    assert target(at_most=True).holds([0.9, 0.9])
    assert not target(at_most=True).holds([0.9, 0.91])


def test_a_measure_without_must_is_only_reported():
    assert target(must=None).holds([0.0])


def test_every_target_names_a_play_and_a_slow_loop_that_exist():
    for found in [*all_targets(), jump_control_target()]:
        for case in found.cases((101,)):
            assert plays.named(PROFILES[case.profile], case.play, 1).until_s > 0
            assert case.outer in OUTER


@pytest.mark.parametrize("play", ["x10", "storm", "jump", "slow-down", "loss", "burst"])
def test_every_bad_day_has_a_negative_control(play):
    assert any(found.is_controlled for found in all_targets() if found.case == Case("gpu", play))


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_has_a_negative_control(profile):
    assert any(found.is_controlled for found in all_targets() if found.case.profile == profile)


def test_an_aim_is_never_easier_than_its_must():
    for found in all_targets():
        if found.must is not None and found.aim is not None:
            assert found.meets(found.aim, found.must), found.title


def test_a_target_runs_what_it_is_compared_with():
    cases = target(static="48", is_controlled=True, also=(Case("gpu", "x1"),)).cases((1,))
    assert cases == {
        Case("gpu", "x10", seed=1),
        Case("gpu", "x10", "48", seed=1),
        Case("gpu", "x10", "none", seed=1),
        Case("gpu", "x1", seed=1),
    }
