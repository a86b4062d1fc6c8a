"""Every impossible value is refused with its field; what can never act is a warning with its arithmetic."""

from dataclasses import fields, is_dataclass, replace
from math import inf, nan

import pytest

from gateway.core.policy import (
    BackendPolicy,
    BreakerPolicy,
    GatePolicy,
    LimitPolicy,
    PoolPolicy,
    QueuePolicy,
    WatermarkPolicy,
    check,
    default_tiers,
)
from gateway.core.vocabulary import LimitAlgorithm

GOOD = GatePolicy(
    tiers=default_tiers(),
    pools=(
        PoolPolicy(name="chat"),
        PoolPolicy(name="embed", limit=LimitPolicy(algorithm=LimitAlgorithm.FIXED)),
    ),
    backends=(
        BackendPolicy(name="b1", pool="chat", max_seqs=96, kv_capacity_tokens=60_000, context_tokens=18_000),
        BackendPolicy(name="b2", pool="embed"),
    ),
)
P0, P1, P2 = GOOD.tiers


def with_tier(tier):
    return replace(
        GOOD, tiers=tuple(tier if t.name == tier.name or t.rank == tier.rank else t for t in GOOD.tiers)
    )


def with_pool(**changes):
    return replace(GOOD, pools=(replace(GOOD.pools[0], **changes), GOOD.pools[1]))


def with_backend(**changes):
    return replace(GOOD, backends=(replace(GOOD.backends[0], **changes), GOOD.backends[1]))


def with_queue(**changes):
    return with_tier(replace(P1, queue=replace(P1.queue, **changes)))


def with_limit(**changes):
    return with_pool(limit=LimitPolicy(**changes))


def with_breaker(**changes):
    return with_pool(breaker=BreakerPolicy(**changes))


def test_what_we_ship_is_good():
    assert check(GOOD) == ()


BAD = [
    (replace(GOOD, gateways=0), "gateways"),
    (replace(GOOD, tiers=()), "tiers"),
    (replace(GOOD, tiers=(P0, P1)), None),
    (replace(GOOD, tiers=(P0, P2)), "tiers"),
    (replace(GOOD, tiers=(P0, P1, replace(P1, name="again"))), "tiers"),
    (replace(GOOD, tiers=(P0, P1, replace(P2, name=P1.name))), "tiers[agent-workflow].name"),
    (replace(GOOD, tiers=(P0, P1, replace(P2, name=""))), "tiers[2].name"),
    (with_tier(replace(P1, floor=0.6)), "tiers[realtime-interactive].share_cap"),
    (with_tier(replace(P1, floor=0.95)), "tiers"),
    (with_tier(replace(P0, share_cap=0.95)), "tiers[realtime-interactive].share_cap"),
    (with_tier(replace(P0, share_cap=0.0)), "tiers[realtime-interactive].share_cap"),
    (with_tier(replace(P1, weight=0.0)), "tiers[agent-workflow].weight"),
    (with_tier(replace(P1, hold_back_prefill=1.1)), "tiers[agent-workflow].hold_back_prefill"),
    (with_tier(replace(P1, hold_back_kv=0.0)), "tiers[agent-workflow].hold_back_kv"),
    (with_tier(replace(P1, floor=-0.1)), "tiers[agent-workflow].floor"),
    (with_queue(max_size=-1), "tiers[agent-workflow].queue.max_size"),
    (with_queue(max_size=0), None),
    (with_queue(max_size_per_tenant=0), "tiers[agent-workflow].queue.max_size_per_tenant"),
    (with_queue(max_size_per_tenant=501), "tiers[agent-workflow].queue.max_size_per_tenant"),
    (with_queue(max_size_per_tenant=50), None),
    (with_queue(timeout_s=0.0), "tiers[agent-workflow].queue.timeout_s"),
    (with_queue(delay_budget_s=15.1), "tiers[agent-workflow].queue.delay_budget_s"),
    (with_queue(delay_budget_s=15.0), None),
    (with_queue(retry_after_max_s=61), "tiers[agent-workflow].queue.retry_after_max_s"),
    (with_pool(name=""), "pools[0].name"),
    (with_pool(name="embed"), "pools[embed].name"),
    (with_pool(output_cost=0.0), "pools[chat].output_cost"),
    (with_pool(default_output_tokens=0), "pools[chat].default_output_tokens"),
    (with_limit(min_limit=0), "pools[chat].limit.min_limit"),
    (with_limit(min_limit=9, max_limit=8), "pools[chat].limit.min_limit"),
    (with_limit(initial_limit=3), "pools[chat].limit.initial_limit"),
    (with_limit(initial_limit=4), None),
    (with_limit(max_limit=8, reserved_seats=8), "pools[chat].limit.reserved_seats"),
    (with_limit(max_limit=8, reserved_seats=7), None),
    (with_limit(reserved_seats=-1), "pools[chat].limit.reserved_seats"),
    (with_limit(kv_target=1.1), "pools[chat].limit.kv_target"),
    (with_limit(chunk_tokens=0), "pools[chat].limit.chunk_tokens"),
    (with_breaker(half_open_probes=0), "pools[chat].breaker.half_open_probes"),
    (with_breaker(failure_ratio=0.0), "pools[chat].breaker.failure_ratio"),
    (with_breaker(failure_ratio=1.1), "pools[chat].breaker.failure_ratio"),
    (with_breaker(ramp_s=-1.0), "pools[chat].breaker.ramp_s"),
    (with_breaker(min_requests=0), "pools[chat].breaker.min_requests"),
    (with_pool(watermark=WatermarkPolicy(safe=60)), "pools[chat].watermark.safe"),
    (with_pool(watermark=WatermarkPolicy(safe=-1)), "pools[chat].watermark.safe"),
    (with_backend(pool="nowhere"), "backends[b1].pool"),
    (with_backend(name="b2"), "backends[b2].name"),
    (with_backend(weight=0.0), "backends[b1].weight"),
    (with_backend(max_seqs=0), "backends[b1].max_seqs"),
    (with_backend(kv_capacity_tokens=-5), "backends[b1].kv_capacity_tokens"),
    (replace(with_limit(reserved_seats=8), backends=(BackendPolicy(name="b1", pool="chat", max_seqs=8),)),
     "backends[b1].max_seqs"),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "field"), BAD, ids=range(len(BAD)))
