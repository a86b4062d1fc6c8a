"""The engine model against what its specification says, step by step."""

from dataclasses import replace

import pytest

from gateway.simulation.model import Engine
from gateway.simulation.profiles import CPU8, GPU, LLAMA4, PROFILES

PLAIN = replace(GPU.engine, jitter_sigma=0.0)


def finish(engine: Engine) -> float:
    """Run until idle; seconds that it took."""
    total = 0.0
    while (duration := engine.start_step()) is not None:
        total += duration
        engine.finish_step()
    return total


def test_a_step_costs_base_sequences_prefill_and_kv():
    engine = Engine(PLAIN)
    engine.submit("a", 100, 2)
    assert engine.start_step() == pytest.approx(0.015 + 0.0002 + 100 * 30e-6 + 100 * 80e-9)
    engine.finish_step()
    assert engine.start_step() == pytest.approx(0.015 + 0.0002 + 101 * 80e-9)


def test_a_sequence_gets_one_token_per_step_from_the_end_of_its_prefill_on():
    engine = Engine(PLAIN)
    engine.submit("a", 10, 3)
    seen = []
    while engine.start_step() is not None:
        seen += [(sequence.key, sequence.generated) for sequence in engine.finish_step()]
    assert seen == [("a", 1), ("a", 2), ("a", 3)]
    assert engine.is_idle


def test_all_prefills_share_one_chunk():
    engine = Engine(PLAIN)
    for key in "abc":
        engine.submit(key, 1500, 1)
    engine.start_step()
    assert [sequence.key for sequence in engine.finish_step()] == ["a"]
    engine.start_step()
    assert [sequence.key for sequence in engine.finish_step()] == ["b"]
    engine.start_step()
    assert [sequence.key for sequence in engine.finish_step()] == ["c"]
    assert engine.counters.prompt_tokens == 4500


def test_seats_bound_what_runs_and_the_rest_waits_in_order():
    engine = Engine(replace(PLAIN, seats=2))
    for key in "abcd":
        engine.submit(key, 10, 5)
    engine.start_step()
    assert [sequence.key for sequence in engine.running] == ["a", "b"]
    assert [sequence.key for sequence in engine.waiting] == ["c", "d"]


def test_priority_reorders_only_what_waits():
    engine = Engine(replace(PLAIN, seats=1))
    engine.submit("runs", 10, 2, priority=9)
    engine.start_step()
    engine.finish_step()
    engine.submit("late", 10, 1, priority=5)
    engine.submit("urgent", 10, 1, priority=0)
    engine.submit("usual", 10, 1, priority=5)
    assert [sequence.key for sequence in engine.waiting] == ["urgent", "late", "usual"]
    assert [sequence.key for sequence in engine.running] == ["runs"]


def test_the_newest_sequence_is_preempted_and_computed_again():
    engine = Engine(replace(PLAIN, kv_tokens=64, block_tokens=16))
    engine.submit("old", 30, 30)
    engine.submit("new", 30, 25)
    finish(engine)
    counters = engine.counters
    assert counters.preemptions >= 1
    assert counters.recomputed_tokens >= 30
    assert counters.generated_tokens == 55, "nobody loses a token"
    assert engine.kv_ratio == 0.0


def test_an_engine_with_a_context_per_seat_never_preempts():
    engine = Engine(LLAMA4.engine)
    for number in range(20):
        engine.submit(str(number), 2000, 200)
    finish(engine)
    assert engine.counters.preemptions == 0
    assert engine.kv_ratio == 0.0


def test_an_aborted_sequence_is_gone_at_the_next_step():
    engine = Engine(PLAIN)
    engine.submit("a", 10, 50)
    engine.submit("b", 10, 50)
    engine.start_step()
    engine.abort("a")
    engine.finish_step()
    engine.start_step()
    assert [sequence.key for sequence in engine.running] == ["b"]
    assert engine.counters.aborted == 1
    assert engine.counters.wasted_tokens == 1, "the step that ran made one token for nobody"


def test_aborting_an_unknown_sequence_changes_nothing():
    engine = Engine(PLAIN)
    engine.abort("nobody")
    assert engine.start_step() is None


def test_a_disowned_sequence_runs_on_and_is_counted_as_waste():
    engine = Engine(PLAIN)
    engine.submit("a", 10, 5)
    engine.disown("a")
    finish(engine)
    assert engine.counters.wasted_tokens == 5


def test_a_crash_loses_everything_and_counts_from_zero():
    engine = Engine(PLAIN)
    engine.submit("a", 10, 50)
    engine.submit("b", 10, 50)
    engine.start_step()
    assert engine.crash() == ("a", "b")
    assert engine.is_idle
    assert engine.kv_ratio == 0.0
    assert engine.counters.prompt_tokens == 0
    assert engine.start_step() is None


def test_a_full_queue_inside_the_engine_refuses():
    engine = Engine(replace(PLAIN, seats=1, max_waiting=1))
    assert engine.submit("a", 10, 50)
    engine.start_step()
    assert engine.submit("b", 10, 50)
    assert not engine.submit("c", 10, 50)
    assert engine.counters.rejected == 1


def test_prompt_and_output_are_cut_to_the_context():
    engine = Engine(replace(PLAIN, context_tokens=100))
    engine.submit("a", 90, 50)
    engine.submit("b", 500, 50)
    assert [(s.prompt_tokens, s.output_tokens) for s in engine.waiting] == [(90, 10), (99, 1)]


def test_what_can_never_fit_the_cache_is_cut_to_it():
    engine = Engine(replace(PLAIN, kv_tokens=64, block_tokens=16))
    engine.submit("a", 500, 500)
    finish(engine)
    assert engine.counters.finished == 1


def test_a_slow_engine_takes_that_many_times_as_long():
    plain, slow = Engine(PLAIN), Engine(PLAIN)
    slow.slow_factor = 3.0
    for engine in (plain, slow):
        engine.submit("a", 10, 1)
    assert (slow.start_step() or 0.0) == pytest.approx(3.0 * (plain.start_step() or 0.0))


def test_the_jitter_has_mean_one():
    engine = Engine(replace(GPU.engine, per_kv_s=0.0))
    engine.submit("a", 1, 17_000)
    took = finish(engine)
    assert took / engine.counters.steps == pytest.approx(0.0152, rel=0.01)


def test_the_same_seed_gives_the_same_steps_and_another_seed_others():
    def durations(seed: int) -> list[float]:
        engine = Engine(CPU8.engine, seed)
        engine.submit("a", 10, 20)
        found = []
        while (duration := engine.start_step()) is not None:
            found.append(duration)
            engine.finish_step()
        return found

    assert durations(1) == durations(1)
    assert durations(1) != durations(2)


@pytest.mark.parametrize("name", PROFILES)
def test_memory_is_conserved_whatever_happens(name):
    spec = PROFILES[name].engine
    engine = Engine(spec, 7)
    total = spec.kv_tokens // spec.block_tokens
    for number in range(60):
        engine.submit(str(number), 37 * number % 700 + 1, 11 * number % 90 + 1)
    steps = 0
    while engine.start_step() is not None:
        used = sum(sequence.blocks for sequence in [*engine.running, *engine.waiting])
        assert used == total - engine._free_blocks
        assert len(engine.running) <= spec.seats
        steps += 1
        if steps % 5 == 0:
            engine.abort(str(steps // 5))
        engine.finish_step()
    assert engine._free_blocks == total
