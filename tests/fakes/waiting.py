"""Waiting for something to become true, bounded."""

import asyncio
import time
from collections.abc import Callable


async def until(condition: Callable[[], bool], timeout_s: float = 5.0) -> float:
    """Seconds until the condition held.

    Raises:
        TimeoutError: it did not hold in time.
    """
    began = time.monotonic()
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  # any condition, none of which could set an event
            await asyncio.sleep(0.002)
    return time.monotonic() - began
