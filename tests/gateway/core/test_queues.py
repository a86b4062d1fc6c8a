"""Fairness inside a tier, order between tiers, and what a queue remembers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.events import Arrived
from gateway.core.policy import TierPolicy, default_tiers
from gateway.core.queues import PoolQueues, TierQueue
from gateway.core.tickets import Ticket


def a_ticket(name: str, tenant: str, tier: int = 1, cost: int = 100, now: float = 0.0) -> Ticket:
    ticket = Ticket(Arrived(ticket=name, pool="chat", tier=tier, tenant=tenant, prompt_tokens=cost), now)
    ticket.cost = cost
    return ticket


def push(queue: TierQueue, name: str, tenant: str, cost: int = 100, weight: float = 1.0) -> Ticket:
    ticket = a_ticket(name, tenant, cost=cost)
    queue.push(ticket, queue.tenant(tenant, weight))
    return ticket


def serve(queue: TierQueue) -> Ticket:
    """Dispatch the head: charge, then remove."""
    head = queue.head()
    assert head is not None
    queue.charge(head.tenant, head.cost / queue.tenants[head.tenant].weight)
    queue.remove(head)
    return head


@pytest.fixture
def queue() -> TierQueue:
    return TierQueue(default_tiers()[1], 1)


def test_an_empty_queue_has_no_head(queue):
    assert queue.head() is None
    assert queue.waiting == queue.largest == 0
    assert "waiting=0" in repr(queue)


def test_idleness_is_no_credit(queue):
    for index in range(10):
        push(queue, f"a{index}", "ada")
    for _ in range(5):
        serve(queue)
    push(queue, "b0", "bob")
    push(queue, "b1", "bob")
    assert queue.tenants["bob"].counter == queue.tenants["ada"].counter == 500


def test_whoever_comes_after_a_pause_starts_where_the_last_one_left(queue):
    push(queue, "a0", "ada", cost=700)
    serve(queue)
    push(queue, "b0", "bob")
    assert queue.tenants["bob"].counter == 700


def test_a_settlement_reorders_tenants_that_wait(queue):
    push(queue, "a0", "ada")
    push(queue, "b0", "bob")
    assert queue.head().id == "a0"
    queue.charge("ada", 50.0)
    assert queue.head().id == "b0"
    queue.charge("ada", -100.0)
    assert queue.head().id == "a0"


def test_a_settlement_for_a_forgotten_tenant_is_ignored(queue):
    queue.charge("nobody", 50.0)
    assert queue.tenants == {}


def test_a_returned_ticket_goes_to_the_front_of_its_tenant(queue):
    push(queue, "a0", "ada")
    returned = a_ticket("back", "ada")
    queue.push(returned, queue.tenant("ada", 1.0), front=True)
    assert queue.head() is returned


def test_the_largest_tenant_loses_its_newest(queue):
    for name, tenant in [("a0", "ada"), ("b0", "bob"), ("b1", "bob"), ("b2", "bob"), ("a1", "ada")]:
        push(queue, name, tenant)
    assert (queue.largest, queue.newest_of_largest().id) == (3, "b2")
    queue.remove(queue.newest_of_largest())
    queue.remove(queue.tenants["bob"].tickets["b1"])
    assert (queue.largest, queue.newest_of_largest().id) == (2, "a1")


def test_a_new_weight_counts_at_once(queue):
    push(queue, "a0", "ada", weight=1.0)
    push(queue, "b0", "bob", weight=1.0)
    assert queue.active_weight == 2.0
    queue.tenant("ada", 5.0)
    assert queue.active_weight == 6.0
    queue.remove(queue.tenants["bob"].tickets["b0"])
    queue.tenant("bob", 7.0)  # waits no more: no part of the active weight
    assert queue.active_weight == 5.0
    serve(queue)
    assert queue.active_weight == 0.0


def test_idle_tenants_are_forgotten_a_few_at_a_time(queue):
    for index in range(10):
        push(queue, f"t{index}", f"tenant-{index}")
        serve(queue)
    push(queue, "busy", "busy")
    assert len(queue.tenants) == 11
    queue.sweep()
    assert len(queue.tenants) >= 7  # bounded work per call
    for _ in range(6):
        queue.sweep()
    assert list(queue.tenants) == ["busy"]


def test_an_idle_tenant_with_a_debt_is_remembered(queue):
    push(queue, "a0", "ada", cost=900)
    push(queue, "b0", "bob")
    serve(queue)
    for _ in range(3):
        queue.sweep()
    assert "ada" in queue.tenants


def test_a_heap_full_of_old_entries_is_rebuilt(queue):
    push(queue, "a0", "ada")
    push(queue, "b0", "bob")
    for _ in range(500):
        queue.charge("ada", 1.0)
        queue.charge("bob", 1.0)
    assert len(queue._heap) < 100
    assert queue.head().id == "a0"


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(1, 5000), st.integers(-800, 800), st.integers(0, 3)), min_size=20, max_size=120
    )
)
def test_counters_of_always_waiting_tenants_differ_by_one_charge_and_the_unsettled_errors(steps):
    """VTC's bound: the largest single charge, and once settled the sum of |actual - predicted| as well."""
    queue = TierQueue(default_tiers()[1], 1)
    names = ["ada", "bob", "cyd"]
    costs = iter([cost for cost, _, _ in steps] * 4)
    for name in names:
        for index in range(2):
            push(queue, f"{name}-first-{index}", name, cost=next(costs))
    largest, errors = 0, 0
    flying: list[tuple[str, int]] = []
    for number, (cost, error, settle) in enumerate(steps):
        head = serve(queue)
        largest = max(largest, head.cost)
        flying.append((head.tenant, error))
        push(queue, f"{head.tenant}-{number}", head.tenant, cost=cost)
        if settle == 0 and flying:
            tenant, late = flying.pop(0)
            queue.charge(tenant, late)
            errors += abs(late)
        counters = [queue.tenants[name].counter for name in names]
        assert max(counters) - min(counters) <= largest + errors


