"""The package for callers: retries with jitter, a budget and a deadline. Depends on httpx2 alone.

    from gateway.client import openai_client

    client = openai_client("http://127.0.0.1:8080/v1", "sg_live_...")

`RetryTransport` and `AsyncRetryTransport` fit any httpx2 client; `openai_client` and `async_openai_client` return
official SDK clients on them, with the SDK's own retries off. Nothing else of the gateway is imported.
"""

from gateway.client.budget import RetryBudget
from gateway.client.policy import RetryPolicy, Surroundings
from gateway.client.sdk import async_openai_client, openai_client
from gateway.client.transports import RETRIES_EXTENSION, AsyncRetryTransport, RetryTransport

__all__ = [
    "RETRIES_EXTENSION",
    "AsyncRetryTransport",
    "RetryBudget",
    "RetryPolicy",
    "RetryTransport",
    "Surroundings",
    "async_openai_client",
    "openai_client",
]
