"""Callers: what they send, how long they are patient, and when they come back.

A *request* is what a caller wants answered; each try of it is an attempt with a ticket of its own. Arrivals are
Poisson per tier and phase, sizes lognormal, tenants four per tier of which the first sends ten times as much. The
same seed gives the same requests, whatever serves them.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.simulation.profiles import Profile, TierLoad

PROMPT_SIGMA = 0.5
OUTPUT_SIGMA = 0.6
ESTIMATE_SIGMA = 0.15  # of the gateway's estimate of prompt tokens
TENANTS = 4
AMUCK = 10  # how much more the first tenant of a tier sends
FLAT_ABOVE = 2.0  # P0 does not grow beyond that; the tiers below take its part
OBEDIENT_PART = 0.8
MAX_FAILURES = 2
FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.5, 8.0
STORM_WAIT_S = (0.1, 0.4)
STORM_RETRIES = 3


@dataclass(frozen=True, slots=True)
class Phase:
    """From `start_s` on: requests per second of each tier, and the mean prompt where it is not the profile's own."""

    start_s: float
    rates: tuple[float, ...]
    prompt_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class Manners:
    """How callers take a no."""

    obedient_part: float = OBEDIENT_PART
    is_storm: bool = False  # nobody obeys, everybody is back at once, three times as often

    def tries(self, base: int) -> int:
        """How many retries a caller makes that would make `base`."""
        return base * STORM_RETRIES if self.is_storm else base

    def wait_s(self, refusals: int, after_s: int | None, *, is_obedient: bool, dice: random.Random) -> float:
        """How long a caller waits before retry number `refusals`. `after_s`: Retry-After, where there was one."""
        if self.is_storm:
            return dice.uniform(*STORM_WAIT_S)
        if after_s is not None and is_obedient:
            return after_s * dice.uniform(1.0, 1.25)
        backoff = min(LAST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** (refusals - 1))
        return backoff * dice.uniform(0.5, 1.5)


class Request:
    """What one caller wants, and how it went."""

    __slots__ = (
        "arrived_at",
        "attempts",
        "decided_at",
        "estimate",
        "failures",
        "is_obedient",
        "number",
        "output_tokens",
        "prompt_tokens",
        "refusals",
        "tenant",
        "tier",
        "tpot_s",
        "ttft_s",
    )

    def __init__(self, number: int, arrived_at: float, tier: int, tenant: str) -> None:
        self.number = number
        self.arrived_at = arrived_at
        self.tier = tier
        self.tenant = tenant
        self.prompt_tokens = 1
        self.output_tokens = 1
        self.estimate = 1
        self.is_obedient = True
        self.attempts = 0
        self.refusals = 0
        self.failures = 0
        self.decided_at: float | None = None
        self.ttft_s: float | None = None  # None: it was never answered
        self.tpot_s = 0.0

    def __repr__(self) -> str:
        return f"<Request {self.number} {self.tenant} {self.prompt_tokens}+{self.output_tokens}>"

    @property
    def is_answered(self) -> bool:
        """Whether it was answered in full, however late."""
        return self.ttft_s is not None

    def is_in_objective(self, load: TierLoad) -> bool:
        """Whether it was answered within both objectives of its tier."""
        return (
            self.ttft_s is not None
            and self.ttft_s <= load.ttft_objective_s
            and self.tpot_s <= load.tpot_objective_s
        )


def rates(profile: Profile, factor: float, *, flood: float | None = None) -> tuple[float, ...]:
    """Requests per second of each tier at `factor` times the base load. `flood`: P0 alone at that many times its own."""
    total = profile.base_per_s * factor
    first = profile.base_per_s * min(factor, FLAT_ABOVE) * profile.tiers[0].share
    lower = sum(tier.share for tier in profile.tiers[1:])
    others = [(total - first) * tier.share / lower for tier in profile.tiers[1:]]
    if flood is not None:
        first = profile.base_per_s * profile.tiers[0].share * flood
    return (first, *others)


def requests(profile: Profile, phases: tuple[Phase, ...], until_s: float, seed: int) -> list[Request]:
    """All requests of a run, by time of arrival."""
    found: list[Request] = []
    for tier in range(len(profile.tiers)):
        dice = random.Random(f"requests {seed} {tier}")  # noqa: S311  # a model, not a secret
        for at, phase in _arrivals(phases, tier, until_s, dice):
            found.append(draw(profile, tier, at, dice, prompt_tokens=phase.prompt_tokens))
    found.sort(key=lambda request: (request.arrived_at, request.tier))
    for number, request in enumerate(found):
        request.number = number
    return found


def _arrivals(
    phases: tuple[Phase, ...], tier: int, until_s: float, dice: random.Random
) -> Iterator[tuple[float, Phase]]:
    for index, phase in enumerate(phases):
        end_s = phases[index + 1].start_s if index + 1 < len(phases) else until_s
        rate = phase.rates[tier]
        at = phase.start_s
        while rate > 0:
            at += dice.expovariate(rate)
            if at >= min(end_s, until_s):
                break
            yield at, phase


def _tenant(tier: int, dice: random.Random) -> str:
    pick = dice.randrange(AMUCK + TENANTS - 1)
    return f"p{tier}-{max(0, pick - AMUCK + 1)}"


def draw(
    profile: Profile, tier: int, at: float, dice: random.Random, *, prompt_tokens: float | None = None
) -> Request:
    """A request of a tier. `prompt_tokens`: the mean prompt, where it is not the profile's own."""
    request = Request(0, at, tier, _tenant(tier, dice))
    load = profile.tiers[tier]
    mean = load.prompt_tokens if prompt_tokens is None else prompt_tokens
    context = profile.engine.context_tokens
    prompt = min(context - 1, max(1, round(_lognormal(mean, PROMPT_SIGMA, dice))))
    output = min(context - prompt, max(1, round(_lognormal(load.output_tokens, OUTPUT_SIGMA, dice))))
    request.prompt_tokens = prompt
    request.output_tokens = output
    request.estimate = max(1, round(prompt * _lognormal(1.0, ESTIMATE_SIGMA, dice)))
    request.is_obedient = dice.random() < OBEDIENT_PART
    return request


def pause_s(dice: random.Random) -> float:
    """How long a caller that calls again and again thinks."""
    return dice.random()


def _lognormal(mean: float, sigma: float, dice: random.Random) -> float:
    return dice.lognormvariate(math.log(mean) - 0.5 * sigma * sigma, sigma)
