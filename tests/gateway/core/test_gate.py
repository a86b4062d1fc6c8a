"""Playbooks: what the gate says to each kind of event."""

from dataclasses import replace

import pytest

from gateway.core.commands import (
    Abort,
    BreakerChanged,
    Dispatch,
    Evict,
    RefundQuota,
    Refuse,
    ReserveQuota,
    SettleQuota,
)
from gateway.core.events import (
    Abandoned,
    Arrived,
    BackendBounds,
    BoundsReceived,
    Configured,
    DrainStarted,
    Failed,
    Finished,
    Override,
    OverridesReceived,
    Progress,
    PushedBack,
    QuotaDenied,
    QuotaGranted,
    Ticked,
)
from gateway.core.gate import Gate
from gateway.core.policy import (
    BreakerPolicy,
    GatePolicy,
    PoolPolicy,
    WatermarkPolicy,
    default_tiers,
)
from gateway.core.recorder import Recorder, Tape, replay
from gateway.core.vocabulary import BreakerState, Fault, OverrideKind, ShedReason
from tests.fakes.playbook import Playbook, chance, seats_policy, tail_tiers


def balanced(book: Playbook) -> bool:
    return book.gate.view(book.now).ledger_imbalance == 0


# -- letting in and sending on


def test_a_free_seat_takes_an_arrival_at_once():
    with Playbook() as book:
        book.arrive("a")
        book.expect(Dispatch("a", "b0", 1, 0.0))
        assert book.gate.view(0.0).backends[0].in_flight == 1


def test_a_finished_ticket_hands_its_seat_to_the_next():
    with Playbook() as book:
        book.arrive("a")
        book.sent(("a", "b0"))
        book.arrive("b")
        book.waits()
        book.now = 2.0
        book.finish("a", 100, 8)
        book.expect(Dispatch("b", "b0", 2, 2.0))


def test_tickets_of_one_tenant_go_first_in_first_out():
    with Playbook() as book:
        book.fill(1)
        for name in "abc":
            book.arrive(name)
            book.waits()
        for before, name in zip(["full-0", "a", "b"], "abc", strict=True):
            book.finish(before)
            book.sent((name, "b0"))


def test_rank_0_goes_before_a_lower_tier_that_came_earlier():
    with Playbook() as book:
        book.fill(1, tier=2)
        book.arrive("batch", tier=2)
        book.waits()
        book.arrive("agent", tier=1)
        book.waits()
        book.arrive("person", tier=0)
        book.waits()
        book.finish("full-0")
        book.sent(("person", "b0"))


def test_the_tenant_that_got_less_goes_next():
    with Playbook() as book:
        book.fill(1)
        for name in ("amuck-0", "amuck-1", "amuck-2"):
            book.arrive(name, tenant="amuck")
            book.waits()
        book.arrive("quiet-0", tenant="quiet")
        book.waits()
        book.finish("full-0")
        book.sent(("amuck-0", "b0"))
        book.finish("amuck-0", 100, 256)
        book.sent(("quiet-0", "b0"))


def test_a_heavier_tenant_gets_its_weight():
    with Playbook() as book:
        book.fill(1)
        for index in range(30):
            book.arrive(f"heavy-{index}", tenant="heavy", weight=3.0, max_output_tokens=0)
            book.waits()
            book.arrive(f"light-{index}", tenant="light", weight=1.0, max_output_tokens=0)
            book.waits()
        current, order = "full-0", []
        for _ in range(20):
            [dispatch] = book.finish(current, 100, 0)
            book.take()
            current = dispatch.ticket
            order.append(current.split("-")[0])
        assert order.count("heavy") == 15


def test_reserved_seats_are_for_rank_0_alone():
    with Playbook(seats_policy(2, reserved=1)) as book:
        book.arrive("agent-0")
        book.sent(("agent-0", "b0"))
        book.arrive("agent-1")
        book.waits()
        book.arrive("person", tier=0)
        book.sent(("person", "b0"))


def test_a_waiting_lower_tier_goes_while_rank_0_is_over_its_share():
    with Playbook() as book:
        book.fill(1)
        for index in range(30):
            book.arrive(f"person-{index}", tier=0, tenant=f"p{index}")
            book.waits()
        for index in range(10):
            book.arrive(f"agent-{index}", tier=1, tenant=f"a{index}")
            book.waits()
        current, order = "full-0", []
        for _ in range(30):
            [dispatch] = book.finish(current)
            book.take()
            current = dispatch.ticket
            order.append(current.split("-")[0])
        assert order[:5] == ["person"] * 5
        assert 6 <= order.count("agent") <= 9


def test_an_unknown_tier_is_served_as_the_lowest():
    with Playbook() as book:
        book.fill(1)
        book.arrive("a", tier=7)
        book.waits()
        [queue] = [queue for queue in book.gate.view(0.0).queues if queue.waiting]
        assert queue.tier == 2


def test_the_less_burdened_backend_takes_the_next_ticket():
    with Playbook(seats_policy(2, 2)) as book:
        book.arrive("a")
        book.sent(("a", "b0"))
        book.arrive("b")
        book.sent(("b", "b1"))
        book.finish("a")
        book.waits()
        book.arrive("c")
        book.sent(("c", "b0"))


def test_a_heavier_backend_gets_more():
    policy = seats_policy(8, 8)
    heavy = replace(policy.backends[1], weight=3.0)
    with Playbook(replace(policy, backends=(policy.backends[0], heavy))) as book:
        for index in range(8):
            book.arrive(f"t{index}")
            book.take()
        carried = {gauge.backend: gauge.in_flight for gauge in book.gate.view(0.0).backends}
        assert carried == {"b0": 2, "b1": 6}


def test_a_prompt_goes_where_the_context_holds_it():
    policy = seats_policy(4, 4)
    short = replace(policy.backends[0], context_tokens=1000)
    long = replace(policy.backends[1], context_tokens=4000)
    with Playbook(replace(policy, backends=(short, long))) as book:
        book.arrive("long-0", prompt_tokens=2000)
        book.sent(("long-0", "b1"))
        book.arrive("long-1", prompt_tokens=2000)
        book.sent(("long-1", "b1"))
        book.arrive("too-long", prompt_tokens=9000)  # the engine's own error is the best answer
        book.sent(("too-long", "b0"))


# -- refusing


def test_an_unknown_pool_has_no_backend():
    with Playbook() as book:
        book.arrive("a", pool="nowhere")
        refusal = book.shed("a", ShedReason.NO_BACKEND)
        assert refusal.retry_after is not None


