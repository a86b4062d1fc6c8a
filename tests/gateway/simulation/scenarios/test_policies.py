"""The three guards that are compared."""

import pytest

from gateway.core.policy import check
from gateway.core.vocabulary import DropPolicy, LimitAlgorithm
from gateway.simulation.profiles import GPU, LLAMA4, PROFILES
from gateway.simulation.scenarios import policies


@pytest.mark.parametrize("name", PROFILES)
def test_every_policy_is_one_that_a_gate_accepts(name):
    profile = PROFILES[name]
    for policy in (policies.valve(profile), policies.fixed(profile, 4), policies.unprotected(profile)):
        assert [problem for problem in check(policy) if not problem.is_warning] == []


def test_the_valve_has_the_defaults_of_a_new_installation():
    policy = policies.valve(GPU, gateways=3)
    assert policy.gateways == 3
    assert policy.pools[0].limit.algorithm is LimitAlgorithm.TOKEN_VALVE
    assert [tier.queue.drop for tier in policy.tiers] == [
        DropPolicy.EARLY_DROP,
        DropPolicy.EARLY_DROP,
        DropPolicy.FAST_REJECT,
    ]
    assert [tier.ttft_objective_s for tier in policy.tiers] == [1.0, 4.0, 15.0]
    assert policy.backends[0].kv_capacity_tokens == 60_000


def test_a_static_limit_has_the_same_queue_and_drops_early_in_all_tiers():
    policy = policies.fixed(GPU, 48)
    assert policy.pools[0].limit.max_limit == 48
    assert {tier.queue.drop for tier in policy.tiers} == {DropPolicy.EARLY_DROP}


def test_no_protection_bounds_nothing():
    policy = policies.unprotected(GPU)
    assert {tier.queue.drop for tier in policy.tiers} == {DropPolicy.TAIL}
    assert policy.pools[0].limit.max_limit == policies.BOUNDLESS
    assert {backend.max_seqs for backend in policy.backends} == {None}


def test_an_engine_with_a_context_per_seat_has_no_capacity():
    assert policies.valve(LLAMA4).backends[0].kv_capacity_tokens is None
