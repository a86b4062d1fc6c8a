"""What the engine's steps tell, number by number."""

import pytest

from gateway.core.valve.pace import Pace

CHUNK = 2048
COST = 0.25 / CHUNK


def pace_of(step_s=0.02, n=4, samples=60, start=0.0):
    """A pace that knows its decode step."""
    pace = Pace(CHUNK, 0.25, start)
    now = start
    for _ in range(samples):
        now += step_s
        pace.chunk(n, 0, now, was_pending=False, lagged=False)
        pace.settle(0)
    return pace, now


def end_step(pace, now, *, n=4, fresh=0, pending=0, was_pending=False, lagged=False):
    pace.chunk(n, fresh, now, was_pending=was_pending, lagged=lagged)
    pace.settle(pending)


def with_prefills(pace, now, count, cost):
    for _ in range(count):
        pace.sent(1000, now, is_idle=False)
        now += 0.02 + 1000 * cost
        end_step(pace, now, fresh=1000)
    return now


def test_a_cold_engine_is_assumed_to_fill_the_window_with_one_chunk():
    pace = Pace(CHUNK, 0.25, 0.0)
    assert pace.prefill_cost == COST
    assert pace.prefill_rate(0) == pytest.approx(CHUNK / 0.25)
    assert (pace.slow, pace.tpot.value, pace.reference.mean) == (1.0, None, None)


def test_decode_only_steps_teach_the_reference_and_the_time_per_token():
    pace, _ = pace_of(0.02)
    assert pace.reference.step(4) == pytest.approx(0.02)
    assert pace.tpot.value == pytest.approx(0.02)
    assert pace.slow == pytest.approx(1.0)


def test_a_step_three_times_too_long_is_slow_at_once():
    pace, now = pace_of(0.02)
    end_step(pace, now + 0.06)
    assert pace.slow == pytest.approx(2.0)
    assert pace.slow_now(4, 4, now + 0.06) == pytest.approx(2.0)


def test_one_sample_counts_as_at_most_ten_times_slow():
    pace, now = pace_of(0.02)
    end_step(pace, now + 60.0)
    assert pace.slow == pytest.approx(0.5 + 5.0)


def test_the_reference_is_frozen_while_slow_and_only_for_thirty_seconds():
    pace, now = pace_of(0.02)
    for _ in range(400):  # 24 s
        now += 0.06
        end_step(pace, now)
    assert pace.slow > 2.5
    assert pace.reference.step(4) == pytest.approx(0.02, rel=0.05)
    for _ in range(400):
        now += 0.06
        end_step(pace, now)
    assert pace.reference.step(4) > 0.05
    assert pace.slow < 1.5


def test_a_slow_reference_still_learns_from_faster_samples_and_unseen_batches():
    pace, now = pace_of(0.02)
    for _ in range(3):
        now += 0.06
        end_step(pace, now)
    frozen = pace.reference.mean
    now += 0.019
    end_step(pace, now)  # below the prediction
    assert pace.reference.mean < frozen
    for _ in range(3):
        now += 0.06
        end_step(pace, now)
    frozen = pace.reference.mean
    end_step(pace, now + 0.06, n=7)  # above 1.25 * 4 + 1
    assert pace.reference.mean > frozen


def test_the_prefill_in_a_step_is_what_was_sent_when_it_began():
    pace, now = pace_of(0.02)
    pace.sent(1000, now, is_idle=False)
    assert pace.todo == 1000
    end_step(pace, now + 0.02, pending=1000, was_pending=True)  # its prompt came too late for this step
    assert pace.slow == pytest.approx(1.0)
    assert pace.todo == 1000
    end_step(pace, now + 0.04 + 1000 * COST, was_pending=True)
    assert pace.slow == pytest.approx(1.0)
    assert pace.todo == 0


def test_a_prompt_sent_and_answered_within_a_step_counts_as_its_prefill():
    pace, now = pace_of(0.02)
    pace.sent(1000, now, is_idle=False)
    end_step(pace, now + 0.02 + 1000 * COST, fresh=1000)
    assert pace.slow == pytest.approx(1.0)
    assert pace.todo == 0


def test_a_long_prompt_is_done_chunk_by_chunk():
    pace, now = pace_of(0.02)
    pace.sent(5000, now, is_idle=True)
    for left in (5000 - CHUNK, 5000 - 2 * CHUNK, 0):
        now += 0.1
        end_step(pace, now, pending=5000 if left else 0, was_pending=True)
        assert pace.todo == left


def test_what_is_left_to_compute_is_never_more_than_what_is_pending():
    pace, now = pace_of(0.02)
    pace.sent(5000, now, is_idle=True)
    pace.left(700)
    assert pace.todo == 700


def test_the_first_prompt_of_an_idle_engine_starts_its_clock():
    pace, now = pace_of(0.02)
    assert pace.sent(1000, now + 30.0, is_idle=True) == -1
    end_step(pace, now + 30.02 + 1000 * COST, was_pending=True)
    assert pace.slow == pytest.approx(1.0)


def test_prefill_cost_follows_the_time_beyond_the_decode_step():
    pace, now = pace_of(0.02)
    with_prefills(pace, now, 200, 30e-6)
    assert pace.prefill_cost == pytest.approx(30e-6, rel=0.01)
    assert pace.prefill_rate(4) == pytest.approx(CHUNK / (0.02 + CHUNK * 30e-6), rel=0.01)


def test_the_first_eight_prefill_samples_are_averaged_with_the_start():
    pace, now = pace_of(0.02)
    now = with_prefills(pace, now, 1, 30e-6)
    assert pace.prefill_cost == pytest.approx((COST + 30e-6) / 2)
    with_prefills(pace, now, 7, 30e-6)
    assert pace.prefill_cost == pytest.approx((COST + 8 * 30e-6) / 9)