@pytest.mark.parametrize("field", ["enabled", "drained"])
def test_a_pool_whose_backends_are_off_has_no_backend(field):
    policy = seats_policy(1)
    off = replace(policy.backends[0], **{field: field == "drained"})
    with Playbook(replace(policy, backends=(off,))) as book:
        book.arrive("a")
        book.shed("a", ShedReason.NO_BACKEND)


def test_a_full_queue_sheds_the_newest_arrival():
    with Playbook(seats_policy(1, tiers=tail_tiers(size=2))) as book:
        book.fill(1)
        for name in "ab":
            book.arrive(name)
            book.waits()
        book.arrive("c")
        refusal = book.shed("c", ShedReason.QUEUE_FULL)
        assert isinstance(refusal, Refuse)
        assert (refusal.decision.rule, refusal.decision.value, refusal.decision.bound) == ("size", 2, 2)


def test_a_tenant_with_its_own_bound_fills_only_that():
    tiers = tuple(
        replace(tier, queue=replace(tier.queue, max_size_per_tenant=1)) for tier in tail_tiers(size=5)
    )
    with Playbook(seats_policy(1, tiers=tiers)) as book:
        book.fill(1)
        book.arrive("a")
        book.waits()
        book.arrive("b")
        assert book.shed("b", ShedReason.QUEUE_FULL).decision.rule == "tenant-size"
        book.arrive("c", tenant="other")
        book.waits()


def test_a_full_queue_of_one_tenant_makes_room_for_another():
    with Playbook(seats_policy(1, tiers=tail_tiers(size=3))) as book:
        book.fill(1)
        for name in "abc":
            book.arrive(name, tenant="amuck")
            book.waits()
        book.arrive("quiet", tenant="quiet")
        eviction = book.shed("c", ShedReason.DISPLACED)
        assert isinstance(eviction, Evict)
        assert dict(book.gate.view(0.0).queues[1].waiting_by_tenant) == {"amuck": 2, "quiet": 1}
        book.arrive("quiet-2", tenant="quiet")  # 2 against 1: an even exchange helps nobody
        book.shed("quiet-2", ShedReason.QUEUE_FULL)


def test_a_queue_of_one_place_still_changes_hands():
    with Playbook(seats_policy(1, tiers=tail_tiers(size=1))) as book:
        book.fill(1)
        book.arrive("a", tenant="amuck")
        book.waits()
        book.arrive("b", tenant="quiet")
        book.shed("a", ShedReason.DISPLACED)


def test_a_caller_whose_deadline_is_past_is_refused():
    with Playbook() as book:
        book.now = 5.0
        book.arrive("a", deadline_at=5.0)
        book.shed("a", ShedReason.DEADLINE)


def test_an_expected_wait_above_the_budget_is_refused_early():
    with Playbook(seats_policy(1, tiers=default_tiers())) as book:
        measure_rate(book)
        book.arrive("a", prompt_tokens=20_000, max_output_tokens=0)
        book.waits()
        book.arrive("late", prompt_tokens=1, max_output_tokens=1)
        refusal = book.shed("late", ShedReason.EARLY_DROP)
        assert refusal.decision.rule == "delay-budget"
        assert refusal.decision.value > refusal.decision.bound == pytest.approx(2.4)
        assert refusal.decision.expected_wait_s == refusal.decision.value


def test_a_wait_longer_than_the_callers_deadline_is_refused_early():
    with Playbook(seats_policy(1, tiers=default_tiers())) as book:
        measure_rate(book)
        book.arrive("a", prompt_tokens=4_000, max_output_tokens=0)
        book.waits()
        book.arrive("hasty", deadline_at=book.now + 0.2)
        assert book.shed("hasty", ShedReason.DEADLINE).decision.rule == "deadline-at-arrival"


def measure_rate(book: Playbook) -> None:
    """Leave one ticket in flight and a service rate of a few thousand cost units per second behind."""
    current = "full-0"
    book.fill(1, tier=1)
    for index in range(40):
        book.arrive(f"m{index}", prompt_tokens=200, max_output_tokens=0)
        book.take()
        book.now += 0.1
        book.finish(current, 200, 0)
        book.sent((f"m{index}", "b0"))
        current = f"m{index}"


def test_fast_reject_refuses_while_a_higher_tier_waits():
    with Playbook(seats_policy(1, tiers=default_tiers())) as book:
        book.fill(1)
        book.arrive("agent", tier=1)
        book.waits()
        book.arrive("batch", tier=2, tenant="b")  # under its floor: one per tenant
        book.waits()
        book.arrive("batch-2", tier=2, tenant="b")
        assert book.shed("batch-2", ShedReason.FAST_REJECT).decision.rule == "higher-tier-waits"


def test_fast_reject_holds_until_the_pressure_is_well_below():
    with Playbook(seats_policy(20, tiers=without_floor())) as book:
        names = book.fill(18)
        book.now = 5.0
        book.arrive("a", tier=2)
        assert book.shed("a", ShedReason.FAST_REJECT).decision.bound == 0.9
        book.finish(names[0])
        book.arrive("b", tier=2)  # 17 of 20: below .9, not below .8
        assert book.shed("b", ShedReason.FAST_REJECT).decision.bound == 0.8
        for name in names[1:3]:
            book.finish(name)
        book.arrive("c", tier=2)  # 15 of 20
        book.sent(("c", "b0"))


def without_floor():
    return tuple(replace(tier, floor=0.0) for tier in default_tiers())


def test_a_retry_without_credit_is_shed_first():
    with Playbook(seats_policy(1, tiers=tail_tiers(size=2))) as book:
        book.fill(1)
        book.arrive("a")
        book.waits()
        book.arrive("again", is_retry=True)
        book.shed("again", ShedReason.RETRY_BUDGET)
        book.arrive("new")
        book.waits()


def test_a_refusal_pays_for_one_retry_from_its_slot_on():
    with Playbook(seats_policy(1, tiers=tail_tiers(size=1))) as book:
        book.fill(1)
        book.arrive("a")
        book.waits()
        book.arrive("b")
        slot = book.shed("b", ShedReason.QUEUE_FULL).retry_after
        book.now = slot.at - 1.0 - 0.001
        book.arrive("early", is_retry=True)
        book.shed("early", ShedReason.RETRY_BUDGET)
        book.now = slot.at
        book.arrive("on-time", is_retry=True)
        book.shed("on-time", ShedReason.QUEUE_FULL)  # ordinary traffic


