"""What a pool sheds, as tables of a state and a verdict."""

from dataclasses import replace

import pytest

from gateway.core.events import Arrived
from gateway.core.policy import QueuePolicy, TierPolicy, default_tiers
from gateway.core.queues import PoolQueues
from gateway.core.rates import ServiceRates
from gateway.core.shedding import Shedding, Throttle, delay_budget_s, objective_wait_s, spread
from gateway.core.tickets import Ticket
from gateway.core.vocabulary import DropPolicy, ShedReason


class Scene:
    """Queues and their shedding, with a pressure that the test sets."""

    def __init__(self, drop: DropPolicy = DropPolicy.EARLY_DROP, **queue) -> None:
        tiers = tuple(
            replace(tier, queue=replace(tier.queue, drop=drop, **queue)) for tier in default_tiers()
        )
        self.queues = PoolQueues(tiers)
        self.rates = ServiceRates(3, 0.0)
        self.pressure = 0.0
        self.shedding = Shedding(self.queues, self.rates, lambda tier, now: self.pressure)
        self.count = 0

    def ticket(self, tier: int = 1, tenant: str = "ada", cost: int = 1000, **fields) -> Ticket:
        self.count += 1
        event = Arrived(
            ticket=f"t{self.count}", pool="chat", tier=tier, tenant=tenant, prompt_tokens=cost, **fields
        )
        ticket = Ticket(event, 0.0)
        ticket.cost = cost
        return ticket

    def waits(self, tier: int = 1, tenant: str = "ada", cost: int = 1000, weight: float = 1.0) -> Ticket:
        ticket = self.ticket(tier, tenant, cost)
        self.queues.push(ticket, weight)
        return ticket

    def judge(self, tier: int = 1, tenant: str = "ada", weight: float = 1.0, now: float = 0.0, **fields):
        ticket = self.ticket(tier, tenant, **fields)
        return self.shedding.judge(ticket, self.queues.tier(tier), weight, now)

    def wait_s(self, tier: int, tenant: str, weight: float = 1.0) -> float:
        return self.shedding.expected_wait_s(self.queues.tier(tier), tenant, weight)


@pytest.mark.parametrize(("tier", "budget", "objective"), [(0, 0.5, 0.6), (1, 2.4, 3.0), (2, 10.05, 11.8)])
def test_budgets_and_objectives_of_the_default_tiers(tier, budget, objective):
    policy = default_tiers()[tier]
    assert delay_budget_s(policy) == pytest.approx(budget)
    assert objective_wait_s(policy) == pytest.approx(objective)


def test_a_set_budget_replaces_the_factor_and_an_objective_has_a_least_wait():
    tier = TierPolicy(
        rank=0, name="p", ttft_objective_s=0.1, tpot_objective_s=0.1, queue=QueuePolicy(delay_budget_s=7.0)
    )
    assert delay_budget_s(tier) == 7.0
    assert objective_wait_s(tier) == 0.3


def test_nothing_measured_means_no_wait():
    scene = Scene()
    scene.waits()
    assert scene.wait_s(1, "ada") == 0.0


def test_a_tenants_wait_is_its_backlog_over_its_part_of_the_rate():
    scene = Scene()
    scene.rates.tiers[1] = 1000.0
    for tenant in ("ada", "ada", "bob"):
        scene.waits(tenant=tenant)
    assert scene.wait_s(1, "ada") == pytest.approx(4.0)  # 2,000 at half of 1,000/s
    assert scene.wait_s(1, "bob") == pytest.approx(2.0)
    assert scene.wait_s(1, "cyd") == 0.0
    assert scene.wait_s(1, "ada", weight=3.0) == pytest.approx(2000 * 4 / 3000)


@pytest.mark.parametrize(("tier", "rate"), [(0, 700.0), (1, 450.0), (2, 150.0)])
def test_a_tier_is_entitled_to_its_part_of_the_total(tier, rate):
    scene = Scene()
    scene.rates.total = 1000.0
    scene.queues.shares.put(0, 0.4)
    assert scene.shedding.tier_rate(scene.queues.tiers[tier]) == pytest.approx(rate)


def test_tiers_without_rank_0_share_the_whole():
    tiers = tuple(replace(tier, rank=tier.rank + 1) for tier in default_tiers()[1:])
    queues, rates = PoolQueues(tiers), ServiceRates(2, 0.0)
    rates.total = 1000.0
    shedding = Shedding(queues, rates, lambda tier, now: 0.0)
    assert [shedding.tier_rate(tier) for tier in queues.tiers] == [750.0, 250.0]


def test_early_drop_compares_the_wait_with_the_budget():
    scene = Scene()
    scene.rates.tiers[1] = 1000.0
    scene.waits(cost=2399)
    assert scene.judge() is None
    scene.waits(cost=2)
    verdict = scene.judge()
    assert (verdict.reason, verdict.decision.rule) == (ShedReason.EARLY_DROP, "delay-budget")
    assert verdict.decision.place == 2
    assert scene.judge(tenant="bob") is None  # fair: its own backlog counts


def test_tail_knows_the_size_only():
    scene = Scene(DropPolicy.TAIL, max_size=2)
    scene.rates.tiers[1] = 1.0
    scene.pressure = 1.0
    scene.waits(tier=0)
    scene.waits()
    assert scene.judge() is None
    scene.waits()
    assert scene.judge().reason is ShedReason.QUEUE_FULL


