"""The checked-in figures."""

import pytest

from gateway.simulation.scenarios import baselines, sweep


def test_the_figures_that_targets_need_are_checked_in():
    for search in sweep.searches():
        assert baselines.best(search.profile, search.name).limit in search.limits
    with pytest.raises(KeyError):
        baselines.best("gpu", "nothing")
