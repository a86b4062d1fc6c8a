# ruff: noqa: E501  # tables read better in one line
import pytest

from dashboard.panels.causes import binding_words, out_words, reason_words, slow_words
from dashboard.panels.wording import NBSP
from gateway.core.vocabulary import ShedReason
from tests.fakes.scenes import backend, breaker, frame, scene, tier


def with_backends(*backends):
    return scene(frame(backends=backends))


@pytest.mark.parametrize(
    ("backends", "words"),
    [
        ([backend("b1")], ""),
        ([backend("b1", binding="kv", kv_use_ratio=0.91), backend("b2", binding="kv", kv_use_ratio=0.97)], "KV cache 97 % on b2"),
        ([backend("b1", binding="kv", kv_use_ratio=1.2)], "KV cache 100 % on b1"),
        ([backend("b1", binding="prefill", prefill_ratio=0.9)], "prefill 90 % on b1"),
        (
            [backend(n, binding="sequences", limit=8.0, in_flight=8) for n in ("b1", "b2")],
            "16 of 16 seats taken on b1 and b2",
        ),
        ([backend("b1", binding="kv", breaker=breaker("open"))], ""),  # a backend that is out holds nothing back
    ],
)  # fmt: skip
def test_the_gate_that_binds_most_work_is_named_at_its_fullest_backend(backends, words):
    assert binding_words(with_backends(*backends)).replace(NBSP, " ") == words


@pytest.mark.parametrize(
    ("backends", "words"),
    [
        ([backend("b1", slow=1.4)], ""),
        ([backend("b1", slow=4.2)], "b1 runs 4x slower"),
        ([backend("b1", slow=4.2, in_flight=0)], ""),  # an old sample of an idle backend
        ([backend("b1", slow=4.2, breaker=breaker("open"))], ""),
        ([backend("b1", slow=2.0), backend("b2", slow=9.6)], "b1 and b2 run up to 10x slower"),
    ],
)
def test_slow_backends_that_carry_work_are_named(backends, words):
    assert slow_words(with_backends(*backends)) == words


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ("closed closed", ""),
        ("open closed", "b0 is out"),
        ("open open", "b0 and b1 are out"),
        ("forced-open closed", "b0 is forced open"),
        ("open forced-open closed", "b0 is out, b1 is forced open"),
        ("open open open open closed", "4 of 5 backends are out"),
    ],
)
def test_backends_that_are_out_are_named_and_people_told_apart_from_faults(states, words):
    rows = [backend(f"b{i}", breaker=breaker(state)) for i, state in enumerate(states.split())]
    assert out_words(with_backends(*rows)) == words


def test_every_reason_for_load_has_words_of_its_own():
    allowance = {"rate_limited", "token_limited", "concurrency_limited", "quota_exhausted"}
    found = {
        reason: reason_words(scene(frame(tiers=(tier(0, retries_per_s=2.0),))), reason, is_last_resort=True)
        for reason in ShedReason
        if reason not in allowance
    }
    assert all(found.values())
    assert len(set(found.values())) == len(found) - 1  # no_backend and breaker_open mean the same to a reader


def test_retries_without_any_offered_are_told_as_a_rate():
    silent = scene(frame(tiers=(tier(0, offered_per_s=0.0, retries_per_s=2.0),)))
    assert reason_words(silent, "retry_budget") == "retries are 2.0/s of what is offered"
