"""Guesses that calibrate themselves: output length, prompt tokens of a body, LLM tokens per chunk.

A guess bounds nothing by itself: reservations are settled by real usage, and the valve counts tokens as they come.
"""

from collections.abc import Mapping
from math import ceil, isfinite

OUTPUT_WEIGHT = 0.05
RATIO_WEIGHT = 0.05
MAX_ENTRIES = 10_000
BYTES_PER_TOKEN = 4.0
IMAGE_TOKENS = 1_000


class OutputPredictor:
    """Output length per (tenant, pool): predicted += .05 * (output - predicted), from the pool's default.

    The error is taken against the present prediction, not the one made at dispatch: with many tickets in flight the
    latter is a delayed integrator, and swings. At most `max_entries` are kept; the one least recently learnt from goes.
    Bound: predictions stay between 1 and the largest output ever learnt or the default.
    """

    def __init__(
        self, defaults: Mapping[str, int], *, fallback: int = 256, max_entries: int = MAX_ENTRIES
    ) -> None:
        """`defaults`: pool -> tokens predicted before anything was seen of a tenant there."""
        self._defaults = dict(defaults)
        self._fallback = fallback
        self._max_entries = max_entries
        self._means: dict[tuple[str, str], float] = {}
        self._error = 0.0

    def __len__(self) -> int:
        return len(self._means)

    def configure(self, defaults: Mapping[str, int]) -> None:
        """Take new defaults; what was learnt stays."""
        self._defaults = dict(defaults)

    def predict(self, tenant: str, pool: str) -> int:
        """Expected output in LLM tokens, at least 1."""
        mean = self._means.get((tenant, pool))
        if mean is None:
            return self._defaults.get(pool, self._fallback)
        return round(mean) if mean > 1.0 else 1

    def learn(self, tenant: str, pool: str, predicted: int, actual: int) -> None:
        """A ticket ended with `actual` output tokens after `predicted` had been expected. Negative: ignored."""
        if actual < 0:
            return
        self._error += OUTPUT_WEIGHT * (abs(actual - predicted) - self._error)
        key = (tenant, pool)
        mean = self._means.pop(key, None)  # and back in below: the order is that of the last lesson
        if mean is None:
            mean = float(self._defaults.get(pool, self._fallback))
            if len(self._means) >= self._max_entries:
                del self._means[next(iter(self._means))]
        self._means[key] = mean + OUTPUT_WEIGHT * (actual - mean)

    @property
    def error_tokens(self) -> float:
        """Recent mean distance of predictions from the truth."""
        return self._error


class RatioTable:
    """A ratio per key as the quotient of two averages (weight .05): averaging quotients would favour small samples.

    At most `max_entries` keys; the one least recently learnt from goes. Samples that are not finite or not positive are
    ignored, so the ratio is finite and positive.
    """

    def __init__(self, initial: float, *, max_entries: int = MAX_ENTRIES) -> None:
        """`initial` is the ratio of a key never seen."""
        self._initial = initial
        self._max_entries = max_entries
        self._averages: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._averages)

    def ratio(self, key: str) -> float:
        """Numerator per denominator."""
        averages = self._averages.get(key)
        return self._initial if averages is None else averages[0] / averages[1]

    def learn(self, key: str, numerator: float, denominator: float) -> None:
        """Take one pair."""
        if not (isfinite(numerator) and isfinite(denominator) and numerator > 0 and denominator > 0):
            return
        averages = self._averages.pop(key, None)
        if averages is None:
            if len(self._averages) >= self._max_entries:
                del self._averages[next(iter(self._averages))]
            averages = (self._initial * denominator, denominator)
        above, below = averages
        self._averages[key] = (
            above + RATIO_WEIGHT * (numerator - above),
            below + RATIO_WEIGHT * (denominator - below),
        )


class PromptEstimator:
    """Prompt tokens of a body from its bytes: bytes per token per model, starting at 4, learnt from real usage."""

    def __init__(self, *, image_tokens: int = IMAGE_TOKENS, max_entries: int = MAX_ENTRIES) -> None:
        """`image_tokens`: what one image part counts."""
        self._bytes_per_token = RatioTable(BYTES_PER_TOKEN, max_entries=max_entries)
        self._image_tokens = image_tokens

    def estimate(self, model: str, prompt_bytes: int, image_parts: int = 0) -> int:
        """Expected prompt tokens, at least 1; a negative size counts as nothing."""
        text = max(0, prompt_bytes) / self._bytes_per_token.ratio(model)
        return max(1, ceil(text) + max(0, image_parts) * self._image_tokens)

    def learn(self, model: str, prompt_bytes: int, prompt_tokens: int, image_parts: int = 0) -> None:
        """The engine counted `prompt_tokens` for that many bytes and images."""
        self._bytes_per_token.learn(model, prompt_bytes, prompt_tokens - image_parts * self._image_tokens)


class ChunkEstimator:
    """LLM tokens per streamed chunk and pool, starting at 1 (speculative decoding sends several)."""

    def __init__(self, *, max_entries: int = MAX_ENTRIES) -> None:
        """Start at one token per chunk everywhere."""
        self._tokens_per_chunk = RatioTable(1.0, max_entries=max_entries)

    def tokens_per_chunk(self, pool: str) -> float:
        """Expected LLM tokens in one chunk."""
        return self._tokens_per_chunk.ratio(pool)

    def learn(self, pool: str, chunks: int, completion_tokens: int) -> None:
        """A stream of that many content chunks held `completion_tokens`."""
        self._tokens_per_chunk.learn(pool, completion_tokens, chunks)
