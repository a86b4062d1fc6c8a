"""Closed sets of words: each is a metric label, and all planes share them."""

import re

import pytest

from gateway.core import vocabulary
from gateway.core.vocabulary import BreakerState, DropPolicy, ShedReason

SETS = [value for name, value in vars(vocabulary).items() if isinstance(value, type) and name != "StrEnum"]


@pytest.mark.parametrize("words", SETS, ids=lambda words: words.__name__)
def test_every_word_is_a_plain_label_and_unlike_the_others(words):
    values = [word.value for word in words]
    assert len(set(values)) == len(values) > 0
    assert all(re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", value) for value in values)


def test_the_shed_reasons_are_complete():
    assert {reason.value for reason in ShedReason} == {
        "rate_limited", "token_limited", "concurrency_limited", "quota_exhausted", "retry_budget", "queue_full",
        "early_drop", "fast_reject", "watermark", "displaced", "queue_timeout", "deadline", "engine_busy",
        "breaker_open", "no_backend", "gateway_overload", "draining",
    }  # fmt: skip


def test_words_of_policies_are_those_of_a_policy_file():
    assert DropPolicy("early-drop-on-pressure") is DropPolicy.EARLY_DROP
    assert BreakerState("half-open") is BreakerState.HALF_OPEN