def test_a_retry_is_ordinary_traffic_in_calm_times():
    with Playbook(seats_policy(4)) as book:
        book.arrive("a", is_retry=True)
        book.sent(("a", "b0"))


def test_refusals_hand_out_increasing_slots():
    with Playbook(seats_policy(1, tiers=tail_tiers(size=1))) as book:
        book.fill(1)
        book.arrive("a")
        book.waits()
        slots = []
        for index in range(50):
            book.arrive(f"r{index}")
            slots.append(book.shed(f"r{index}", ShedReason.QUEUE_FULL).retry_after)
        instants = [slot.at for slot in slots]
        assert instants == sorted(set(instants))
        assert all(1 <= slot.after_s <= 60 and book.now + slot.after_s >= slot.at for slot in slots)


def test_draining_refuses_arrivals_and_serves_the_rest():
    with Playbook() as book:
        book.fill(1)
        book.arrive("a")
        book.waits()
        book.feed(DrainStarted())
        book.waits()
        book.arrive("b")
        book.shed("b", ShedReason.DRAINING)
        book.finish("full-0")
        book.sent(("a", "b0"))
        assert book.gate.view(0.0).draining
        assert book.gate.pressure("chat", 0, 0.0) == 1.0


# -- quota


def test_a_ticket_waits_for_its_quota_and_then_goes():
    with Playbook() as book:
        book.arrive("a", has_quota=True)
        book.expect(ReserveQuota("a", 100 + 256))
        book.feed(QuotaGranted("a"))
        book.sent(("a", "b0"))
        book.feed(QuotaGranted("a"))  # said twice: harmless
        book.waits()
        book.finish("a", 90, 20)
        book.expect(SettleQuota("a", 110))


def test_a_denied_quota_refuses_with_the_exact_refill():
    with Playbook() as book:
        book.arrive("a", has_quota=True)
        book.take()
        book.feed(QuotaDenied("a", ShedReason.TOKEN_LIMITED, 12.3))
        refusal = book.shed("a", ShedReason.TOKEN_LIMITED)
        assert (refusal.retry_after.at, refusal.retry_after.after_s) == (12.3, 13)
        book.feed(QuotaDenied("a", ShedReason.TOKEN_LIMITED, 12.3))
        book.waits()


@pytest.mark.parametrize("retry_at", [None, 61.0, float("nan")])
def test_a_refill_that_is_far_away_gets_no_retry_after(retry_at):
    with Playbook() as book:
        book.arrive("a", has_quota=True)
        book.take()
        book.feed(QuotaDenied("a", ShedReason.QUOTA_EXHAUSTED, retry_at))
        assert book.shed("a", ShedReason.QUOTA_EXHAUSTED).retry_after is None


def test_a_quota_that_comes_too_late_is_given_back():
    with Playbook() as book:
        book.arrive("a", has_quota=True)
        book.take()
        book.feed(Abandoned("a"))
        book.waits()
        book.feed(QuotaGranted("a"))
        book.expect(RefundQuota("a"))
        assert balanced(book)


def test_a_queue_that_filled_meanwhile_refuses_and_refunds():
    with Playbook(seats_policy(1, tiers=tail_tiers(size=1))) as book:
        book.fill(1)
        for name in "ab":
            book.arrive(name, has_quota=True)
            book.expect(ReserveQuota(name, 356))
        book.feed(QuotaGranted("a"))
        book.waits()
        book.feed(QuotaGranted("b"))
        refund, refusal = book.take()
        assert refund == RefundQuota("b")
        assert (refusal.ticket, refusal.reason) == ("b", ShedReason.QUEUE_FULL)
        assert balanced(book)


def test_a_quota_that_never_answers_ends_with_the_time_out():
    with Playbook(seats_policy(1, tiers=tail_tiers(timeout_s=2.0))) as book:
        book.arrive("a", has_quota=True)
        book.take()
        book.tick(at=2.0)
        refusal = book.shed("a", ShedReason.QUEUE_TIMEOUT)
        assert isinstance(refusal, Refuse)
        assert balanced(book)


# -- the end of waiting


def test_waiting_ends_at_the_time_out():
    with Playbook(seats_policy(1, tiers=tail_tiers(timeout_s=8.0))) as book:
        book.fill(1)
        book.arrive("a", has_quota=True)
        book.take()
        book.feed(QuotaGranted("a"))
        book.waits()
        assert book.wakes[-1] <= 8.0
        book.tick(at=7.999)
        book.waits()
        book.tick(at=8.0)
        refund, eviction = book.take()
        assert refund == RefundQuota("a")
        assert (eviction.reason, eviction.decision.rule) == (ShedReason.QUEUE_TIMEOUT, "timeout")


def test_waiting_ends_at_the_callers_deadline():
    with Playbook() as book:
        book.fill(1)
        book.arrive("a", deadline_at=3.0)
        book.waits()
        book.tick(at=3.0)
        book.shed("a", ShedReason.DEADLINE)


def test_waiting_ends_when_the_objective_can_not_be_met():
    with Playbook(seats_policy(1, tiers=default_tiers())) as book:
        book.fill(1)
        book.arrive("a", tier=0)
        book.waits()
        book.tick(at=0.59)
        book.waits()
        book.tick(at=0.61)  # four fifths of 1 s, less .2 s
        book.shed("a", ShedReason.DEADLINE)


def test_nothing_is_dispatched_past_its_deadline():
    with Playbook() as book:
        book.fill(1)
        book.arrive("a", deadline_at=3.0)
        book.waits()
        book.now = 3.0
        book.finish("full-0")
        book.shed("a", ShedReason.DEADLINE)


def test_a_head_whose_answer_would_come_too_late_is_evicted():
    with Playbook() as book:
        book.fill(1)
        book.arrive("hasty", deadline_at=4.0)
        book.waits()
        book.now = 3.9
        book.token("b0", "full-0")  # a first token after 3.9 s: .39 s are expected from now on
        assert book.shed("hasty", ShedReason.DEADLINE).decision.rule == "deadline-at-dequeue"


def test_an_expired_head_makes_way_for_the_next():
    policy = seats_policy(2)
    short = replace(policy.backends[0], context_tokens=1000)
    with Playbook(replace(policy, backends=(short,))) as book:
        book.fill(2)
        book.arrive("a", deadline_at=1.0)
        book.waits()
        book.arrive("b")
        book.waits()
        book.tick(at=1.0)
        book.shed("a", ShedReason.DEADLINE)
        book.finish("full-0")
        book.sent(("b", "b0"))


