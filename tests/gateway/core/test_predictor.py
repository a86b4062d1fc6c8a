"""Guesses that calibrate themselves."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.predictor import ChunkEstimator, OutputPredictor, PromptEstimator, RatioTable


def test_an_unknown_tenant_gets_the_default_of_its_pool():
    predictor = OutputPredictor({"chat": 100}, fallback=7)
    assert predictor.predict("acme", "chat") == 100
    assert predictor.predict("acme", "other") == 7


def test_a_prediction_moves_by_a_twentieth_of_its_error():
    predictor = OutputPredictor({"chat": 100})
    predictor.learn("acme", "chat", 100, 300)
    assert predictor.predict("acme", "chat") == 110
    assert predictor.predict("globex", "chat") == 100
    assert predictor.error_tokens == pytest.approx(10.0)


def test_a_prediction_converges_with_many_tickets_in_flight():
    """The error is taken against the present prediction: against the one at dispatch, this swings for ever."""
    predictor = OutputPredictor({"chat": 1000})
    flight = [predictor.predict("acme", "chat")] * 100
    for _ in range(1000):
        predictor.learn("acme", "chat", flight.pop(0), 200)
        flight.append(predictor.predict("acme", "chat"))
        assert 190 <= predictor.predict("acme", "chat") <= 1000
    assert predictor.predict("acme", "chat") == 200


def test_a_negative_output_is_not_learnt():
    predictor = OutputPredictor({"chat": 100})
    predictor.learn("acme", "chat", 100, -5)
    assert len(predictor) == 0


def test_a_prediction_is_at_least_one_token():
    predictor = OutputPredictor({"chat": 2})
    for _ in range(500):
        predictor.learn("acme", "chat", 1, 0)
    assert predictor.predict("acme", "chat") == 1


def test_the_least_recently_learnt_tenant_is_forgotten():
    predictor = OutputPredictor({"chat": 100}, max_entries=2)
    predictor.learn("a", "chat", 100, 300)
    predictor.learn("b", "chat", 100, 300)
    predictor.learn("a", "chat", 100, 300)
    predictor.learn("c", "chat", 100, 300)
    assert len(predictor) == 2
    assert predictor.predict("b", "chat") == 100
    assert predictor.predict("a", "chat") > 110


def test_new_defaults_leave_what_was_learnt():
    predictor = OutputPredictor({"chat": 100})
    predictor.learn("a", "chat", 100, 300)
    predictor.configure({"chat": 500})
    assert predictor.predict("a", "chat") == 110
    assert predictor.predict("b", "chat") == 500


def test_a_prompt_is_estimated_at_four_bytes_a_token():
    estimator = PromptEstimator()
    assert estimator.estimate("llama", 401) == 101
    assert estimator.estimate("llama", 0) == 1
    assert estimator.estimate("llama", -9) == 1


def test_an_image_counts_a_constant():
    estimator = PromptEstimator(image_tokens=500)
    assert estimator.estimate("llama", 400, image_parts=2) == 1100
    assert estimator.estimate("llama", 400, image_parts=-2) == 100


def test_a_prompt_estimate_follows_real_usage_per_model():
    estimator = PromptEstimator()
    for _ in range(200):
        estimator.learn("qwen", 3000, 2000)
    assert estimator.estimate("qwen", 3000) == pytest.approx(2000, rel=0.02)
    assert estimator.estimate("llama", 3000) == 750


def test_images_are_taken_off_before_learning():
    estimator = PromptEstimator(image_tokens=1000)
    for _ in range(200):
        estimator.learn("llava", 4000, 2000, image_parts=1)
    assert estimator.estimate("llava", 4000) == pytest.approx(1000, rel=0.02)


@pytest.mark.parametrize(
    ("above", "below"), [(nan, 1), (1, nan), (inf, 1), (1, inf), (-1, 1), (1, 0), (0, 1)]
)
def test_a_ratio_ignores_nonsense(above, below):
    table = RatioTable(4.0)
    table.learn("k", above, below)
    assert (table.ratio("k"), len(table)) == (4.0, 0)


def test_a_ratio_of_averages_is_not_swayed_by_tiny_samples():
    table = RatioTable(4.0)
    for _ in range(300):
        table.learn("k", 4000, 1000)
        table.learn("k", 40, 1)
    assert table.ratio("k") == pytest.approx(4.036, rel=0.01)


def test_a_ratio_table_is_bounded():
    table = RatioTable(4.0, max_entries=2)
    for key in ("a", "b", "a", "c"):
        table.learn(key, 10, 1)
    assert len(table) == 2
    assert table.ratio("b") == 4.0
    assert table.ratio("a") > 4.0


@given(st.lists(st.tuples(st.floats(), st.floats())))
def test_a_ratio_is_always_positive_and_finite(samples):
    table = RatioTable(4.0)
    for above, below in samples:
        if above > 1e100 or below > 1e100 or 0 < above < 1e-100 or 0 < below < 1e-100:
            continue  # quotients of doubles at the ends of their range
        table.learn("k", above, below)
        assert 0 < table.ratio("k") < inf


def test_tokens_per_chunk_follow_speculative_decoding():
    estimator = ChunkEstimator()
    assert estimator.tokens_per_chunk("chat") == 1.0
    for _ in range(200):
        estimator.learn("chat", 100, 350)
    assert estimator.tokens_per_chunk("chat") == pytest.approx(3.5, rel=0.01)
