"""llama.cpp server: thin metrics, so KV tokens are derived from `/slots`, seats and context from `/props`.

KV tokens = sum of `n_prompt_tokens` over processing slots (it grows while decoding, so `n_decoded` would count twice);
their sum of `n_ctx` is what they are held against. No KV capacity is told on: each slot has a context of its own,
tokens of one can't be spent by another, and the gateway's KV account stays off. Scraping more often than every 1.5 s
keeps closed requests running inside the engine.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from control.engines.base import MAX_COUNT, Source, Table, Telemetry, count, parse, ratio

TABLE = Table(
    running=Source(("llamacpp:requests_processing",)),
    waiting=Source(("llamacpp:requests_deferred",)),
    output_tokens_total=Source(("llamacpp:tokens_predicted_total",)),
    extra=("llamacpp:tokens_predicted_seconds_total",),
)


class _Slot(Struct, frozen=True):
    n_ctx: int
    is_processing: bool
    n_prompt_tokens: int = 0


class _Generation(Struct, frozen=True):
    n_ctx: int | None = None


class _Props(Struct, frozen=True):
    total_slots: int | None = None
    default_generation_settings: _Generation = _Generation()


_slots = msgspec.json.Decoder(list[_Slot])
_props = msgspec.json.Decoder(_Props)


class LlamaCpp:
    """Nothing may queue inside it: its queue has no bound and it never answers 429 or 503."""

    name = "llama_cpp"
    interval_s = 2.0
    paths: tuple[str, ...] = ("/metrics", "/slots")
    facts_paths: tuple[str, ...] = ("/props",)

    def read(self, pages: Mapping[str, bytes]) -> Telemetry:
        """Understand `/metrics`, `/slots` and `/props`."""
        samples = parse(pages.get("/metrics", b""), TABLE.wanted)
        slots = _decode_slots(pages.get("/slots", b""))
        props = _decode_props(pages.get("/props", b""))
        seats = count(props.total_slots) or len(slots) or None
        context = count(props.default_generation_settings.n_ctx) or (slots[0].n_ctx if slots else None)
        used = sum(slot.n_prompt_tokens for slot in slots if slot.is_processing)
        capacity = sum(slot.n_ctx for slot in slots)
        kv_ratio = ratio(used / capacity) if capacity > 0 and used >= 0 else None
        return TABLE.read(
            samples,
            kv_ratio=kv_ratio,
            kv_source=None if kv_ratio is None else "slots",
            max_seqs=seats,
            context_tokens=context or None,
        )


def _decode_slots(page: bytes) -> list[_Slot]:
    try:
        return [slot for slot in _slots.decode(page) if _is_plausible(slot)]
    except (msgspec.DecodeError, RecursionError):
        return []


def _is_plausible(slot: _Slot) -> bool:
    return 0 < slot.n_ctx <= MAX_COUNT and 0 <= slot.n_prompt_tokens <= MAX_COUNT


def _decode_props(page: bytes) -> _Props:
    try:
        return _props.decode(page)
    except (msgspec.DecodeError, RecursionError):
        return _Props()