def test_an_abandoned_ticket_never_reaches_a_backend():
    with Playbook() as book:
        book.fill(1)
        book.arrive("a", has_quota=True)
        book.take()
        book.feed(QuotaGranted("a"))
        book.waits()
        book.feed(Abandoned("a"))
        book.expect(RefundQuota("a"))
        book.finish("full-0")
        book.waits()
        assert balanced(book)


# -- in flight


def test_an_abandoned_dispatch_is_aborted_and_settled_by_what_was_used():
    with Playbook() as book:
        book.arrive("a", has_quota=True)
        book.take()
        book.feed(QuotaGranted("a"))
        book.take()
        book.token("b0", "a")
        book.waits()
        book.feed(Abandoned("a"))
        book.expect(Abort("a", "b0"), SettleQuota("a", 101))
        book.feed(Abandoned("a"))
        book.waits()
        book.arrive("b")
        book.sent(("b", "b0"))


def test_who_always_leaves_before_the_first_token_pays_for_the_prompt_that_was_computed():
    with Playbook(seats_policy(4)) as book:
        book.arrive("usual")
        book.take()
        book.feed(Progress("b0", (("usual", 1),)), at=2.0)  # first tokens take about this long here
        book.waits()
        settled = []
        for name, stay_s in (("at-once", 0.0), ("early", 0.05), ("late", 9.0)):
            book.arrive(name, has_quota=True)
            book.take()
            book.feed(QuotaGranted(name))
            book.take()
            book.feed(Abandoned(name), at=book.now + stay_s)
            settled += [command.tokens for command in book.take() if isinstance(command, SettleQuota)]
        assert settled[0] == 0
        assert 0 < settled[1] < 100
        assert settled[2] == 100
        assert balanced(book)


def test_an_abandoned_dispatch_pays_a_fifth_of_a_retry():
    with Playbook(seats_policy(1)) as book:
        for index in range(5):
            book.arrive(f"a{index}")
            book.take()
            book.feed(Abandoned(f"a{index}"))
            book.take()
        book.fill(1)
        book.arrive("waiting")
        book.waits()
        book.arrive("again", is_retry=True)
        book.waits()
        book.arrive("and-again", is_retry=True)
        book.shed("and-again", ShedReason.RETRY_BUDGET)


@pytest.mark.parametrize(
    ("fault", "command"),
    [
        (Fault.CONNECTION, RefundQuota("a")),
        (Fault.CALLER_ERROR, SettleQuota("a", 0)),
    ],
)
def test_a_failure_without_a_token_costs_the_tenant_nothing(fault, command):
    with Playbook() as book:
        book.arrive("a", has_quota=True)
        book.take()
        book.feed(QuotaGranted("a"))
        book.take()
        book.feed(Failed("a", fault))
        book.expect(command)
        book.feed(Failed("a", fault))
        book.waits()


def test_a_failure_in_mid_stream_is_settled_by_real_usage():
    with Playbook() as book:
        book.arrive("a", has_quota=True)
        book.take()
        book.feed(QuotaGranted("a"))
        book.take()
        book.token("b0", "a")
        book.waits()
        book.feed(Failed("a", Fault.MIDSTREAM, 80, 7))
        book.expect(SettleQuota("a", 87))


def test_a_failed_dispatch_pays_for_one_retry():
    with Playbook() as book:
        book.arrive("a")
        book.take()
        book.feed(Failed("a", Fault.CONNECTION))
        book.waits()
        book.fill(1)
        book.arrive("waiting")
        book.waits()
        book.arrive("again", is_retry=True)
        book.waits()


def test_a_busy_engine_gets_its_ticket_back_to_the_head_once():
    with Playbook(seats_policy(2)) as book:
        book.arrive("a")
        book.take()
        book.arrive("b")
        book.take()
        book.arrive("c")
        book.waits()
        book.feed(PushedBack("b", None, 429))
        book.waits()  # the backend rests for 1 s
        assert book.wakes[-1] <= 1.0
        book.tick(at=0.99)
        book.waits()
        book.tick(at=1.0)
        book.sent(("b", "b0"))
        book.feed(PushedBack("b", 90.0, 503))
        eviction = book.shed("b", ShedReason.ENGINE_BUSY)
        assert isinstance(eviction, Evict)
        book.finish("a")
        book.waits()
        book.tick(at=30.9)
        book.waits()
        book.tick(at=31.0)  # 90 s were asked for: 30 s is the most
        book.sent(("c", "b0"))


@pytest.mark.parametrize("asked", [float("nan"), -3.0])
def test_a_nonsense_pause_is_one_second(asked):
    with Playbook() as book:
        book.arrive("a")
        book.take()
        book.feed(PushedBack("a", asked, 429))
        book.waits()
        book.tick(at=1.0)
        book.sent(("a", "b0"))


def test_a_busy_engine_refunds_what_it_turned_away():
    with Playbook() as book:
        book.arrive("a", has_quota=True)
        book.take()
        book.feed(QuotaGranted("a"))
        book.take()
        book.feed(PushedBack("a", 0.0, 429))
        book.sent(("a", "b0"))
        book.feed(PushedBack("a", 0.0, 429))
        refund, eviction = book.take()
        assert (refund, eviction.reason) == (RefundQuota("a"), ShedReason.ENGINE_BUSY)
        assert balanced(book)


def test_a_ticket_that_is_pushed_back_past_its_deadline_is_evicted():
    with Playbook(seats_policy(1, 1)) as book:
        book.arrive("a", deadline_at=2.0)
        book.sent(("a", "b0"))
        book.now = 2.0
        book.feed(PushedBack("a", None, 429))
        book.shed("a", ShedReason.DEADLINE)


def test_real_usage_settles_the_fair_queue():
    with Playbook() as book:
        book.fill(1)
        for name in ("cheap-0", "cheap-1", "dear-0", "dear-1"):
            book.arrive(name, tenant=name.split("-")[0], max_output_tokens=100)
            book.waits()
        book.finish("full-0")
        book.sent(("cheap-0", "b0"))
        book.finish("cheap-0", 100, 100)
        book.sent(("dear-0", "b0"))
        book.finish("dear-0", 100, 400)  # said 100, took 400
        book.sent(("cheap-1", "b0"))


