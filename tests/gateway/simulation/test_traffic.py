"""Who calls, how much, and how they take a no."""

import random
from collections import Counter
from statistics import mean

import pytest

from gateway.simulation.profiles import CPU8, GPU
from gateway.simulation.traffic import Manners, Phase, draw, pause_s, rates, requests

DICE = random.Random
LONG_S = 2000.0


@pytest.fixture(scope="module")
def many():
    return requests(GPU, (Phase(0.0, rates(GPU, 1.0)),), LONG_S, seed=3)


def test_rates_keep_p0_at_twice_its_base_above_two():
    assert rates(GPU, 1.0) == pytest.approx((2.75, 4.4, 3.85))
    assert rates(GPU, 2.0) == pytest.approx((5.5, 8.8, 7.7))
    ten = rates(GPU, 10.0)
    assert ten[0] == pytest.approx(5.5)
    assert sum(ten) == pytest.approx(110.0)
    assert ten[1] / ten[2] == pytest.approx(0.40 / 0.35)


def test_a_flood_is_of_p0_alone():
    assert rates(GPU, 1.0, flood=30.0) == pytest.approx((82.5, 4.4, 3.85))


def test_arrivals_have_the_rates_and_sizes_of_the_profile(many):
    for tier, load in enumerate(GPU.tiers):
        mine = [request for request in many if request.tier == tier]
        assert len(mine) == pytest.approx(LONG_S * rates(GPU, 1.0)[tier], rel=0.05)
        assert mean(request.prompt_tokens for request in mine) == pytest.approx(load.prompt_tokens, rel=0.05)
        assert mean(request.output_tokens for request in mine) == pytest.approx(load.output_tokens, rel=0.05)


def test_requests_come_in_order_of_time_and_are_numbered(many):
    assert [request.number for request in many] == list(range(len(many)))
    times = [request.arrived_at for request in many]
    assert times == sorted(times)


def test_the_first_of_four_tenants_sends_ten_times_as_much(many):
    counts = Counter(request.tenant for request in many if request.tier == 1)
    assert set(counts) == {"p1-0", "p1-1", "p1-2", "p1-3"}
    others = mean(counts[name] for name in ("p1-1", "p1-2", "p1-3"))
    assert counts["p1-0"] / others == pytest.approx(10.0, rel=0.1)


def test_four_of_five_callers_are_obedient(many):
    assert mean(request.is_obedient for request in many) == pytest.approx(0.8, abs=0.02)


def test_the_estimate_of_a_prompt_is_wrong_by_fifteen_per_cent(many):
    errors = [request.estimate / request.prompt_tokens for request in many if request.prompt_tokens > 100]
    assert mean(errors) == pytest.approx(1.0, abs=0.02)
    spread = mean((error - 1.0) ** 2 for error in errors) ** 0.5
    assert spread == pytest.approx(0.15, abs=0.02)


def test_phases_change_rate_and_prompts():
    phases = (Phase(0.0, (10.0, 0.0, 0.0), 500.0), Phase(100.0, (20.0, 0.0, 0.0), 4000.0))
    found = requests(GPU, phases, 200.0, seed=1)
    first = [request for request in found if request.arrived_at < 100.0]
    second = [request for request in found if request.arrived_at >= 100.0]
    assert len(second) / len(first) == pytest.approx(2.0, rel=0.15)
    assert mean(request.prompt_tokens for request in first) == pytest.approx(500.0, rel=0.1)
    assert mean(request.prompt_tokens for request in second) == pytest.approx(4000.0, rel=0.1)


def test_no_request_is_longer_than_the_context():
    found = requests(CPU8, (Phase(0.0, (50.0, 50.0, 50.0), 1500.0),), 60.0, seed=1)
    assert (
        max(request.prompt_tokens + request.output_tokens for request in found) <= CPU8.engine.context_tokens
    )
    assert min(request.output_tokens for request in found) >= 1


def test_the_same_seed_gives_the_same_requests():
    def told(seed):
        found = requests(GPU, (Phase(0.0, rates(GPU, 1.0)),), 20.0, seed=seed)
        return [(request.arrived_at, request.tenant, request.prompt_tokens) for request in found]

    assert told(1) == told(1)
    assert told(1) != told(2)


def test_the_obedient_come_back_after_retry_after_and_a_little():
    dice = DICE(1)
    waits = [Manners().wait_s(1, 8, is_obedient=True, dice=dice) for _ in range(200)]
    assert 8.0 <= min(waits) <= max(waits) <= 10.0


def test_the_others_back_off_exponentially_up_to_eight_seconds():
    dice = DICE(1)
    for refusals, middle in ((1, 0.5), (2, 1.0), (3, 2.0), (5, 8.0), (9, 8.0)):
        waits = [Manners().wait_s(refusals, 30, is_obedient=False, dice=dice) for _ in range(200)]
        assert min(waits) >= 0.5 * middle
        assert max(waits) <= 1.5 * middle


def test_the_obedient_back_off_too_where_nothing_was_told():
    assert Manners().wait_s(1, None, is_obedient=True, dice=DICE(1)) <= 0.75


def test_in_a_storm_everybody_is_back_at_once_three_times_as_often():
    storm = Manners(is_storm=True)
    dice = DICE(1)
    waits = [storm.wait_s(4, 30, is_obedient=True, dice=dice) for _ in range(200)]
    assert 0.1 <= min(waits) <= max(waits) <= 0.4
    assert (storm.tries(4), Manners().tries(4)) == (12, 4)


def test_a_request_is_in_objective_only_within_both_objectives():
    request = draw(GPU, 0, 0.0, DICE(1))
    load = GPU.tiers[0]
    assert not request.is_answered
    assert not request.is_in_objective(load)
    request.ttft_s, request.tpot_s = 0.9, 0.1
    assert request.is_answered
    assert request.is_in_objective(load)
    request.tpot_s = 0.2
    assert not request.is_in_objective(load)
    request.ttft_s, request.tpot_s = 1.1, 0.1
    assert not request.is_in_objective(load)


def test_a_caller_thinks_up_to_a_second():
    dice = DICE(1)
    assert all(0.0 <= pause_s(dice) < 1.0 for _ in range(100))
