"""The plays: what callers do and what befalls the engines, and when it is measured.

Seconds are those of the `gpu` profile; a profile's `stretch` multiplies them.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from gateway.core.policy import GatePolicy
from gateway.simulation.measures import Window
from gateway.simulation.outer import OuterSpec
from gateway.simulation.profiles import Profile
from gateway.simulation.runner import EngineFault, Setup
from gateway.simulation.traffic import Manners, Phase, rates

WARM_UP_S = 20.0
STATIONARY_S = 90.0
LONG_S = 110.0
KNEE = 2.5  # the load at which goodput no longer grows
ONSETS, ONSET_EVERY_S, ONSET_LASTS_S = 14, 9.0, 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """One play. `spells` say from when on which stationary phase holds, for what is achievable."""

    name: str
    profile: Profile
    phases: tuple[Phase, ...]
    until_s: float
    window: Window
    spells: tuple[tuple[float, str], ...]
    faults: tuple[EngineFault, ...] = ()
    manners: Manners = field(default_factory=Manners)
    callers: tuple[int, ...] = ()

    def setup(
        self, policy: GatePolicy, seed: int, *, gateways: int = 1, outer: OuterSpec | None = None
    ) -> Setup:
        """A run of this play. `outer` None: no slow loop."""
        return Setup(
            profile=self.profile,
            policy=policy,
            phases=self.phases,
            until_s=self.until_s,
            seed=seed,
            manners=self.manners,
            gateways=gateways,
            faults=self.faults,
            outer=outer,
            callers=self.callers,
        )


def stationary(
    profile: Profile, factor: float, *, prompt_tokens: float | None = None, name: str | None = None
) -> Play:
    """The same load all the time."""
    stretch = profile.stretch
    until = STATIONARY_S * stretch
    return Play(
        name=name or f"x{factor:g}",
        profile=profile,
        phases=(Phase(0.0, rates(profile, factor), prompt_tokens),),
        until_s=until,
        window=(WARM_UP_S * stretch, until),
        spells=((0.0, "usual"),),
    )


def storm(profile: Profile) -> Play:
    """Ten times the load, and nobody obeys Retry-After."""
    return replace(stationary(profile, 10.0), name="storm", manners=Manners(is_storm=True))


def flood(profile: Profile) -> Play:
    """P0 alone sends thirty times its base."""
    play = stationary(profile, 1.0)
    return replace(play, name="flood", phases=(Phase(0.0, rates(profile, 1.0, flood=30.0)),))


def jump(profile: Profile) -> Play:
    """Prompts grow eightfold for a while, at 1.3 times the load."""
    short, long = _jump_prompts(profile)
    stretch, load = profile.stretch, rates(profile, 1.3)
    return Play(
        name="jump",
        profile=profile,
        phases=(
            Phase(0.0, load, short),
            Phase(40.0 * stretch, load, long),
            Phase(80.0 * stretch, load, short),
        ),
        until_s=LONG_S * stretch,
        window=(WARM_UP_S * stretch, LONG_S * stretch),
        spells=((0.0, "short"), (40.0 * stretch, "long"), (80.0 * stretch, "short")),
    )


def slow_down(profile: Profile) -> Play:
    """The first engine is three times slower for 20 s, at 1.2 times the load."""
    stretch = profile.stretch
    until = 100.0 * stretch
    return Play(
        name="slow-down",
        profile=profile,
        phases=(Phase(0.0, rates(profile, 1.2)),),
        until_s=until,
        window=(WARM_UP_S * stretch, until),
        spells=((0.0, "usual"), (40.0 * stretch, "one slow"), (60.0 * stretch, "usual")),
        faults=(EngineFault(40.0 * stretch, 0, 3.0), EngineFault(60.0 * stretch, 0)),
    )


def loss(profile: Profile) -> Play:
    """The first engine is lost for 30 s, at the base load."""
    stretch = profile.stretch
    until = LONG_S * stretch
    return Play(
        name="loss",
        profile=profile,
        phases=(Phase(0.0, rates(profile, 1.0)),),
        until_s=until,
        window=(WARM_UP_S * stretch, until),
        spells=((0.0, "usual"), (40.0 * stretch, "one lost"), (70.0 * stretch, "usual")),
        faults=(EngineFault(40.0 * stretch, 0, is_lost=True), EngineFault(70.0 * stretch, 0)),
    )


def burst(profile: Profile) -> Play:
    """From .7 times the load to ten times, for 30 s."""
    stretch = profile.stretch
    until = LONG_S * stretch
    calm, wild = rates(profile, 0.7), rates(profile, 10.0)
    return Play(
        name="burst",
        profile=profile,
        phases=(Phase(0.0, calm), Phase(40.0 * stretch, wild), Phase(70.0 * stretch, calm)),
        until_s=until,
        window=(WARM_UP_S * stretch, until),
        spells=((0.0, "usual"),),
    )


def always_slow(profile: Profile) -> Play:
    """One engine slow all the time, past the knee: what is achievable meanwhile."""
    return replace(stationary(profile, KNEE), name="one slow", faults=(EngineFault(0.0, 0, 3.0),))


def always_lost(profile: Profile) -> Play:
    """One engine lost all the time, past the knee: what is achievable meanwhile."""
    return replace(stationary(profile, KNEE), name="one lost", faults=(EngineFault(0.0, 0, is_lost=True),))


def short_prompts(profile: Profile) -> Play:
    """The prompts before the jump, past the knee."""
    return stationary(profile, 2.0, prompt_tokens=_jump_prompts(profile)[0], name="short")


def long_prompts(profile: Profile) -> Play:
    """The prompts of the jump, at its load."""
    return stationary(profile, 1.3, prompt_tokens=_jump_prompts(profile)[1], name="long")


def unloaded(profile: Profile) -> Play:
    """Nearly nothing to do."""
    return stationary(profile, 0.08, name="unloaded")


def unloaded_long(profile: Profile) -> Play:
    """Nearly nothing to do, with the long prompts of the jump."""
    return stationary(profile, 0.04, prompt_tokens=_jump_prompts(profile)[1], name="unloaded-long")


def onsets(seed: int) -> tuple[float, ...]:
    """Instants at which the first engine becomes slow in the play `onsets`: at random phases of its steps."""
    dice = random.Random(f"onsets {seed}")  # noqa: S311  # a model, not a secret
    return tuple(WARM_UP_S + ONSET_EVERY_S * index + dice.random() for index in range(ONSETS))


def onset_play(profile: Profile, seed: int) -> Play:
    """The first engine becomes three times slower again and again, for some seconds each time."""
    faults = tuple(
        fault
        for onset in onsets(seed)
        for fault in (EngineFault(onset, 0, 3.0), EngineFault(onset + ONSET_LASTS_S, 0))
    )
    play = stationary(profile, 1.2, name="onsets")
    until = WARM_UP_S + ONSET_EVERY_S * ONSETS
    return replace(play, faults=faults, until_s=until, window=(WARM_UP_S, until))


def calm(profile: Profile) -> Play:
    """The load of the onsets, and nothing happens."""
    return stationary(profile, 1.2, name="calm")


def closed_loop(profile: Profile) -> Play:
    """A few callers that call again and again, on one engine."""
    alone = replace(profile, engines=1)
    play = stationary(alone, 1.0, name="closed-loop")
    return replace(play, phases=(Phase(0.0, (0.0, 0.0, 0.0)),), callers=(2, 6, 8))


def _jump_prompts(profile: Profile) -> tuple[float, float]:
    if profile.jump_prompts is None:
        raise ValueError(f"profile {profile.name} has no prompt jump")
    return profile.jump_prompts


_PLAYS: dict[str, Callable[[Profile], Play]] = {
    "storm": storm,
    "flood": flood,
    "jump": jump,
    "slow-down": slow_down,
    "loss": loss,
    "burst": burst,
    "one slow": always_slow,
    "one lost": always_lost,
    "short": short_prompts,
    "long": long_prompts,
    "unloaded": unloaded,
    "unloaded-long": unloaded_long,
    "calm": calm,
    "closed-loop": closed_loop,
}


def named(profile: Profile, name: str, seed: int) -> Play:
    """The play of that name: `x` and a factor is a stationary load. Raises KeyError."""
    if name.startswith("x"):
        return stationary(profile, float(name[1:]))
    if name == "onsets":
        return onset_play(profile, seed)
    return _PLAYS[name](profile)