# -- events that mean nothing


@pytest.mark.parametrize(
    "event",
    [
        QuotaDenied("ghost", ShedReason.RATE_LIMITED, None),
        Progress("b0", (("ghost", 1),)),
        Progress("nowhere", (("full-0", 1),)),
        Finished("ghost"),
        Failed("ghost", Fault.MIDSTREAM),
        PushedBack("ghost", None, 429),
        Abandoned("ghost"),
        Finished("waiting"),
        Failed("waiting", Fault.MIDSTREAM),
        PushedBack("waiting", None, 429),
        Progress("b0", (("waiting", 1),)),
        QuotaGranted("waiting"),
        QuotaDenied("waiting", ShedReason.RATE_LIMITED, None),
        Arrived(ticket="full-0", pool="chat", tier=0, tenant="x", prompt_tokens=1),
        Ticked(),
    ],
)
def test_events_for_tickets_that_are_elsewhere_change_nothing(event):
    with Playbook() as book:
        book.fill(1)
        book.arrive("waiting")
        book.waits()
        before = book.gate.view(0.0)
        book.feed(event)
        book.waits()
        assert book.gate.view(0.0) == before


def test_a_clock_that_goes_backwards_stands_still():
    with Playbook(seats_policy(1, tiers=tail_tiers(timeout_s=5.0))) as book:
        book.tick(at=10.0)
        book.arrive("a")
        book.take()
        book.now = 3.0
        book.arrive("b")
        book.waits()
        book.tick(at=14.9)
        book.waits()
        book.tick(at=15.0)
        book.shed("b", ShedReason.QUEUE_TIMEOUT)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_nonsense_weight_counts_as_one(weight):
    with Playbook() as book:
        book.fill(1)
        book.arrive("a", weight=weight)
        book.waits()
        book.finish("full-0")
        book.sent(("a", "b0"))


# -- watermark


def watermark_policy(**fields) -> GatePolicy:
    return seats_policy(100, pool=PoolPolicy(name="chat", watermark=WatermarkPolicy(**fields)))


def telemetry(waiting: int | None, *, running: int | None = 0, age_s: float | None = 0.0) -> BoundsReceived:
    bounds = BackendBounds(
        backend="b0", engine_waiting=waiting, engine_running=running, telemetry_age_s=age_s
    )
    return BoundsReceived(share=1.0, backends=(bounds,))


def test_an_engine_that_queues_gets_nothing_for_a_jittered_moment():
    with Playbook(watermark_policy(safe=5, jitter_s=0.2)) as book:
        book.feed(telemetry(6))
        book.arrive("a")
        book.waits()
        held_until = book.wakes[-1]
        assert 0.0 < held_until <= 0.2
        book.feed(telemetry(5))
        book.waits()
        book.tick(at=0.2)
        book.sent(("a", "b0"))


def test_an_engines_queue_grows_with_what_was_sent_since_the_scrape():
    with Playbook(watermark_policy(safe=5)) as book:
        book.feed(telemetry(3))
        for index in range(3):
            book.arrive(f"a{index}")
            book.sent((f"a{index}", "b0"))
        book.arrive("b")
        book.waits()


def test_stale_telemetry_counts_what_is_in_flight_beyond_the_running():
    with Playbook(watermark_policy(safe=5)) as book:
        book.feed(telemetry(50, running=0, age_s=4.0))
        for index in range(6):
            book.arrive(f"a{index}")
            book.sent((f"a{index}", "b0"))
        book.arrive("b")
        book.waits()


def test_absent_telemetry_is_neither_saturated_nor_idle():
    with Playbook(watermark_policy(safe=0, maximum=3)) as book:
        for index in range(8):
            book.arrive(f"a{index}")
            book.sent((f"a{index}", "b0"))


def test_too_much_waiting_in_total_is_refused_at_once():
    with Playbook(watermark_policy(safe=5, maximum=10)) as book:
        book.feed(telemetry(10))
        book.arrive("a")
        book.waits()
        book.arrive("b")
        refusal = book.shed("b", ShedReason.WATERMARK)
        assert (refusal.decision.value, refusal.decision.bound) == (11, 10)


# -- breakers of a backend


def breaker_policy(*seats: int, **fields) -> GatePolicy:
    fields = {"min_requests": 2, "open_s": 5.0, "ramp_s": 10.0} | fields
    return seats_policy(*seats, pool=PoolPolicy(name="chat", breaker=BreakerPolicy(**fields)))


def break_backend(book: Playbook) -> BreakerChanged:
    for name in ("x", "y"):
        book.arrive(name)
        book.take()
        book.feed(Failed(name, Fault.CONNECTION))
        said = book.take()
    [change] = said
    return change


def test_a_broken_backend_is_skipped_and_probed():
    with Playbook(breaker_policy(4)) as book:
        change = break_backend(book)
        assert (change.before, change.after, change.why) == (
            BreakerState.CLOSED,
            BreakerState.OPEN,
            "connection",
        )
        book.arrive("a")
        book.shed("a", ShedReason.BREAKER_OPEN)
        assert book.wakes[-1] <= 5.0
        book.tick(at=5.0)
        [change] = book.take()
        assert (change.after, change.why) == (BreakerState.HALF_OPEN, "time")
        book.arrive("probe")
        book.sent(("probe", "b0"))
        book.arrive("hasty")
        book.shed("hasty", ShedReason.BREAKER_OPEN)  # nobody queues behind a probe
        book.token("b0", "probe")
        [change] = book.take()
        assert (change.after, change.why) == (BreakerState.CLOSED, "probe answered")
        book.arrive("b")
        book.waits()  # ramping up: a tenth of four seats is one
        book.tick(at=10.0)
        book.sent(("b", "b0"))


def test_a_probe_that_is_answered_at_one_go_closes_the_breaker():
    with Playbook(breaker_policy(4)) as book:
        break_backend(book)
        book.tick(at=5.0)
        book.take()
        book.arrive("probe")
        book.sent(("probe", "b0"))
        book.finish("probe", 10, 3)
        [change] = book.take()
        assert (change.after, change.why) == (BreakerState.CLOSED, "answered in full")


def test_the_other_backend_takes_over():
    with Playbook(breaker_policy(1, 1)) as book:
        for name in ("x", "y", "z"):
            book.arrive(name)
            [dispatch] = book.take()
            assert dispatch.backend in {"b0", "b1"}
            book.feed(Failed(name, Fault.CONNECTION))
            book.take()
        states = {gauge.backend: gauge.breaker for gauge in book.gate.view(0.0).backends}
        [healthy] = [name for name, state in states.items() if state is BreakerState.CLOSED]
        book.arrive("a")
        book.sent(("a", healthy))


