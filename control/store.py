"""The one way in which control talks to Valkey: short time-outs, no built-in retries, never in the way of a request."""

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

StoreFault = (redis.RedisError, OSError)


def connect(timeout_s: float | None = None) -> "redis.Redis":
    """A client of its own connection pool; connects on first use. Every call ends within `timeout_s` or raises.

    Callers handle `StoreFault`. The default time-out is `VALKEY_TIMEOUT_S`, at most 0.25 s.
    """
    wait_s = settings.VALKEY_TIMEOUT_S if timeout_s is None else timeout_s
    return redis.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=wait_s,
        socket_connect_timeout=wait_s,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        health_check_interval=0,
    )