def test_a_later_prefill_sample_weighs_a_twentieth():
    pace, now = pace_of(0.02)
    now = with_prefills(pace, now, 20, COST)
    with_prefills(pace, now, 1, 2 * COST)
    assert pace.prefill_cost == pytest.approx(1.05 * COST)


def test_a_small_prefill_does_not_teach_the_cost():
    pace, now = pace_of(0.02)
    pace.sent(CHUNK // 8 - 1, now, is_idle=False)
    end_step(pace, now + 9.0, fresh=CHUNK // 8 - 1)
    assert pace.prefill_cost == COST


def test_a_cost_far_above_its_start_is_learnt_all_the_same():
    """A CPU engine: every step holds prefill, and the start value calls each of them slow."""
    pace, now = pace_of(0.02)
    for _ in range(300):
        pace.sent(CHUNK, now, is_idle=False)
        now += 0.02 + CHUNK * 500e-6
        end_step(pace, now, fresh=CHUNK)
    assert pace.prefill_cost == pytest.approx(500e-6, rel=0.02)
    assert pace.slow == pytest.approx(1.0, rel=0.02)


def test_a_slow_engine_does_not_teach_the_cost():
    pace, now = pace_of(0.02)
    now = with_prefills(pace, now, 20, COST)
    for _ in range(3):
        now += 0.1
        end_step(pace, now)
    before = pace.prefill_cost
    pace.sent(1000, now, is_idle=False)
    end_step(pace, now + 1.0, fresh=1000)
    assert pace.prefill_cost == before


def test_before_any_decode_step_prefill_cost_includes_the_step_and_nothing_is_slow():
    pace = Pace(CHUNK, 0.25, 0.0)
    pace.sent(CHUNK, 0.0, is_idle=True)
    end_step(pace, 2.0, n=0, was_pending=True)
    assert pace.prefill_cost == pytest.approx((COST + 2.0 / CHUNK) / 2)
    assert pace.slow == 1.0
    assert pace.tpot.value is None  # nobody waited for a next token
    assert pace.slow_now(1, 0, 60.0) == 1.0


def test_a_decode_step_beside_a_pending_prefill_is_not_learnt():
    pace = Pace(CHUNK, 0.25, 0.0)
    end_step(pace, 0.5, was_pending=True)
    assert pace.reference.mean is None
    assert pace.tpot.value == 0.5


def test_a_lagged_pass_and_the_interval_after_it_teach_nothing():
    pace, now = pace_of(0.02)
    end_step(pace, now + 5.0, lagged=True)
    end_step(pace, now + 5.001)
    assert pace.slow == pytest.approx(1.0)
    assert pace.tpot.value == pytest.approx(0.02)
    end_step(pace, now + 5.061)
    assert pace.slow == pytest.approx(2.0)


def test_two_passes_at_the_same_instant_teach_nothing():
    pace, now = pace_of(0.02)
    end_step(pace, now)
    assert pace.slow == pytest.approx(1.0)


def test_silence_counts_beyond_one_and_six_tenths_of_the_expected_step():
    pace, now = pace_of(0.02)
    assert pace.slow_now(4, 4, now + 0.0319) == pytest.approx(1.0)
    assert pace.slow_now(4, 4, now + 0.05) == pytest.approx(2.5)
    assert pace.slow_now(0, 0, now + 60.0) == pytest.approx(1.0)


def test_pending_prefill_excuses_silence():
    pace, now = pace_of(0.02)
    pace.sent(10_000, now, is_idle=False)
    assert pace.slow_now(5, 4, now + 0.4) == pytest.approx(1.0)  # expected: .02 + one chunk of .25
    assert pace.slow_now(5, 4, now + 0.54) == pytest.approx(2.0)


def test_measured_slowness_outlasts_a_shorter_silence():
    pace, now = pace_of(0.02)
    end_step(pace, now + 0.2)
    assert pace.slow_now(4, 4, now + 0.2 + 0.04) == pytest.approx(5.5)


@pytest.mark.parametrize(("after", "same"), [(0.0, True), (0.005, True), (0.007, False), (0.02, False)])
def test_a_pass_soon_after_another_belongs_to_the_same_step(after, same):
    pace, now = pace_of(0.02)
    assert pace.is_same_step(4, now + after) is same


def test_steps_that_come_in_bursts_look_neither_fast_nor_slow_nor_silent():
    pace, now = pace_of(0.02)
    for _ in range(100):  # four steps held back and delivered together, 20 ms each on average
        now += 0.08 - 0.0006
        end_step(pace, now)
        for _ in range(3):
            now += 0.0002
            end_step(pace, now)
    assert pace.reference.step(4) == pytest.approx(0.02, rel=0.01)
    assert pace.slow == pytest.approx(1.0, abs=0.01)
    assert pace.tpot.value == pytest.approx(0.02, rel=0.01)
    assert pace.slow_now(4, 4, now + 0.079) == pytest.approx(1.0, abs=0.05)
    assert pace.slow_now(4, 4, now + 1.0) > 10.0, "a real silence is still one"


def test_an_engine_that_became_several_times_faster_is_believed():
    pace, now = pace_of(0.02)
    for _ in range(1000):
        now += 0.004
        end_step(pace, now)
    assert pace.reference.step(4) == pytest.approx(0.004, rel=0.1)


def test_after_bursts_silence_is_noticed_as_before():
    pace, now = pace_of(0.02)
    for _ in range(20):
        now += 0.04
        end_step(pace, now)
        now += 0.0001
        end_step(pace, now)
    for _ in range(200):
        now += 0.02
        end_step(pace, now)
    assert pace.slow_now(4, 4, now + 0.04) == pytest.approx(2.0, abs=0.05)