@pytest.mark.parametrize(
    ("pressures", "refused"),
    [
        ([0.89], [False]),
        ([0.9], [True]),
        ([0.9, 0.85, 0.8, 0.79, 0.85, 0.9], [True, True, True, False, False, True]),
    ],
)
def test_fast_reject_is_latched_between_its_pressures(pressures, refused):
    scene = Scene(DropPolicy.FAST_REJECT)
    scene.queues.shares.put(1, 0.5)
    found = []
    for scene.pressure in pressures:
        found.append(scene.judge() is not None)
    assert found == refused


def test_under_its_floor_every_tenant_may_let_one_wait():
    scene = Scene(DropPolicy.FAST_REJECT)
    scene.waits(tier=1)
    assert scene.judge(tier=2) is None
    scene.waits(tier=2)
    assert scene.judge(tier=2).decision.rule == "higher-tier-waits"
    assert scene.judge(tier=2, tenant="bob") is None
    scene.queues.shares.put(2, 0.1)  # the floor is reached
    assert scene.judge(tier=2, tenant="bob").reason is ShedReason.FAST_REJECT


def test_a_retry_without_credit_needs_a_calm_tier():
    scene = Scene()
    assert scene.judge(is_retry=True) is None
    scene.pressure = 0.9
    assert scene.judge(is_retry=True).decision.rule == "retry-credit"
    scene.pressure = 0.0
    scene.waits()
    assert scene.judge(is_retry=True).reason is ShedReason.RETRY_BUDGET
    scene.shedding.credits.grant("ada", 1, 1.0, 0.0)
    assert scene.judge(is_retry=True) is None


def test_a_refused_retry_grants_nothing_and_ordinary_traffic_one_credit():
    scene = Scene()
    scene.waits()
    retry = scene.ticket(is_retry=True)
    verdict = scene.shedding.judge(retry, scene.queues.tier(1), 1.0, 0.0)
    scene.shedding.come_back(retry, verdict, 0.0, 0.5)
    assert len(scene.shedding.credits) == 0
    scene.shedding.come_back(scene.ticket(), verdict, 0.0, 0.5)
    assert scene.shedding.credits.take("ada", 1, 1.0)


def test_slots_follow_the_rate_of_the_whole_cluster():
    scene = Scene()
    scene.rates.tiers[1] = 500.0
    scene.shedding.retune(0.5)
    ticket = scene.ticket(cost=1000)
    scene.waits(cost=10_000)
    verdict = scene.judge()
    first, second = (scene.shedding.come_back(ticket, verdict, 0.0, 0.5).at for _ in range(2))
    assert first == pytest.approx(20.0 - 2.4)
    assert second - first == pytest.approx(0.7)  # 1,000 at 1,000/s, times .7


def test_expected_first_tokens_shorten_the_deadline_and_fade():
    scene = Scene()
    for _ in range(100):
        scene.shedding.see_ttft(2.0)
    assert scene.shedding.ttft_s == pytest.approx(2.0, abs=0.01)
    assert scene.judge(deadline_at=1.9).reason is ShedReason.DEADLINE
    scene.shedding.calm()
    assert scene.shedding.ttft_s == pytest.approx(2.0, abs=0.01)
    scene.shedding.calm()  # a second without first tokens
    assert scene.judge(deadline_at=1.9) is None


@pytest.mark.parametrize(
    ("drop", "deadline_at", "expires_at", "reason"),
    [
        (DropPolicy.TAIL, None, 15.0, ShedReason.QUEUE_TIMEOUT),
        (DropPolicy.TAIL, 4.0, 4.0, ShedReason.DEADLINE),
        (DropPolicy.TAIL, 99.0, 15.0, ShedReason.QUEUE_TIMEOUT),
        (DropPolicy.EARLY_DROP, None, 3.0, ShedReason.DEADLINE),
        (DropPolicy.EARLY_DROP, 2.0, 2.0, ShedReason.DEADLINE),
        (DropPolicy.FAST_REJECT, None, 15.0, ShedReason.QUEUE_TIMEOUT),
    ],
)
def test_waiting_ends_at_the_first_of_its_bounds(drop, deadline_at, expires_at, reason):
    scene = Scene(drop)
    ticket = scene.ticket(deadline_at=deadline_at)
    scene.shedding.limit_wait(ticket)
    assert (ticket.expires_at, ticket.late_reason) == (pytest.approx(expires_at), reason)
    verdict = scene.shedding.late(ticket, 20.0)
    assert (verdict.reason, verdict.decision.value) == (reason, 20.0)


def test_a_throttle_lets_an_even_part_pass():
    throttle = Throttle(0.3)
    assert [throttle.lets_pass() for _ in range(10)].count(True) == 3
    assert not any(Throttle(0.0).lets_pass() for _ in range(10))


def test_a_throttle_that_is_set_again_goes_on():
    scene = Scene()
    scene.shedding.throttle({1: 0.5})
    known = scene.shedding.throttles[1]
    scene.shedding.throttle({1: 0.5, 2: 0.0})
    assert scene.shedding.throttles[1] is known
    scene.shedding.throttle({1: 0.7})
    assert scene.shedding.throttles[1] is not known
    assert 2 not in scene.shedding.throttles


@pytest.mark.parametrize("roll", [0.0, 0.5, 0.999])
def test_without_a_rate_callers_are_spread_over_the_upper_half_of_the_cap(roll):
    assert 105.0 <= spread(10, 100.0, roll).at <= 110.0
