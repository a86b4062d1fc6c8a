"""One call's decisions, as tables: whether to send again, when, and what is sent."""

import random

import httpx2
import pytest

from gateway.client.attempts import RETRIED_ERRORS, Attempts
from gateway.client.budget import RetryBudget
from gateway.client.policy import RetryPolicy, Surroundings


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def attempts(
    request: httpx2.Request | None = None, *, dice: float = 0.0, clock: Clock | None = None, **policy
) -> Attempts:
    clock = clock or Clock()
    request = request or httpx2.Request(
        "POST", "http://gateway.test/v1/chat/completions", json={"model": "m"}
    )
    around = Surroundings(clock, lambda: 784_111_777.0, lambda: dice)
    return Attempts(request, RetryPolicy(**policy), RetryBudget(clock=clock), around)


def answer(status: int = 429, **headers: str) -> httpx2.Response:
    return httpx2.Response(status, headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize("dice", [0.0, 0.3, 0.999])
@pytest.mark.parametrize(
    ("named", "least", "most"),
    [
        ("2", 2.0, 2.5),
        ("40", 40.0, 50.0),
        ("0", 0.05, 0.5),
        ("-5", 0.05, 0.5),
        ("120junk", 0.05, 0.5),
        ("", 0.05, 0.5),
        ("Sun, 06 Nov 1994 08:49:39 GMT", 2.0, 2.5),
        ("Sun, 06 Nov 1994 07:49:39 GMT", 0.05, 0.5),
    ],
)
def test_the_wait_is_never_less_than_named_and_jitter_only_adds(named, least, most, dice):
    """A21: the waits."""
    wait_s = attempts(dice=dice).wait_after_answer(answer(retry_after=named))
    assert wait_s is not None
    assert least <= wait_s <= most


def test_callers_refused_together_with_the_same_value_come_back_spread():
    dice = random.Random(3)  # noqa: S311  # repeatable
    waits = [attempts(dice=dice.random()).wait_after_answer(answer(retry_after="8")) for _ in range(200)]
    assert min(waits) >= 8
    assert max(waits) <= 10
    tenths = [sum(8 + n / 5 <= wait < 8.2 + n / 5 for wait in waits) for n in range(10)]
    assert max(tenths) < 40  # evenly: 20 in each


def test_the_backoff_grows_from_retry_to_retry():
    call = attempts(dice=0.999, max_retries=3)
    waits = [call.wait_after_answer(answer(503)) for _ in range(4)]
    assert waits == [pytest.approx(0.4995), pytest.approx(0.999), pytest.approx(1.998), None]


@pytest.mark.parametrize(
    ("status", "headers", "is_retried"),
    [
        (200, {}, False),
        (200, {"x_should_retry": "true"}, False),
        (400, {}, False),
        (401, {}, False),
        (404, {}, False),
        (409, {}, False),
        (422, {}, False),
        (408, {}, True),
        (429, {}, True),
        (500, {}, True),
        (503, {}, True),
        (529, {}, True),
        (429, {"x_should_retry": "false"}, False),
        (503, {"x_should_retry": "false", "retry_after": "1"}, False),
        (409, {"x_should_retry": "true"}, True),
        (429, {"x_should_retry": "perhaps"}, True),
        (429, {"retry_after": "999999"}, False),
        (429, {"retry_after": "61"}, False),
        (429, {"retry_after": "60"}, True),
    ],
)
def test_which_answers_are_tried_again(status, headers, is_retried):
    wait_s = attempts().wait_after_answer(answer(status, **headers))
    assert (wait_s is not None) is is_retried


@pytest.mark.parametrize("error", RETRIED_ERRORS)
def test_an_attempt_that_broke_before_any_answer_is_tried_again(error):
    assert attempts().wait_after_error(error("broken")) is not None


@pytest.mark.parametrize(
    "error", [httpx2.ReadTimeout, httpx2.WriteTimeout, httpx2.UnsupportedProtocol, httpx2.LocalProtocolError]
)
def test_a_timeout_while_the_work_was_done_is_not_tried_again(error):
    assert attempts().wait_after_error(error("too long")) is None


def test_a_body_that_can_be_sent_only_once_is_sent_only_once():
    request = httpx2.Request("POST", "http://gateway.test/", content=iter([b"{}"]))
    assert attempts(request).wait_after_answer(answer(503)) is None


def test_retries_are_marked_and_counted_on_top_of_what_the_caller_said():
    request = httpx2.Request(
        "POST", "http://gateway.test/", json={}, headers={"x-stainless-retry-count": "0"}
    )
    call = attempts(request)
    assert call.request().headers["x-stainless-retry-count"] == "0"
    call.wait_after_answer(answer())
    assert call.request().headers["x-stainless-retry-count"] == "1"
    assert request.headers["x-stainless-retry-count"] == "0"  # the caller's own request is not touched
    request = httpx2.Request(
        "POST", "http://gateway.test/", json={}, headers={"x-stainless-retry-count": "2"}
    )
    call = attempts(request)
    call.wait_after_answer(answer())
    assert call.request().headers["x-stainless-retry-count"] == "3"


def test_the_first_attempt_of_a_plain_call_is_sent_as_it_is():
    request = httpx2.Request(
        "POST", "http://gateway.test/", json={"a": 1}, extensions={"timeout": {"read": 9}}
    )
    sent = attempts(request).request()
    assert sent.headers == request.headers
    assert (sent.method, sent.url, sent.stream, sent.extensions) == (
        request.method,
        request.url,
        request.stream,
        request.extensions,
    )


# -- deadlines ---------------------------------------------------------------------------------------------------------


def test_each_attempt_tells_the_time_that_is_left_and_waits_no_longer():
    clock = Clock()
    request = httpx2.Request(
        "POST", "http://gateway.test/", json={}, extensions={"timeout": {"connect": 5, "read": 600}}
    )
    call = attempts(request, clock=clock, deadline_s=10)
    first = call.request()
    assert first.headers["x-request-timeout-ms"] == "10000"
    assert first.extensions["timeout"] == {"connect": 5, "read": 10, "write": 10, "pool": 10}
    assert call.wait_after_answer(answer(retry_after="2")) == pytest.approx(2)
    clock.now += 8
    second = call.request()
    assert second.headers["x-request-timeout-ms"] == "2000"
    assert second.extensions["timeout"]["connect"] == 2


@pytest.mark.parametrize(("named", "is_retried"), [("9", True), ("10", False), ("30", False)])
def test_a_wait_that_ends_after_the_deadline_is_not_begun(named, is_retried):
    """A21: huge values wait only up to the caller's deadline."""
    call = attempts(deadline_s=10, dice=0.999)
    wait_s = call.wait_after_answer(answer(retry_after=named))
    assert (wait_s is not None) is is_retried
    if wait_s is not None:
        assert 9 <= wait_s <= 9.5  # jitter leaves the attempt half of what is left
        assert call.retries == 1


def test_the_calls_own_deadline_goes_before_the_policys():
    request = httpx2.Request(
        "POST", "http://gateway.test/", json={}, headers={"x-request-timeout-ms": "1500"}
    )
    call = attempts(request, deadline_s=60)
    assert call.left_s == pytest.approx(1.5)
    assert call.wait_after_answer(answer(retry_after="2")) is None


@pytest.mark.parametrize("wrong", ["soon", "0", "-1", "1.5"])
def test_a_deadline_that_makes_no_sense_is_sent_for_the_server_to_judge(wrong):
    request = httpx2.Request("POST", "http://gateway.test/", json={}, headers={"x-request-timeout-ms": wrong})
    call = attempts(request, deadline_s=60)
    assert call.left_s is None
    assert call.request().headers["x-request-timeout-ms"] == wrong


# -- the budget --------------------------------------------------------------------------------------------------------


def test_a_retry_that_the_budget_does_not_pay_is_not_made():
    clock = Clock()
    budget = RetryBudget(floor=1, clock=clock)
    around = Surroundings(clock, clock, lambda: 0.0)
    request = httpx2.Request("POST", "http://gateway.test/", json={})
    calls = [Attempts(request, RetryPolicy(), budget, around) for _ in range(3)]
    assert [call.wait_after_answer(answer(503)) is not None for call in calls] == [True, False, False]
    assert [call.retries for call in calls] == [1, 0, 0]


def test_what_is_refused_for_another_reason_costs_the_budget_nothing():
    clock = Clock()
    budget = RetryBudget(floor=1, clock=clock)
    request = httpx2.Request("POST", "http://gateway.test/", json={})
    call = Attempts(request, RetryPolicy(), budget, Surroundings(clock, clock, lambda: 0.0))
    assert call.wait_after_answer(answer(retry_after="999")) is None
    assert budget.balance == pytest.approx(1)
