"""What happens in a play, and when it is measured."""

import itertools

import pytest

from gateway.simulation.profiles import CPU8, GPU, LLAMA4, TIGHT
from gateway.simulation.scenarios import plays


@pytest.mark.parametrize(
    "name",
    ["storm", "flood", "jump", "slow-down", "loss", "burst", "unloaded", "calm", "onsets", "x2.5", "long"],
)
def test_a_play_is_measured_inside_its_time_and_after_the_warm_up(name):
    play = plays.named(GPU, name, 1)
    assert plays.WARM_UP_S <= play.window[0] < play.window[1] <= play.until_s
    starts = [phase.start_s for phase in play.phases]
    assert starts == sorted(starts)
    assert starts[0] == 0.0
    assert all(fault.at_s < play.until_s for fault in play.faults)


def test_slow_profiles_take_four_times_as_long():
    assert plays.jump(CPU8).until_s == 4 * plays.jump(GPU).until_s
    assert plays.jump(CPU8).phases[1].start_s == 4 * plays.jump(GPU).phases[1].start_s


def test_the_jump_is_eightfold_and_comes_back():
    prompts = [phase.prompt_tokens for phase in plays.jump(GPU).phases]
    assert prompts == [500.0, 4000.0, 500.0]
    with pytest.raises(ValueError, match="tight"):
        plays.jump(TIGHT)


def test_every_fault_ends():
    assert [fault.slow_factor for fault in plays.slow_down(GPU).faults] == [3.0, 1.0]
    assert [fault.is_lost for fault in plays.loss(GPU).faults] == [True, False]


def test_onsets_come_at_random_phases_far_enough_apart():
    found = plays.onsets(7)
    assert len(found) == plays.ONSETS
    assert all(later - sooner > plays.ONSET_LASTS_S + 2.0 for sooner, later in itertools.pairwise(found))
    assert found == plays.onsets(7) != plays.onsets(8)


def test_the_closed_loop_is_of_callers_alone_on_one_engine():
    play = plays.closed_loop(LLAMA4)
    assert play.callers == (2, 6, 8)
    assert play.profile.engines == 1
    assert play.phases[0].rates == (0.0, 0.0, 0.0)


def test_an_unknown_play_is_refused():
    with pytest.raises(KeyError):
        plays.named(GPU, "earthquake", 1)
