import json
from typing import Any

import pytest

from gateway.core.commands import RetryAfter
from gateway.core.vocabulary import Fault, ShedReason
from gateway.faults import CallerError, CallerFault
from gateway.refusals.answers import (
    Answer,
    Shed,
    Wording,
    fault_event,
    of_caller_error,
    of_fault,
    of_shed,
    shed_status,
)
from gateway.refusals.months import next_month
from gateway.refusals.texts import LANGUAGES

ENGLISH = Wording("req_1")


def shed(
    reason: ShedReason, wording: Wording = ENGLISH, **changes: Any
) -> tuple[Answer, dict[str, str], Any]:
    given = {"retry_after": RetryAfter(5.0, 3), "retry_in_s": 2.4, "reset_at": 1000.2, **changes}
    answer = of_shed(Shed(reason, **given), wording)
    headers = {name.decode(): value.decode() for name, value in answer.headers}
    assert len(headers) == len(answer.headers)
    return answer, headers, json.loads(answer.body)


@pytest.mark.parametrize("reason", list(ShedReason))
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_reason_has_its_status_code_and_words_in_both_languages(reason: ShedReason, language: str):
    answer, headers, body = shed(reason, Wording("req_1", language=language))
    expected = {
        ShedReason.RATE_LIMITED: (429, "rate_limit_exceeded", "requests"),
        ShedReason.TOKEN_LIMITED: (429, "rate_limit_exceeded", "tokens"),
        ShedReason.CONCURRENCY_LIMITED: (429, "rate_limit_exceeded", "requests"),
        ShedReason.QUOTA_EXHAUSTED: (429, "insufficient_quota", "insufficient_quota"),
        ShedReason.BREAKER_OPEN: (503, "CAPACITY_OVERLOAD", "server_error"),
        ShedReason.NO_BACKEND: (503, "CAPACITY_OVERLOAD", "server_error"),
        ShedReason.GATEWAY_OVERLOAD: (503, "CAPACITY_OVERLOAD", "server_error"),
        ShedReason.DRAINING: (503, "CAPACITY_OVERLOAD", "server_error"),
    }.get(reason, (429, "CAPACITY_OVERLOAD", "rate_limit_error"))
    error = body["error"]
    assert (answer.status, error["code"], error["type"]) == expected
    assert answer.status == shed_status(reason)
    assert error["reason"] == reason.value
    assert error["retry_after_seconds"] == 3
    assert error["param"] is None
    assert error["request_id"] == "req_1"
    assert "{" not in error["message"]
    assert any("\u4e00" <= c <= "\u9fff" for c in error["message"]) is (language == "zh")
    assert (headers["retry-after"], headers["x-should-retry"]) == ("3", "true")
    assert headers["x-ratelimit-reset"] == "1001"


@pytest.mark.parametrize(
    ("retry_in_s", "after_s", "exact_ms"),
    [(2.4, 3, 2400), (2.9999, 3, 3000), (0.0, 1, 1), (-5.0, 1, 1), (9.0, 3, 3000), (None, 3, 3000)],
)
def test_the_exact_wait_names_the_same_slot(retry_in_s: float | None, after_s: int, exact_ms: int):
    _, headers, _ = shed(ShedReason.QUEUE_FULL, retry_after=RetryAfter(5.0, after_s), retry_in_s=retry_in_s)
    assert headers["retry-after-ms"] == str(exact_ms)


def test_where_only_a_later_time_helps_nothing_says_try_again():
    _, headers, body = shed(ShedReason.QUOTA_EXHAUSTED, retry_after=None, retry_in_s=None)
    assert not {"retry-after", "retry-after-ms"} & set(headers)
    assert headers["x-should-retry"] == "false"
    assert headers["x-ratelimit-reset"] == "1001"
    assert body["error"]["retry_after_seconds"] is None


def test_the_first_replacement_that_has_the_language_wins():
    replaced = ({"zh": "一"}, {"en": "Own words, {seconds} s.{retry}", "zh": "二"})
    _, _, english = shed(ShedReason.QUEUE_FULL, Wording("r", replaced=replaced))
    _, _, chinese = shed(ShedReason.QUEUE_FULL, Wording("r", language="zh", replaced=replaced))
    assert english["error"]["message"] == "Own words, 3 s. Please try again in 3 seconds."
    assert chinese["error"]["message"] == "一"


def test_one_second_is_singular():
    _, _, body = shed(ShedReason.QUEUE_FULL, retry_after=RetryAfter(5.0, 1))
    assert body["error"]["message"].endswith("in 1 second.")


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (CallerFault.MALFORMED, 400),
        (CallerFault.INVALID, 400),
        (CallerFault.UNAUTHENTICATED, 401),
        (CallerFault.UNKNOWN_MODEL, 404),
        (CallerFault.UNKNOWN_PATH, 404),
        (CallerFault.WRONG_METHOD, 405),
        (CallerFault.TOO_SLOW, 408),
        (CallerFault.SUPERSEDED, 409),
        (CallerFault.TOO_LARGE, 413),
        (CallerFault.CODED_BODY, 415),
        (CallerFault.KEY_REUSED, 422),
    ],
)
def test_the_callers_faults_are_4xx_and_not_to_be_repeated(fault: CallerFault, status: int):
    answer = of_caller_error(CallerError(fault, "words", "member"), ENGLISH)
    error = json.loads(answer.body)["error"]
    assert answer.status == status
    assert (error["message"], error["param"], error["type"]) == ("words", "member", "invalid_request_error")
    assert (b"x-should-retry", b"false") in answer.headers
    assert ((b"www-authenticate", b"Bearer") in answer.headers) is (status == 401)


@pytest.mark.parametrize("fault", list(Fault))
def test_a_backends_fault_is_502_and_a_time_out_504(fault: Fault):
    answer = of_fault(fault, ENGLISH)
    assert answer.status == (504 if fault.value.endswith("timeout") else 502)
    assert json.loads(answer.body)["error"]["reason"] == fault.value


def test_anthropics_callers_get_anthropics_shape_with_our_fields():
    wording = Wording("req_1", is_anthropic=True)
    _, _, body = shed(ShedReason.QUEUE_FULL, wording)
    assert (body["type"], body["error"]["type"], body["request_id"]) == ("error", "rate_limit_error", "req_1")
    assert body["error"]["reason"] == "queue_full"
    _, _, body = shed(ShedReason.DRAINING, wording)
    assert body["error"]["type"] == "overloaded_error"
    event = fault_event(Fault.MIDSTREAM, wording)
    assert event.startswith(b"event: error\ndata: {")
    assert event.endswith(b"}\n\n")


def test_the_event_of_a_fault_is_one_event():
    event = fault_event(Fault.MIDSTREAM, ENGLISH)
    assert event.startswith(b'data: {"error":')
    assert event.count(b"\n\n") == 1


@pytest.mark.parametrize(
    ("now", "then"),
    [
        (0.0, 2_678_400.0),  # January 1970
        (951_782_399.9, 951_868_800.0),  # 28 February 2000, a leap year of the 400-year rule
        (951_868_799.0, 951_868_800.0),
        (1_798_761_599.0, 1_798_761_600.0),  # the last second of 2026
        (1_798_761_600.0, 1_801_440_000.0),
        (4_107_542_400.0, 4_110_220_800.0),  # 1 March 2100, no leap year
    ],
)
def test_when_the_next_month_begins(now: float, then: float):
    assert next_month(now) == then
