"""What a record was worth, on records made by hand."""

import pytest

from gateway.simulation import measures
from gateway.simulation.profiles import GPU
from gateway.simulation.runner import EngineTotals, Record, Setup
from gateway.simulation.scenarios import policies
from gateway.simulation.traffic import Phase, Request

WINDOW = (10.0, 20.0)


def request(number, tier=0, *, arrived=10.0, decided=12.0, ttft=0.5, tpot=0.01, tenant="p0-0"):
    made = Request(number, arrived, tier, tenant)
    made.prompt_tokens, made.output_tokens = 200, 90
    made.decided_at, made.ttft_s, made.tpot_s = decided, ttft, tpot
    made.attempts = 1
    return made


def record(*requests, **changes):
    setup = Setup(
        profile=GPU, policy=policies.valve(GPU), phases=(Phase(0.0, (1.0, 1.0, 1.0)),), until_s=30.0, seed=1
    )
    return Record(setup, list(requests), **changes)


def totals(at, **counts):
    given = dict.fromkeys(
        ("prompt_tokens", "generated_tokens", "recomputed_tokens", "preemptions", "finished"), 0
    )
    return EngineTotals(at_s=at, **{**given, **counts})


def test_goodput_is_output_and_a_part_of_the_prompt_of_what_was_in_objective():
    mixed = record(request(0), request(1, ttft=1.5), request(2, tpot=0.2), request(3, ttft=None))
    assert measures.goodput(mixed, WINDOW) == pytest.approx((90 + 200 / 20) / 10)


def test_only_what_was_decided_in_the_window_counts():
    outside = record(request(0, decided=9.9), request(1, decided=20.0), request(2, decided=None))
    assert measures.goodput(outside, WINDOW) == 0.0
    assert list(measures.decided(outside, WINDOW)) == []


def test_goodput_per_second_sums_to_goodput():
    some = record(request(0, decided=10.0), request(1, decided=15.5), request(2, decided=19.99))
    series = measures.goodput_per_second(some, WINDOW)
    assert series == [100, 0, 0, 0, 0, 100, 0, 0, 0, 100]
    assert sum(series) / 10 == measures.goodput(some, WINDOW)


def test_offered_counts_arrivals_whatever_became_of_them():
    some = record(request(0, arrived=10.5, ttft=None), request(1, arrived=9.0))
    assert measures.offered_per_second(some, WINDOW) == [100] + [0] * 9


def test_achievable_is_bounded_by_capacity_and_by_what_is_wanted():
    assert measures.achievable([5, 50, 5], [10, 10, 10], carry_s=0) == 20
    assert measures.achievable([5, 50, 5], [10, 10, 10], carry_s=1) == 25
    assert measures.achievable([100, 0, 0, 0], [10] * 4, carry_s=2) == 30
    assert measures.achievable([], []) == 0


def test_in_objective_and_answered_are_parts_of_the_tiers_requests():
    mixed = record(request(0), request(1, ttft=1.5), request(2, ttft=None), request(3, tier=1))
    assert measures.in_objective(mixed, WINDOW) == pytest.approx(1 / 3)
    assert measures.answered(mixed, WINDOW) == pytest.approx(2 / 3)
    assert measures.in_objective(mixed, WINDOW, 2) == 0.0


def test_times_to_first_token_are_of_answered_requests_in_order():
    some = record(request(0, ttft=0.7), request(1, ttft=0.2), request(2, ttft=None), request(3, tier=1))
    assert measures.ttft(some, WINDOW) == [0.2, 0.7]


def test_a_quantile_is_interpolated():
    assert measures.quantile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert measures.quantile([0.0, 1.0], 0.99) == pytest.approx(0.99)
    assert measures.quantile([], 0.5) == 0.0


def test_preemptions_and_answers_are_differences_over_the_window():
    some = record(totals=[totals(9.0, preemptions=5, finished=5), totals(10.0, preemptions=7, finished=9)])
    some.totals += [totals(20.0, preemptions=17, finished=10), totals(21.0, preemptions=99, finished=99)]
    assert measures.preemptions(some, WINDOW) == 10
    assert measures.finished(some, WINDOW) == 1


def test_useless_work_is_recomputed_or_wasted():
    some = record(
        totals=[totals(10.0), totals(20.0, prompt_tokens=2000, generated_tokens=900, recomputed_tokens=400)],
        wasted=[(9.0, 500.0), (15.0, 80.0)],
    )
    assert measures.useless_work(some, WINDOW) == pytest.approx((20 + 80) / 1000)


def test_jain_is_one_where_all_got_the_same_and_a_part_where_one_takes_all():
    tenants = [f"p1-{number}" for number in range(4)]
    even = record(*(request(n, 1, tenant=tenant) for n, tenant in enumerate(tenants)))
    assert measures.jain(even, WINDOW, 1) == pytest.approx(1.0)
    starved = [request(n, 1, tenant=tenant, ttft=None) for n, tenant in enumerate(tenants[1:])]
    assert measures.jain(record(request(9, 1, tenant="p1-0"), *starved), WINDOW, 1) == pytest.approx(0.25)
    assert measures.jain(record(), WINDOW, 1) == 0.0


def test_a_reaction_is_the_time_until_the_window_shrinks():
    windows = [(at / 100, 100.0 if at < 530 else 80.0) for at in range(1000)]
    assert measures.reactions(windows, [5.0]) == [pytest.approx(0.3)]
    assert measures.reactions(windows, [2.5]) == [2.0], "never in time counts as two seconds"


def test_false_alarms_are_the_time_spent_far_below_the_median():
    windows = [(at / 10, 60.0 if 120 <= at < 130 else 100.0) for at in range(300)]
    assert measures.false_alarms(windows, WINDOW) == pytest.approx(0.1)


def test_recovery_is_the_first_second_from_which_it_stays():
    assert measures.recovery_s([10, 10, 90, 90, 90], 100.0) == 2
    assert measures.recovery_s([100, 100, 100], 100.0) == 0
    assert measures.recovery_s([0, 0, 0, 0], 100.0) == 4
