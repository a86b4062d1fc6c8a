"""Closed-loop callers on the official SDK: each calls, waits for the answer, thinks, and calls again."""

import asyncio
import random
import time
from dataclasses import dataclass, field

import openai

MESSAGES = [{"role": "user", "content": "say something about rivers and the gates that hold them back"}]


@dataclass(slots=True)
class Tally:
    """What happened to one tier's calls."""

    latencies_s: list[float] = field(default_factory=list)
    refusals: list[openai.RateLimitError] = field(default_factory=list)
    retried_and_answered: int = 0
    errors: list[Exception] = field(default_factory=list)

    @property
    def p95_s(self) -> float:
        """95th percentile of the calls that were answered, SDK retries included."""
        ordered = sorted(self.latencies_s)
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
                    model="tiny", messages=MESSAGES, max_tokens=max_tokens
                )
                assert raw.parse().choices[0].message.content
                tally.latencies_s.append(time.monotonic() - began)
                tally.retried_and_answered += raw.retries_taken > 0
            except openai.RateLimitError as refusal:
                tally.refusals.append(refusal)
            except openai.OpenAIError as error:
                tally.errors.append(error)
            await asyncio.sleep(dice.random())
