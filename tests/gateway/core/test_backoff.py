"""Slots and credits."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.backoff import Credits, Pacer, RetryLedger, exact_retry_after, retry_after


@given(st.floats(0, 1e6), st.floats(0, 60))
def test_nobody_is_told_to_come_before_his_slot(now, ahead):
    answer = retry_after(now + ahead, now)
    assert 1 <= answer.after_s <= 60
    assert isinstance(answer.after_s, int)
    assert now + answer.after_s >= answer.at or answer.after_s == 60


@pytest.mark.parametrize(
    ("at", "after_s"), [(10.0, 1), (10.2, 1), (11.0, 1), (11.001, 2), (70.0, 60), (9.0, 1)]
)
def test_a_refill_is_rounded_up_to_whole_seconds(at, after_s):
    answer = exact_retry_after(at, 10.0)
    assert answer is not None
    assert answer.after_s == after_s
    assert answer.at == max(at, 10.0)


@pytest.mark.parametrize("at", [None, 70.001, math.inf, math.nan])
def test_a_far_refill_has_no_answer(at):
    assert exact_retry_after(at, 10.0) is None


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 5), st.floats(0, 1, exclude_max=True)), max_size=60))
def test_slots_increase_until_the_cap_and_then_spread_over_its_upper_half(refusals):
    pacer, now, last = Pacer(), 100.0, 0.0
    for excess, step, roll in refusals:
        is_full = max(now + max(1.0, excess), pacer.clock) > now + 30.0
        slot = pacer.slot(excess, step, 30, now, roll)
        assert now + 1.0 <= slot <= now + 30.0
        if is_full:
            assert slot >= now + 15.0
        else:
            assert slot > last
            last = slot


def test_slots_are_apart_by_the_time_that_the_work_takes():
    pacer = Pacer()
    slots = [pacer.slot(0.0, 2.0, 60, 0.0, 0.5) for _ in range(4)]
    assert slots == pytest.approx([1.0, 2.4, 3.8, 5.2])


def test_an_expected_wait_above_the_budget_moves_the_first_slot():
    assert Pacer().slot(7.5, 1.0, 60, 0.0, 0.5) == 7.5


def test_without_a_rate_slots_still_differ():
    pacer = Pacer()
    assert pacer.slot(0.0, 0.0, 60, 0.0, 0.5) < pacer.slot(0.0, 0.0, 60, 0.0, 0.5)


def test_a_credit_is_valid_from_its_slot_for_a_minute():
    account = Credits()
    account.grant(1.0, at=10.0)
    assert not account.take(9.9)
    assert account.take(10.0)
    assert not account.take(10.0)
    account.grant(1.0, at=10.0)
    assert not account.take(70.1)
    assert account.is_empty(70.1)


def test_fifths_add_up_to_a_credit():
    account = Credits()
    for index in range(5):
        assert not account.take(float(index))
        account.grant(0.2, at=float(index))
    assert account.take(4.0)
    assert not account.take(4.0)


def test_the_oldest_credit_goes_first_and_may_be_used_in_part():
    account = Credits()
    account.grant(1.5, at=0.0)
    account.grant(1.0, at=20.0)
    assert account.take(20.0)
    assert account.take(20.0)  # .5 of the old one, .5 of the new one
    assert not account.take(20.0)
    assert not account.is_empty(20.0)


def test_credits_to_come_are_not_empty():
    account = Credits()
    account.grant(1.0, at=50.0)
    assert not account.is_empty(0.0)


def test_credits_belong_to_a_tenant_and_a_tier():
    ledger = RetryLedger()
    ledger.grant("ada", 1, 1.0, at=0.0)
    assert not ledger.take("ada", 2, 0.0)
    assert not ledger.take("bob", 1, 0.0)
    assert ledger.take("ada", 1, 0.0)


def test_new_credits_of_a_tenant_can_be_multiplied_for_a_while():
    ledger = RetryLedger()
    ledger.hold_back((("ada", 0.5, 10.0), ("bob", 0.0, 10.0), ("cyd", 7.0, 10.0)))
    ledger.grant("ada", 1, 1.0, at=0.0)
    ledger.grant("bob", 1, 1.0, at=0.0)
    ledger.grant("cyd", 1, 1.0, at=0.0)  # a factor above 1 is nonsense
    ledger.grant("dan", 1, 1.0, at=0.0)
    assert not ledger.take("ada", 1, 0.0)
    assert len(ledger) == 3
    assert ledger.take("cyd", 1, 0.0)
    ledger.grant("ada", 1, 1.0, at=10.0)
    assert ledger.take("ada", 1, 10.0)


def test_entries_that_ran_out_are_dropped_a_few_at_a_time():
    ledger = RetryLedger()
    for index in range(10):
        ledger.grant(f"t{index}", 1, 1.0, at=0.0)
    ledger.sweep(30.0)
    assert len(ledger) == 10
    ledger.sweep(61.0)
    assert len(ledger) == 6
    for _ in range(3):
        ledger.sweep(61.0)
    assert len(ledger) == 0
    ledger.sweep(61.0)