def test_an_impossible_value_is_refused_with_its_field(policy, field):
    refused = [problem.field for problem in check(policy) if not problem.is_warning]
    assert (field in refused) if field else not refused


def numbers(value, path=()):
    """Every number of a policy with the way to it."""
    for field in fields(value):
        inner = getattr(value, field.name)
        if is_dataclass(inner):
            yield from numbers(inner, (*path, field.name))
        elif field.type in (int, float, int | None, float | None):
            yield (*path, field.name)


def put(value, path, number):
    head, *rest = path
    return replace(value, **{head: put(getattr(value, head), rest, number) if rest else number})


WATERED = replace(GOOD.pools[0], watermark=WatermarkPolicy())
EVERY_NUMBER = [
    *(("tiers[agent-workflow].", P1, path, with_tier) for path in numbers(P1)),
    *(("pools[chat].", WATERED, path, lambda p: replace(GOOD, pools=(p, GOOD.pools[1]))) for path in numbers(WATERED)),
    *(("backends[b1].", GOOD.backends[0], path, lambda b: replace(GOOD, backends=(b,)))
      for path in numbers(GOOD.backends[0])),
    *(("", GOOD, path, lambda p: p) for path in [("gateways",)]),
]  # fmt: skip


@pytest.mark.parametrize("number", [nan, inf, -inf, -1])
@pytest.mark.parametrize(
    ("place", "value", "path", "wrap"),
    EVERY_NUMBER,
    ids=[place + ".".join(path) for place, _, path, _ in EVERY_NUMBER],
)
def test_no_number_may_be_negative_or_not_finite(place, value, path, wrap, number):
    refused = [problem.field for problem in check(wrap(put(value, path, number))) if not problem.is_warning]
    assert place + ".".join(path) in refused


def test_every_number_of_a_policy_is_tried():
    assert len(EVERY_NUMBER) >= 35


def test_every_problem_is_named_at_once():
    policy = with_limit(min_limit=-1, max_limit=-2, chunk_tokens=0)
    assert {p.field for p in check(policy)} >= {
        "pools[chat].limit.min_limit",
        "pools[chat].limit.max_limit",
        "pools[chat].limit.chunk_tokens",
    }


def warnings(policy):
    problems = check(policy)
    assert all(problem.is_warning for problem in problems)
    return {problem.field: problem.message for problem in problems}


def test_a_kv_target_that_sequences_cannot_reach_is_a_warning_with_its_arithmetic():
    policy = with_backend(max_seqs=8, context_tokens=2048)
    assert warnings(policy) == {
        "backends[b1].kv_capacity_tokens": (
            "the KV account can never bind: 8 sequences x 2048 tokens = 16384, below kv_target 0.9 x 60000 = 54000"
        )
    }
    assert warnings(with_backend(max_seqs=8, context_tokens=18_000)) == {}
    assert warnings(with_backend(max_seqs=8, context_tokens=None)) == {}


def test_an_algorithm_without_a_kv_account_gets_no_kv_warning():
    policy = with_backend(max_seqs=8, context_tokens=2048)
    fixed = LimitPolicy(algorithm=LimitAlgorithm.FIXED)
    assert warnings(replace(policy, pools=(replace(GOOD.pools[0], limit=fixed), GOOD.pools[1]))) == {}


def test_a_timeout_before_the_delay_budget_is_a_warning():
    policy = with_queue(timeout_s=1.0)
    assert list(warnings(policy)) == ["tiers[agent-workflow].queue.timeout_s"]


def test_a_watermark_beside_the_valve_is_a_warning():
    assert list(warnings(with_pool(watermark=WatermarkPolicy()))) == ["pools[chat].watermark"]
    fixed = LimitPolicy(algorithm=LimitAlgorithm.FIXED)
    assert warnings(with_pool(watermark=WatermarkPolicy(), limit=fixed)) == {}


def test_fewer_seats_than_gateways_is_a_warning():
    policy = replace(with_backend(max_seqs=2), gateways=3)
    assert "backends[b1].max_seqs" in warnings(policy)


def test_a_smaller_queue_policy_is_as_good():
    assert check(with_tier(replace(P1, queue=QueuePolicy()))) == ()
