"""The worst days on one seed, with and without protection: the short form of `make scenarios`."""

import pytest

from gateway.simulation.scenarios.cases import NONE, Case, outcome
from gateway.simulation.scenarios.targets import goodput_targets

SEED = 4
SLACK = 0.03
DAYS = {
    target.case.play: target for target in goodput_targets() if target.is_controlled and target.slack == SLACK
}


@pytest.mark.scenario
@pytest.mark.parametrize("play", ["x10", "jump", "loss"])
def test_protection_holds_what_it_must_and_its_absence_does_not(play):
    must = DAYS[play].must or 0.0
    guarded = outcome(Case("gpu", play, seed=SEED))
    assert guarded.ratio >= must - SLACK
    assert guarded.in_objective[0] >= 0.93
    bare = outcome(Case("gpu", play, NONE, seed=SEED))
    assert bare.ratio < must
    assert bare.in_objective[0] < 0.6


@pytest.mark.scenario
def test_one_tenant_that_sends_ten_times_as_much_gets_no_more_than_the_others():
    assert outcome(Case("gpu", "x10", seed=SEED)).jain >= 0.98
    assert outcome(Case("gpu", "x10", NONE, seed=SEED)).jain < 0.9