def test_a_ticket_avoids_the_backend_that_failed_it_while_another_serves():
    with Playbook(breaker_policy(1, 1)) as book:
        book.arrive("a", avoid="b0")
        book.sent(("a", "b1"))
        book.arrive("b", avoid="b0")
        book.waits()  # b0 has a seat; it is not for this one
        book.arrive("c")
        book.waits()  # in its order, behind b
        book.feed(Finished("a", 1, 1))
        assert {(d.ticket, d.backend) for d in book.take()} == {("b", "b1"), ("c", "b0")}


def test_a_ticket_goes_back_to_the_backend_that_failed_it_where_no_other_serves():
    with Playbook(breaker_policy(1)) as book:
        book.arrive("a", avoid="b0")
        book.sent(("a", "b0"))


def test_a_vote_of_all_gateways_opens_a_breaker():
    with Playbook(breaker_policy(1)) as book:
        bounds = BackendBounds(backend="b0", breaker=BreakerState.OPEN)
        book.feed(BoundsReceived(share=1.0, backends=(bounds,)))
        book.expect(BreakerChanged("b0", BreakerState.CLOSED, BreakerState.OPEN, "voted"))


# -- bounds


def test_a_share_divides_queue_sizes_but_leaves_one_place():
    with Playbook(seats_policy(1, tiers=tail_tiers(size=4))) as book:
        book.fill(1)
        book.feed(BoundsReceived(share=0.5, backends=()))
        book.waits()
        for name in "ab":
            book.arrive(name)
            book.waits()
        book.arrive("c")
        book.shed("c", ShedReason.QUEUE_FULL)
        book.feed(BoundsReceived(share=float("nan"), backends=()))  # ignored
        book.waits()
        book.feed(BoundsReceived(share=0.0, backends=()))
        book.waits()
        book.arrive("d", tier=0)
        book.waits()


def test_without_bounds_a_gateway_is_one_of_those_configured():
    policy = replace(seats_policy(8, tiers=tail_tiers(size=4)), gateways=4)
    with Playbook(policy) as book:
        book.fill(2)
        book.arrive("a")
        book.waits()
        book.arrive("b")
        book.shed("b", ShedReason.QUEUE_FULL)


def test_credits_of_a_tenant_can_be_held_back():
    with Playbook(seats_policy(1)) as book:
        book.feed(BoundsReceived(share=1.0, backends=(), retry_factors=(("acme", 0.0, 100.0),)))
        book.waits()
        book.arrive("a")
        book.take()
        book.feed(Failed("a", Fault.CONNECTION))
        book.waits()
        book.fill(1)
        book.arrive("waiting")
        book.waits()
        book.arrive("again", is_retry=True)
        book.shed("again", ShedReason.RETRY_BUDGET)


# -- overrides


def override(book: Playbook, kind: OverrideKind, target: str, value: str, expires_at: float = 60.0) -> None:
    book.feed(OverridesReceived((Override(kind=kind, target=target, value=value, expires_at=expires_at),)))


@pytest.mark.parametrize("kind", [OverrideKind.BACKEND_DISABLE, OverrideKind.BACKEND_DRAIN])
def test_an_override_takes_a_backend_out_until_it_expires(kind):
    with Playbook(seats_policy(1, 1)) as book:
        override(book, kind, "b0", "on", expires_at=2.0)
        book.waits()
        book.arrive("a")
        book.sent(("a", "b1"))
        book.arrive("b")
        book.waits()
        assert book.wakes[-1] <= 2.0
        book.tick(at=2.0)
        book.sent(("b", "b0"))


def test_a_forced_breaker_opens_and_expires():
    with Playbook() as book:
        override(book, OverrideKind.BREAKER, "b0", "open", expires_at=3.0)
        book.expect(BreakerChanged("b0", BreakerState.CLOSED, BreakerState.FORCED_OPEN, "override"))
        book.arrive("a")
        book.shed("a", ShedReason.BREAKER_OPEN)
        book.now = 3.0
        book.arrive("b")
        change, dispatch = book.take()
        assert (change.after, dispatch.ticket) == (BreakerState.CLOSED, "b")


def test_a_breaker_forced_closed_lets_through_whatever_fails():
    with Playbook(breaker_policy(1)) as book:
        override(book, OverrideKind.BREAKER, "b0", "closed")
        book.take()
        for index in range(10):
            book.arrive(f"a{index}")
            book.sent((f"a{index}", "b0"))
            book.feed(Failed(f"a{index}", Fault.CONNECTION))
            book.waits()


def test_a_pinned_limit_holds_until_it_is_released():
    with Playbook(seats_policy(4)) as book:
        override(book, OverrideKind.LIMIT_PIN, "b0", "1")
        book.waits()
        book.arrive("a")
        book.sent(("a", "b0"))
        book.arrive("b")
        book.waits()
        book.feed(OverridesReceived(()))
        book.sent(("b", "b0"))


def test_a_tenants_weight_can_be_raised_for_a_while_also_for_what_waits():
    with Playbook() as book:
        book.fill(1)
        for index in range(10):
            for tenant in ("vip", "plain"):
                book.arrive(f"{tenant}-{index}", tenant=tenant, max_output_tokens=0)
                book.waits()
        override(book, OverrideKind.TENANT_WEIGHT, "vip", "4")
        book.waits()
        current, order = "full-0", []
        for _ in range(10):
            [dispatch] = book.finish(current, 100, 0)
            book.take()
            current = dispatch.ticket
            order.append(current.split("-")[0])
        assert order.count("vip") == 8


def test_a_throttled_tier_lets_an_even_part_pass():
    with Playbook(seats_policy(100)) as book:
        override(book, OverrideKind.TIER_THROTTLE, "2", "0.25")
        book.waits()
        passed = 0
        for index in range(20):
            book.arrive(f"a{index}", tier=2)
            [command] = book.take()
            passed += isinstance(command, Dispatch)
            if isinstance(command, Refuse):
                assert (command.reason, command.decision.rule) == (ShedReason.FAST_REJECT, "tier-throttle")
        assert passed == 5
        override(book, OverrideKind.TIER_THROTTLE, "2", "0.25")  # said again: the sum goes on
        book.waits()
        book.arrive("agent", tier=1)
        book.sent(("agent", "b0"))


