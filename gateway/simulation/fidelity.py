"""From a real engine's timings to a model of it, and what the model then predicts. Pure arithmetic.

Three timings of one live run are enough for an engine without shared KV memory: the time per token of one stream, of
many streams, and the time to first token of a long prompt. `step(n) = base + per_seq * n` goes through the first two.
"""

from dataclasses import dataclass

from gateway.simulation.model import Engine
from gateway.simulation.profiles import LLAMA4, EngineSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """What was measured on a live engine, in seconds and LLM tokens."""

    one_stream_s: float  # time per output token of a single stream
    many_streams_s: float  # time per output token of each of `streams` streams
    streams: int
    prompt_tokens: int
    first_token_s: float  # of that prompt, alone


def fitted(timings: Timings, seats: int) -> EngineSpec:
    """The engine that has these timings. Raises ValueError where they cannot belong to one engine."""
    if timings.streams < 2 or timings.prompt_tokens < 1:  # two points make a line
        raise ValueError("streams must be at least 2 and prompt_tokens at least 1")
    if not 0.0 < timings.one_stream_s <= timings.many_streams_s:
        raise ValueError("one_stream_s must be positive and not above many_streams_s")
    per_seq = (timings.many_streams_s - timings.one_stream_s) / (timings.streams - 1)
    per_prefill = max(0.0, timings.first_token_s - timings.one_stream_s) / timings.prompt_tokens
    return EngineSpec(
        base_s=max(0.0, timings.one_stream_s - per_seq),
        per_seq_s=per_seq,
        per_prefill_s=per_prefill,
        seats=seats,
        context_tokens=LLAMA4.engine.context_tokens,
        jitter_sigma=0.0,
    )


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says of some requests that all come at once."""

    tokens_per_s: float
    first_tokens_s: tuple[float, ...]  # ascending


def predicted(spec: EngineSpec, requests: int, prompt_tokens: int, output_tokens: int) -> Prediction:
    """Let so many equal requests come at once and run them to the end."""
    engine = Engine(spec)
    for number in range(requests):
        engine.submit(str(number), prompt_tokens, output_tokens)
    now = 0.0
    firsts = []
    while (duration := engine.start_step()) is not None:
        now += duration
        firsts += [now for sequence in engine.finish_step() if sequence.generated == 1]
    return Prediction(requests * output_tokens / now, tuple(firsts))
