"""httpx2 transports that try again: put one into a client, and every call through it is retried as `attempts` says.

    client = httpx2.Client(transport=RetryTransport())

A retry happens before the first byte of an answer's body reaches the caller, or not at all: once an answer is returned,
what happens to its stream is the caller's to see. Where there is no (further) retry, the server's last answer is
returned as it came, with its Retry-After, or the last error is raised.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import httpx2

from gateway.client.attempts import Attempts
from gateway.client.budget import RetryBudget
from gateway.client.policy import RetryPolicy, Surroundings

RETRIES_EXTENSION = "retries"  # of a response: how many retries it took


class RetryTransport(httpx2.BaseTransport):
    """For `httpx2.Client`. One budget for all its calls; safe to share between threads as far as `inner` is.

    Args:
        inner: what carries the attempts; by default an `httpx2.HTTPTransport` without retries of its own that
            ignores proxies of the environment.
        policy: how often and how long.
        budget: give several transports the same one to bound them together.
        surroundings: clocks and dice.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        inner: httpx2.BaseTransport | None = None,
        *,
        policy: RetryPolicy | None = None,
        budget: RetryBudget | None = None,
        surroundings: Surroundings | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.inner = inner or httpx2.HTTPTransport(trust_env=False)
        self.policy = policy or RetryPolicy()
        self.surroundings = surroundings or Surroundings()
        self.budget = budget or RetryBudget(clock=self.surroundings.monotonic)
        self._sleep = sleep

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send until there is an answer that is not retried.

        Raises:
            httpx2.TransportError: the last attempt got no answer.
        """
        attempts = Attempts(request, self.policy, self.budget, self.surroundings)
        while True:
            try:
                response = self.inner.handle_request(attempts.request())
            except httpx2.TransportError as error:
                wait_s = attempts.wait_after_error(error)
                if wait_s is None:
                    raise
            else:
                wait_s = attempts.wait_after_answer(response)
                if wait_s is None:
                    response.extensions[RETRIES_EXTENSION] = attempts.retries
                    return response
                response.close()  # unread: a new connection costs less than a body that may never end
            self._sleep(wait_s)

    def close(self) -> None:
        """Close the connections."""
        self.inner.close()

    def __enter__(self) -> Self:
        self.inner.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self.inner.__exit__(exc_type, exc_value, traceback)


class AsyncRetryTransport(httpx2.AsyncBaseTransport):
    """For `httpx2.AsyncClient`; everything else as `RetryTransport`. `sleep` waits on the running event loop."""

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport | None = None,
        *,
        policy: RetryPolicy | None = None,
        budget: RetryBudget | None = None,
        surroundings: Surroundings | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.inner = inner or httpx2.AsyncHTTPTransport(trust_env=False)
        self.policy = policy or RetryPolicy()
        self.surroundings = surroundings or Surroundings()
        self.budget = budget or RetryBudget(clock=self.surroundings.monotonic)
        self._sleep = sleep

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send until there is an answer that is not retried.

        Raises:
            httpx2.TransportError: the last attempt got no answer.
        """
        attempts = Attempts(request, self.policy, self.budget, self.surroundings)
        while True:
            try:
                response = await self.inner.handle_async_request(attempts.request())
            except httpx2.TransportError as error:
                wait_s = attempts.wait_after_error(error)
                if wait_s is None:
                    raise
            else:
                wait_s = attempts.wait_after_answer(response)
                if wait_s is None:
                    response.extensions[RETRIES_EXTENSION] = attempts.retries
                    return response
                await response.aclose()
            await self._sleep(wait_s)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.inner.aclose()

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.inner.__aexit__(exc_type, exc_value, traceback)