def test_a_throttled_ticket_passes_once_not_once_per_judgement():
    with Playbook(seats_policy(100)) as book:
        override(book, OverrideKind.TIER_THROTTLE, "1", "0.5")
        book.waits()
        book.arrive("a")
        book.shed("a", ShedReason.FAST_REJECT)
        book.arrive("b", has_quota=True)
        book.take()
        book.feed(QuotaGranted("b"))
        book.sent(("b", "b0"))


def test_a_pool_can_be_sent_to_its_fallback():
    with Playbook() as book:
        override(book, OverrideKind.POOL_FALLBACK, "chat", "on")
        book.waits()
        book.arrive("a")
        assert book.shed("a", ShedReason.BREAKER_OPEN).decision.rule == "pool-fallback"
        assert book.gate.pressure("chat", 1, 0.0) == 1.0


@pytest.mark.parametrize(
    ("kind", "target", "value"),
    [
        (OverrideKind.LIMIT_PIN, "b0", "many"),
        (OverrideKind.LIMIT_PIN, "b0", "-1"),
        (OverrideKind.LIMIT_PIN, "b0", "nan"),
        (OverrideKind.LIMIT_PIN, "nowhere", "1"),
        (OverrideKind.BREAKER, "b0", "half-open"),
        (OverrideKind.TENANT_WEIGHT, "acme", "0"),
        (OverrideKind.TIER_THROTTLE, "first", "0"),
        (OverrideKind.TIER_THROTTLE, "1", "2"),
        (OverrideKind.BACKEND_DRAIN, "nowhere", "on"),
        (OverrideKind.POOL_FALLBACK, "nowhere", "on"),
    ],
)
def test_an_override_that_means_nothing_changes_nothing(kind, target, value):
    with Playbook(seats_policy(2)) as book:
        override(book, kind, target, value)
        book.waits()
        for name in "ab":
            book.arrive(name)
            book.sent((name, "b0"))


# -- configuration


def test_a_bad_policy_is_refused_whole():
    policy = seats_policy(1)
    bad = replace(policy, backends=(replace(policy.backends[0], weight=-1.0),))
    with pytest.raises(ValueError, match="weight"):
        Gate(bad, now=0.0, dice=chance(1).random)
    with Playbook(policy) as book:
        book.fill(1)
        before = book.gate.view(0.0)
        with pytest.raises(ValueError, match="weight"):
            book.feed(Configured(bad))
        assert book.gate.view(0.0) == before


def test_a_new_backend_starts_slowly():
    with Playbook(seats_policy(4)) as book:
        names = book.fill(4)
        for index in range(8):
            book.arrive(f"a{index}")
            book.waits()
        book.feed(Configured(seats_policy(4, 4)))
        book.sent(("a0", "b1"))
        book.tick(at=5.0)
        book.sent(("a1", "b1"))
        book.tick(at=10.0)
        book.sent(("a2", "b1"), ("a3", "b1"))
        assert names
        assert balanced(book)


def test_the_backends_of_the_first_snapshot_are_not_new():
    served = seats_policy(4)
    with Playbook(replace(served, pools=(), backends=())) as book:  # as a gateway process starts
        book.feed(Configured(served))
        assert len(book.fill(4)) == 4
        assert balanced(book)


def test_a_removed_backend_finishes_what_it_carries():
    with Playbook(seats_policy(1, 1)) as book:
        book.arrive("a")
        book.sent(("a", "b0"))
        book.arrive("b")
        book.sent(("b", "b1"))
        book.arrive("c")
        book.waits()
        book.feed(Configured(seats_policy(1)))
        book.waits()
        assert len(book.gate.view(0.0).backends) == 2
        book.finish("b")
        book.waits()
        assert [gauge.backend for gauge in book.gate.view(0.0).backends] == ["b0"]
        book.finish("a")
        book.sent(("c", "b0"))
        assert balanced(book)


def test_a_removed_backend_that_comes_back_keeps_its_count():
    with Playbook(seats_policy(1, 1)) as book:
        book.arrive("a")
        book.take()
        book.arrive("b")
        book.take()
        book.feed(Configured(seats_policy(1)))
        book.waits()
        book.feed(Configured(seats_policy(1, 1)))
        book.waits()
        assert [gauge.in_flight for gauge in book.gate.view(0.0).backends] == [1, 1]
        assert balanced(book)


def test_an_idle_backend_that_is_removed_is_gone():
    with Playbook(seats_policy(1, 1)) as book:
        book.feed(Configured(seats_policy(1)))
        book.waits()
        assert len(book.gate.view(0.0).backends) == 1


def test_a_removed_pool_evicts_what_waits_and_ends_what_is_in_flight():
    other = seats_policy(1, pool=PoolPolicy(name="other"))
    other = replace(other, backends=(replace(other.backends[0], name="o0"),))
    with Playbook() as book:
        book.arrive("a")
        book.take()
        book.arrive("b")
        book.waits()
        book.arrive("c", has_quota=True)
        book.take()
        book.feed(Configured(other))
        book.shed("b", ShedReason.NO_BACKEND)
        book.arrive("d")
        book.shed("d", ShedReason.NO_BACKEND)
        book.feed(QuotaGranted("c"))
        refund, refusal = book.take()
        assert (refund, refusal.reason) == (RefundQuota("c"), ShedReason.NO_BACKEND)
        assert {queue.pool for queue in book.gate.view(0.0).queues} == {"other"}
        book.finish("a")
        book.waits()
        assert balanced(book)
        book.feed(Configured(other))
        book.waits()
        assert book.gate.pressure("chat", 0, 0.0) == 1.0


def test_a_busy_engine_of_a_removed_pool_turns_its_ticket_away():
    other = seats_policy(1, pool=PoolPolicy(name="other"))
    other = replace(other, backends=(replace(other.backends[0], name="o0"),))
    with Playbook() as book:
        book.arrive("a")
        book.take()
        book.feed(Configured(other))
        book.waits()
        book.feed(PushedBack("a", None, 429))
        book.shed("a", ShedReason.ENGINE_BUSY)
        assert balanced(book)


