"""The retry budget: a share of the calls, a floor, and what fades."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from gateway.client.budget import RetryBudget


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def withdrawn(budget: RetryBudget, tries: int) -> int:
    return sum(budget.withdraw() for _ in range(tries))


@pytest.mark.parametrize(
    ("calls", "allowed"), [(0, 3), (1, 3), (15, 3), (16, 3), (20, 4), (100, 20), (1000, 200)]
)
def test_retries_are_a_fifth_of_the_calls_but_at_least_the_floor(calls, allowed):
    budget = RetryBudget(clock=Clock())
    for _ in range(calls):
        budget.deposit()
    assert withdrawn(budget, calls + 50) == allowed
    assert not budget.withdraw()


def test_the_floor_comes_back_with_time_and_not_at_once():
    clock = Clock()
    budget = RetryBudget(clock=clock)
    assert withdrawn(budget, 10) == 3
    clock.now += 5
    assert not budget.withdraw()
    clock.now += 300
    assert withdrawn(budget, 10) == 3


def test_old_calls_do_not_pay_for_a_later_storm():
    clock = Clock()
    budget = RetryBudget(clock=clock)
    for _ in range(1000):
        budget.deposit()
    clock.now += 600
    assert withdrawn(budget, 1000) == 3


def test_in_the_long_run_a_backend_that_fails_everything_sees_at_most_a_fifth_more():
    clock = Clock()
    budget = RetryBudget(clock=clock)
    retries = 0
    for _ in range(20_000):
        clock.now += 0.05
        budget.deposit()
        retries += withdrawn(budget, 2)
    assert 0.19 * 20_000 < retries <= 0.2 * 20_000 + 3


def test_a_clock_that_steps_back_gives_nothing():
    clock = Clock()
    budget = RetryBudget(clock=clock)
    withdrawn(budget, 3)
    clock.now -= 1000
    assert not budget.withdraw()


def test_many_threads_take_no_more_than_there_is():
    budget = RetryBudget(clock=Clock())
    for _ in range(1000):
        budget.deposit()
    with ThreadPoolExecutor(8) as threads:
        taken = sum(threads.map(lambda _: withdrawn(budget, 100), range(8)))
    assert taken == 200


@pytest.mark.parametrize(
    ("name", "value"),
    [("ratio", -0.1), ("ratio", 1.1), ("floor", -1), ("floor", float("nan")), ("window_s", 0)],
)
def test_a_value_out_of_range_is_named(name, value):
    with pytest.raises(ValueError, match=f"^{name}: "):
        RetryBudget(**{name: value})


def test_the_balance_is_what_can_still_be_withdrawn():
    budget = RetryBudget(clock=Clock())
    budget.withdraw()
    assert budget.balance == pytest.approx(2)
