"""One call and its attempts: what is sent each time, and whether and when to send it again. No input or output here.

Rules, in this order: never more than `max_retries`; never a body that can be sent only once; `x-should-retry` of the
server before its status; never earlier than the server names; never where the deadline comes first; never beyond the
budget. The wait is

    named + dice * max(backoff, named / 4)      where the server names a time (> 0)
    max(min_wait, dice * backoff)               else: full jitter

so that callers who were refused together do not come back together. With a deadline the jitter takes at most half of
what is left, so that the attempt has the other half.
Full jitter: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
"""

import re

import httpx2

from gateway.client.budget import RetryBudget
from gateway.client.policy import RetryPolicy, Surroundings
from gateway.client.retryafter import named_wait_s

DEADLINE_HEADER = "x-request-timeout-ms"
RETRY_COUNT_HEADER = "x-stainless-retry-count"
JITTER_SHARE = 0.25  # of a named wait

# Before any byte of an answer. Nothing was sent (connect, pool) or the peer broke off; a time-out while waiting for an
# answer is not among them: the work was being done, and doing it again takes as long again.
RETRIED_ERRORS = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ReadError,
    httpx2.WriteError,
    httpx2.RemoteProtocolError,
)
_match_whole = re.compile(r"[0-9]{1,9}").fullmatch


class Attempts:
    """The attempts of one call; made when the call begins.

    Attributes:
        retries: attempts after the first, so far.
    """

    def __init__(
        self, request: httpx2.Request, policy: RetryPolicy, budget: RetryBudget, surroundings: Surroundings
    ) -> None:
        self.retries = 0
        self._request = request
        self._policy = policy
        self._budget = budget
        self._surroundings = surroundings
        self._may_repeat = isinstance(
            request.stream, httpx2.ByteStream
        )  # else its body is gone after the first
        self._told_before = _whole(request.headers.get(RETRY_COUNT_HEADER)) or 0
        limit_s = _deadline_s(request, policy)
        self._ends_at = None if limit_s is None else surroundings.monotonic() + limit_s
        budget.deposit()

    @property
    def left_s(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self._ends_at is None else self._ends_at - self._surroundings.monotonic()

    def request(self) -> httpx2.Request:
        """The next attempt: marked as a retry where it is one, and with the time that is left."""
        headers, extensions = self._request.headers.copy(), dict(self._request.extensions)
        if self.retries:
            headers[RETRY_COUNT_HEADER] = str(self._told_before + self.retries)
        left_s = self.left_s
        if left_s is not None:
            headers[DEADLINE_HEADER] = str(max(1, int(left_s * 1000)))
            extensions["timeout"] = _shortened(extensions.get("timeout") or {}, max(0.001, left_s))
        sent = self._request
        return httpx2.Request(
            sent.method, sent.url, headers=headers, stream=sent.stream, extensions=extensions
        )

    def wait_after_answer(self, response: httpx2.Response) -> float | None:
        """Seconds to wait before the next attempt; None: this answer is the call's."""
        if not self._is_retried(response):
            return None
        return self._wait(named_wait_s(response.headers, self._surroundings.wall()))

    def wait_after_error(self, error: httpx2.TransportError) -> float | None:
        """Seconds to wait before the next attempt; None: the call ends with this error."""
        return self._wait(None) if isinstance(error, RETRIED_ERRORS) else None

    def _is_retried(self, response: httpx2.Response) -> bool:
        if response.status_code < 400:  # what is no error is the answer
            return False
        said = response.headers.get("x-should-retry", "").strip().lower()
        if said in ("true", "false"):
            return bool(said == "true")
        return response.status_code in self._policy.statuses

    def _wait(self, named_s: float | None) -> float | None:
        if self.retries >= self._policy.max_retries or not self._may_repeat:
            return None
        wait_s = self._fitting_wait_s(named_s or 0.0)
        if wait_s is None or not self._budget.withdraw():
            return None
        self.retries += 1
        return wait_s

    def _fitting_wait_s(self, named_s: float) -> float | None:
        """A wait that is not too long for the policy or the deadline; None where there is none."""
        least_s = max(named_s, self._policy.min_wait_s)
        if least_s > self._policy.max_named_wait_s:
            return None
        backoff_s = self._policy.backoff_s(self.retries)
        most_s = named_s + max(backoff_s, JITTER_SHARE * named_s) if named_s else backoff_s
        left_s = self.left_s
        if left_s is not None:
            if least_s >= left_s:
                return None
            most_s = min(most_s, least_s + (left_s - least_s) / 2)
        return max(least_s, named_s + self._surroundings.dice() * (most_s - named_s))


def _deadline_s(request: httpx2.Request, policy: RetryPolicy) -> float | None:
    """The call's own header where it has one (even a wrong one: the server says what is wrong), else the policy's."""
    own = request.headers.get(DEADLINE_HEADER)
    if own is None:
        return policy.deadline_s
    milliseconds = _whole(own)
    return milliseconds / 1000 if milliseconds else None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and _match_whole(text) else None


def _shortened(timeouts: dict[str, float | None], left_s: float) -> dict[str, float | None]:
    """Time-outs of one attempt, none beyond the deadline."""
    names = ("connect", "read", "write", "pool")
    given = {name: timeouts.get(name) for name in names}
    return {name: left_s if value is None else min(value, left_s) for name, value in given.items()}