def test_a_backend_that_moves_to_another_pool_keeps_its_ledger():
    two = seats_policy(2)
    policy = replace(two, pools=(*two.pools, replace(two.pools[0], name="other")))
    moved = replace(policy, backends=(replace(policy.backends[0], pool="other"),))
    with Playbook(policy) as book:
        book.arrive("a")
        book.sent(("a", "b0"))
        book.feed(Configured(moved))
        book.waits()
        book.arrive("b", pool="other")
        book.waits()  # a moved backend is new there
        gone = replace(
            moved, pools=(policy.pools[0],), backends=(replace(moved.backends[0], name="n", pool="chat"),)
        )
        book.feed(Configured(gone))
        book.shed("b", ShedReason.NO_BACKEND)
        book.finish("a")
        book.waits()
        assert balanced(book)


def test_a_new_limit_carries_what_is_in_flight():
    with Playbook(seats_policy(2)) as book:
        book.fill(2)
        book.token("b0", "full-0")
        book.waits()
        book.feed(Configured(seats_policy(3)))
        book.waits()
        assert book.gate.view(0.0).backends[0].in_flight == 2
        assert balanced(book)
        book.arrive("a")
        book.sent(("a", "b0"))
        book.finish("full-0")
        book.waits()
        assert balanced(book)


def test_tiers_that_vanish_go_on_as_the_lowest_one():
    policy = seats_policy(1)
    with Playbook(policy) as book:
        book.arrive("in-flight", tier=2)
        book.take()
        book.arrive("batch-0", tier=2, tenant="b")
        book.waits()
        book.arrive("batch-1", tier=2, tenant="b")
        book.waits()
        book.arrive("agent", tier=1)
        book.waits()
        book.feed(Configured(replace(policy, tiers=policy.tiers[:2])))
        book.waits()
        assert [(q.tier, q.waiting) for q in book.gate.view(0.0).queues] == [(0, 0), (1, 3)]
        assert balanced(book)
        book.finish("in-flight")
        [dispatch] = book.take()
        book.feed(Configured(policy))  # and back again
        book.waits()
        book.feed(Abandoned("batch-1"))
        book.waits()
        book.finish(dispatch.ticket)
        assert len(book.take()) == 1
        assert balanced(book)


def test_a_new_breaker_policy_applies_to_a_closed_breaker():
    with Playbook(breaker_policy(4)) as book:
        book.feed(Configured(breaker_policy(4, min_requests=3)))
        book.waits()
        for name in ("x", "y"):
            book.arrive(name)
            book.take()
            book.feed(Failed(name, Fault.CONNECTION))
            book.waits()


def test_a_new_breaker_policy_leaves_an_open_breaker_open():
    with Playbook(breaker_policy(4)) as book:
        break_backend(book)
        book.feed(Configured(breaker_policy(4, min_requests=3)))
        book.waits()
        book.arrive("a")
        book.shed("a", ShedReason.BREAKER_OPEN)


def test_an_enabled_backend_is_tried_again_slowly():
    policy = seats_policy(1, 4)
    off = replace(policy, backends=(policy.backends[0], replace(policy.backends[1], enabled=False)))
    with Playbook(off) as book:
        book.fill(1)
        for name in "ab":
            book.arrive(name)
            book.waits()
        book.feed(Configured(policy))
        book.sent(("a", "b1"))


def test_a_cold_backend_does_not_fill_all_seats_with_the_lowest_tier():
    with Playbook(seats_policy(40)) as book:
        for index in range(40):
            book.arrive(f"b{index}", tier=2)
            book.take()
        assert book.gate.view(0.0).backends[0].in_flight == 10
        book.arrive("person", tier=0)
        book.sent(("person", "b0"))
        for step in range(1, 84):
            book.tick(at=step * 0.05)
            book.take()
        assert book.gate.view(book.now).backends[0].in_flight == 40


# -- what is shown, written down and played again


def test_the_view_shows_what_waits_and_what_is_carried():
    with Playbook(seats_policy(1)) as book:
        book.fill(1)
        book.arrive("a", tenant="acme")
        book.waits()
        view = book.gate.view(3.0)
        assert (view.tickets, view.ledger_imbalance, view.draining) == (2, 0, False)
        queue = view.queues[1]
        assert (queue.waiting, queue.oldest_wait_s, queue.waiting_by_tenant) == (1, 3.0, (("acme", 1),))
        backend = view.backends[0]
        assert (backend.in_flight_by_tier, backend.in_flight_by_tenant) == ((1, 0, 0), (("filler", 1),))
        assert book.gate.pressure("chat", 0, 3.0) == 1.0
        assert book.gate.pressure("nowhere", 0, 3.0) == 1.0
        assert "tickets=2 waiting=1" in repr(book.gate)


def test_refusals_and_a_fixed_sample_of_dispatches_are_written_down():
    recorder = Recorder()
    gate = Gate(seats_policy(1000), now=0.0, dice=chance(1).random, recorder=recorder)
    for index in range(900):
        gate.handle(Arrived(ticket=f"t{index}", pool="chat", tier=0, tenant="a", prompt_tokens=1), 0.0)
    assert 1 <= len(recorder) <= 30
    assert all(entry.reason is None and entry.decision.rule == "dispatch" for entry in recorder)
    gate.handle(Arrived(ticket="lost", pool="nowhere", tier=0, tenant="a", prompt_tokens=1), 0.0)
    assert recorder.find("lost").reason is ShedReason.NO_BACKEND


def test_a_tape_plays_the_same_commands_again():
    tape = Tape(10_000)
    dice = tape.dice(chance(7).random)
    policy = seats_policy(2, 2, tiers=default_tiers())
    gate = Gate(policy, now=0.0, dice=dice)
    roll = chance(3)
    said, alive = [], []
    for step in range(3000):
        now = step * 0.02
        if alive and roll.random() < 0.4:
            event = Finished(alive.pop(roll.randrange(len(alive))), 100, roll.randrange(300))
        elif roll.random() < 0.1:
            event = Ticked()
        else:
            event = Arrived(
                ticket=f"t{step}", pool="chat", tier=roll.randrange(3), tenant=f"n{roll.randrange(9)}",
                prompt_tokens=100, is_retry=roll.random() < 0.3,
            )  # fmt: skip
        tape.keep(event, now)
        commands = gate.handle(event, now)
        gate.view(now + 0.005)  # looking changes nothing
        said.append(commands)
        alive.extend(command.ticket for command in commands if isinstance(command, Dispatch))
    assert any(isinstance(command, Refuse) for commands in said for command in commands)
    again = replay(tape, lambda rolls: Gate(policy, now=0.0, dice=rolls).handle)
    assert list(again) == said
