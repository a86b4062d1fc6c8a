"""The engines that are simulated: their constants, and the load that each is measured with.

One model (`model`), several profiles. `gpu` is a vLLM-like engine on an accelerator, `tight` the same engine under
objectives that bind on time per output token; `cpu8`, `cpu32` are vLLM on two CPU cores, `llama8`, `llama4` are
llama.cpp on two CPU cores (one context per slot, so no shared KV memory). The CPU constants were measured.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """An engine: step = base + per_seq * sequences + per_prefill * prompt tokens + per_kv * KV tokens, in seconds."""

    base_s: float
    per_seq_s: float
    per_prefill_s: float
    per_kv_s: float = 0.0
    seats: int
    kv_tokens: int = 0  # 0: each seat has a context of its own, nothing is ever preempted
    block_tokens: int = 16
    context_tokens: int = 18_000  # longest prompt + output of one sequence
    chunk_tokens: int = 2048  # prompt tokens per step, shared by all prefills
    jitter_sigma: float = 0.07
    max_waiting: int | None = None  # None: the engine's own queue is unlimited


@dataclass(frozen=True, slots=True, kw_only=True)
class TierLoad:
    """What one tier's callers send, and what they expect. Sizes are means of lognormal distributions."""

    share: float
    prompt_tokens: float
    output_tokens: float
    ttft_objective_s: float
    tpot_objective_s: float
    first_token_patience_s: float
    total_patience_s: float
    gives_up_s: float
    max_retries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """An engine, how many of them, and the load called x1."""

    name: str
    engine: EngineSpec
    engines: int
    tiers: tuple[TierLoad, ...]
    base_per_s: float
    output_cost: float
    jump_prompts: tuple[float, float] | None  # mean prompt before and after the jump
    stretch: float  # factor on the scenarios' durations


_GPU = EngineSpec(
    base_s=0.015, per_seq_s=0.0002, per_prefill_s=30e-6, per_kv_s=80e-9, seats=96, kv_tokens=60_000
)
_CPU = EngineSpec(
    base_s=0.0077,
    per_seq_s=0.0008,
    per_prefill_s=500e-6,
    seats=8,
    kv_tokens=3_072,
    block_tokens=32,
    context_tokens=2_048,
)
_LLAMA = EngineSpec(
    base_s=0.0037, per_seq_s=0.0016, per_prefill_s=500e-6, seats=8, block_tokens=32, context_tokens=8_192
)

_SHARES = (0.25, 0.40, 0.35)
_BIG = ((400, 120), (1200, 250), (1000, 300))
_SMALL = ((100, 40), (300, 80), (250, 100))


def _tiers(
    sizes: tuple[tuple[int, int], ...],
    ttft: tuple[float, float, float],
    tpot: tuple[float, float, float],
    *,
    is_slow: bool,
) -> tuple[TierLoad, ...]:
    first = (12.0, 24.0, 80.0) if is_slow else (4.0, 12.0, 40.0)
    total = (60.0, 180.0, 300.0) if is_slow else (30.0, 90.0, 150.0)
    gives_up = (60.0, 120.0, 300.0) if is_slow else (15.0, 60.0, 150.0)
    return tuple(
        TierLoad(
            share=_SHARES[rank],
            prompt_tokens=sizes[rank][0],
            output_tokens=sizes[rank][1],
            ttft_objective_s=ttft[rank],
            tpot_objective_s=tpot[rank],
            first_token_patience_s=first[rank],
            total_patience_s=total[rank],
            gives_up_s=gives_up[rank],
            max_retries=(4, 6, 8)[rank],
        )
        for rank in range(3)
    )


_USUAL_TPOT = (0.15, 0.2, 0.3)
_FAST_TTFT = (1.0, 4.0, 15.0)
_SLOW_TTFT = (4.0, 8.0, 30.0)

GPU = Profile(
    name="gpu",
    engine=_GPU,
    engines=2,
    tiers=_tiers(_BIG, _FAST_TTFT, _USUAL_TPOT, is_slow=False),
    base_per_s=11.0,
    output_cost=20.0,
    jump_prompts=(500.0, 4000.0),
    stretch=1.0,
)
TIGHT = replace(
    GPU,
    name="tight",
    tiers=_tiers(_BIG, _FAST_TTFT, (0.026, 0.035, 0.05), is_slow=False),
    jump_prompts=None,
)
CPU8 = Profile(
    name="cpu8",
    engine=_CPU,
    engines=2,
    tiers=_tiers(_SMALL, _SLOW_TTFT, _USUAL_TPOT, is_slow=True),
    base_per_s=7.8,
    output_cost=4.0,
    jump_prompts=(75.0, 600.0),
    stretch=4.0,
)
CPU32 = replace(
    CPU8,
    name="cpu32",
    engine=replace(_CPU, seats=32, kv_tokens=49_152, context_tokens=8_192),
    tiers=_tiers(_BIG, _SLOW_TTFT, _USUAL_TPOT, is_slow=True),
    base_per_s=2.7,
    jump_prompts=(250.0, 2000.0),
)
LLAMA8 = replace(CPU32, name="llama8", engine=_LLAMA, base_per_s=2.0)
LLAMA4 = replace(CPU32, name="llama4", engine=replace(_LLAMA, seats=4), base_per_s=1.8)

PROFILES = {profile.name: profile for profile in (GPU, TIGHT, CPU8, CPU32, LLAMA8, LLAMA4)}
