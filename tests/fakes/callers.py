"""Closed-loop callers on the official SDK: each calls, waits for the answer, thinks, and calls again."""

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any

import openai

MESSAGES = [{"role": "user", "content": "say something about rivers and the gates that hold them back"}]


@dataclass(slots=True)
class Tally:
    """What happened to one tier's calls."""

    latencies_s: list[float] = field(default_factory=list)  # of answered calls, SDK retries included
    ttfts_s: list[float] = field(default_factory=list)  # the same, to the first token
    refusals: list[openai.RateLimitError] = field(default_factory=list)
    retried_and_answered: int = 0
    errors: list[Exception] = field(default_factory=list)


def p95(values: list[float]) -> float:
    """95th percentile: the value that at most one in twenty exceeds."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]


@dataclass(frozen=True, slots=True)
class Load:
    """How many callers of a tier, and with which key."""

    tier: str
    callers: int
    key: str


async def run(base_url: str, loads: list[Load], seconds: float, max_tokens: int = 64) -> dict[str, Tally]:
    """Let all callers run for so long; returns what happened by tier."""
    tallies = {load.tier: Tally() for load in loads}
    until = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for load in loads:
            for number in range(load.callers):
                dice = random.Random(f"{load.tier}{number}")  # noqa: S311  # think times, no secrets
                group.create_task(_caller(base_url, load, tallies[load.tier], (until, max_tokens), dice))
    return tallies


async def _caller(
    base_url: str, load: Load, tally: Tally, bounds: tuple[float, int], dice: random.Random
) -> None:
    until, max_tokens = bounds
    async with openai.AsyncOpenAI(base_url=base_url, api_key=load.key, timeout=60) as client:
        while time.monotonic() < until:
            began = time.monotonic()
            try:
                raw = await client.chat.completions.with_raw_response.create(
                    model="tiny", messages=MESSAGES, max_tokens=max_tokens, stream=True
                )
                ttft_s = await _read(raw.parse(), began)
                tally.latencies_s.append(time.monotonic() - began)
                tally.ttfts_s.append(ttft_s)
                tally.retried_and_answered += raw.retries_taken > 0
            except openai.RateLimitError as refusal:
                tally.refusals.append(refusal)
            except openai.OpenAIError as error:
                tally.errors.append(error)
            await asyncio.sleep(dice.random())


async def _read(stream: openai.AsyncStream[Any], began: float) -> float:
    """Read an answer to its end; returns when its first token came, after `began`."""
    ttft_s = None
    async for chunk in stream:
        if ttft_s is None and chunk.choices and chunk.choices[0].delta.content:
            ttft_s = time.monotonic() - began
    assert ttft_s is not None, "an answer without a token"
    return ttft_s
