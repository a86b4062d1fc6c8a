"""A policy is a set of frozen values; what we ship is what the documents say."""

from dataclasses import FrozenInstanceError

import pytest

from gateway.core import policy
from gateway.core.policy import LimitPolicy, default_tiers
from gateway.core.vocabulary import DropPolicy, LimitAlgorithm


def test_everything_that_the_package_names_is_there():
    assert all(hasattr(policy, name) for name in policy.__all__)


def test_the_default_tiers_are_realtime_agent_and_batch():
    tiers = default_tiers()
    assert [tier.rank for tier in tiers] == [0, 1, 2]
    assert [tier.name for tier in tiers] == ["realtime-interactive", "agent-workflow", "batch-extraction"]
    assert [(t.queue.max_size, t.queue.timeout_s) for t in tiers] == [(200, 8.0), (500, 15.0), (1000, 60.0)]
    assert [t.queue.drop for t in tiers] == [
        DropPolicy.EARLY_DROP,
        DropPolicy.EARLY_DROP,
        DropPolicy.FAST_REJECT,
    ]
    assert [(t.weight, t.floor) for t in tiers[1:]] == [(3.0, 0.0), (1.0, 0.1)]


def test_a_value_cannot_be_changed_in_place():
    with pytest.raises(FrozenInstanceError):
        LimitPolicy().min_limit = 9


def test_the_default_limit_is_the_token_valve():
    limit = LimitPolicy()
    assert limit.algorithm is LimitAlgorithm.TOKEN_VALVE
    assert (limit.min_limit, limit.max_limit, limit.chunk_tokens, limit.kv_target) == (4, 256, 2048, 0.90)
