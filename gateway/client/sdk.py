"""Ready `openai` clients on the retrying transports. The SDK is imported when one is made, not before."""

from typing import TYPE_CHECKING, Any

import httpx2

from gateway.client.policy import RetryPolicy
from gateway.client.transports import AsyncRetryTransport, RetryTransport

if TYPE_CHECKING:
    from types import ModuleType

    from openai import AsyncOpenAI, OpenAI

DEFAULT_TIMEOUT = httpx2.Timeout(600.0, connect=5.0)  # the SDK's own
_LIMITS = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)


def openai_client(
    base_url: str,
    api_key: str,
    *,
    policy: RetryPolicy | None = None,
    transport: RetryTransport | None = None,
    timeout: float | httpx2.Timeout = DEFAULT_TIMEOUT,
    **options: Any,  # noqa: ANN401  # handed on as they are
) -> "OpenAI":
    """An `openai.OpenAI` whose calls are retried by `transport` and by nothing else.

    Args:
        base_url: of the gateway, with `/v1`.
        api_key: the tenant's key.
        policy: how often, how long, until when; the default policy where None.
        transport: instead of `policy`, to share a budget between clients or to carry the attempts otherwise.
        timeout: seconds for each step of an attempt (connect, each read, each write).
        **options: further arguments of `openai.OpenAI`, except `http_client` and `max_retries`.

    Raises:
        ImportError: the `openai` package is not installed.
        TypeError: `policy` and `transport` are both given, or `options` has `http_client` or `max_retries`.
    """
    if policy is not None and transport is not None:
        raise TypeError("policy: give it to the transport")
    openai = _openai(options)
    http_client = httpx2.Client(
        transport=transport
        or RetryTransport(httpx2.HTTPTransport(limits=_LIMITS, trust_env=False), policy=policy),
        timeout=timeout,
        trust_env=False,
    )
    client: OpenAI = openai.OpenAI(
        base_url=base_url, api_key=api_key, max_retries=0, timeout=timeout, http_client=http_client, **options
    )
    return client


def async_openai_client(
    base_url: str,
    api_key: str,
    *,
    policy: RetryPolicy | None = None,
    transport: AsyncRetryTransport | None = None,
    timeout: float | httpx2.Timeout = DEFAULT_TIMEOUT,
    **options: Any,  # noqa: ANN401  # handed on as they are
) -> "AsyncOpenAI":
    """An `openai.AsyncOpenAI`; arguments and errors as for `openai_client`."""
    if policy is not None and transport is not None:
        raise TypeError("policy: give it to the transport")
    openai = _openai(options)
    http_client = httpx2.AsyncClient(
        transport=transport
        or AsyncRetryTransport(httpx2.AsyncHTTPTransport(limits=_LIMITS, trust_env=False), policy=policy),
        timeout=timeout,
        trust_env=False,
    )
    client: AsyncOpenAI = openai.AsyncOpenAI(
        base_url=base_url, api_key=api_key, max_retries=0, timeout=timeout, http_client=http_client, **options
    )
    return client


def _openai(options: dict[str, Any]) -> "ModuleType":
    for name in ("http_client", "max_retries"):
        if name in options:
            raise TypeError(f"{name}: is set by this function; give a RetryPolicy instead")
    try:
        import openai  # noqa: PLC0415  # optional, and only needed here
    except ImportError as error:
        raise ImportError("openai_client needs the openai package: pip install openai") from error
    return openai