# -- between tiers


def pool_queues(*weights: float, floor: float = 0.0) -> PoolQueues:
    """Rank 0, then a tier per weight; the last one has the floor."""
    tiers = [TierPolicy(rank=0, name="p0", ttft_objective_s=1.0, tpot_objective_s=0.1, share_cap=0.7)]
    tiers += [
        TierPolicy(
            rank=rank, name=f"p{rank}", ttft_objective_s=5.0, tpot_objective_s=0.1, weight=weight,
            floor=floor if rank == len(weights) else 0.0,
        )
        for rank, weight in enumerate(weights, 1)
    ]  # fmt: skip
    return PoolQueues(tuple(tiers))


def dispatch(queues: PoolQueues) -> int:
    """Serve the head that is next; returns its rank."""
    tier = queues.next_tier()
    head = tier.head()
    tier.remove(head)
    queues.charge(head, head.cost, 1.0)
    queues.shares.add(tier.index, head.cost)
    return tier.policy.rank


def keep_waiting(queues: PoolQueues, *ranks: int, cost: int = 1000, tickets: int = 40) -> None:
    for rank in ranks:
        for index in range(tickets):
            queues.push(a_ticket(f"{rank}-{index}", f"t{rank}", tier=rank, cost=cost), 1.0)


def test_nothing_waits_nothing_goes():
    assert pool_queues(3.0, 1.0).next_tier() is None


def test_lower_tiers_share_by_weight():
    queues = pool_queues(3.0, 1.0)
    keep_waiting(queues, 1, 2)
    order = [dispatch(queues) for _ in range(40)]
    assert order.count(1) == 30


def test_four_lower_tiers_share_by_weight_too():
    queues = pool_queues(4.0, 3.0, 2.0, 1.0)
    keep_waiting(queues, 1, 2, 3, 4)
    order = [dispatch(queues) for _ in range(50)]
    assert [order.count(rank) for rank in (1, 2, 3, 4)] == [20, 15, 10, 5]


def test_rank_0_settles_at_its_share_while_others_wait():
    queues = pool_queues(3.0, 1.0)
    keep_waiting(queues, 0, 1, 2, tickets=600)
    order = [dispatch(queues) for _ in range(600)]
    assert order[:20] == [0] * 20
    late = order[200:]
    assert 0.65 <= late.count(0) / len(late) <= 0.75


def test_rank_0_alone_has_no_cap():
    queues = pool_queues(3.0)
    keep_waiting(queues, 0, tickets=200)
    assert {dispatch(queues) for _ in range(200)} == {0}


def test_a_tier_under_its_floor_goes_first():
    queues = pool_queues(100.0, 1.0, floor=0.1)
    keep_waiting(queues, 1, 2, tickets=400)
    order = [dispatch(queues) for _ in range(400)]
    assert 0.08 <= order[100:].count(2) / 300 <= 0.12


def test_a_tier_that_starts_to_wait_has_no_credit_from_before():
    queues = pool_queues(1.0, 1.0)
    keep_waiting(queues, 1, tickets=50)
    for _ in range(20):
        dispatch(queues)
    keep_waiting(queues, 2, tickets=50)
    order = [dispatch(queues) for _ in range(20)]
    assert order.count(2) == 10


def test_tiers_without_a_rank_0_share_by_weight():
    tiers = tuple(
        TierPolicy(rank=rank, name=f"p{rank}", ttft_objective_s=5.0, tpot_objective_s=0.1) for rank in (1, 2)
    )
    queues = PoolQueues(tiers)
    keep_waiting(queues, 1, 2)
    order = [dispatch(queues) for _ in range(20)]
    assert order.count(1) == 10


def test_new_tiers_keep_what_waits_oldest_first():
    queues = pool_queues(3.0, 1.0)
    for index, rank in enumerate([2, 1, 2]):
        ticket = a_ticket(f"t{index}", "ada", tier=rank, now=float(index))
        queues.push(ticket, 1.0)
    queues.reshape(tuple(tier.policy for tier in queues.tiers[:2]))
    assert [tier.waiting for tier in queues.tiers] == [0, 3]
    assert [ticket.id for ticket in queues.tiers[1].tickets()] == ["t1", "t0", "t2"]
    assert all(ticket.tier == 1 for ticket in queues.tiers[1].tickets())
