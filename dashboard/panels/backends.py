"""Backend cards: size is what it carries, ring and word are its health, then breaker, KV, seats, engine and signal."""

import math
from dataclasses import dataclass

from django.utils.translation import gettext as _

from dashboard.panels.scene import SATURATED_RATIO, SLOW_FACTOR, Scene, is_out, is_silent
from dashboard.panels.tiles import Chip
from dashboard.panels.wording import NBSP, count, duration, percent, rate, seconds, times
from gateway.contract.frame import BackendFrame, BreakerFrame, OverrideFrame
from gateway.core.vocabulary import Account, BreakerState, OverrideKind

ENGINES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt_llm": "TensorRT-LLM",
    "llama_cpp": "llama.cpp",
    "tgi": "TGI",
}
ORB_RADIUS = 21.0
BUSY_RATIO = 0.5
KV_HIGH_RATIO = 0.95


@dataclass(frozen=True, slots=True)
class Breaker:
    """A breaker's chip, and until when its state lasts (epoch seconds) where that is known."""

    chip: Chip
    until: float | None


@dataclass(frozen=True, slots=True)
class Card:
    """What one backend's card says. Empty strings stand for unknown; the template prints the word."""

    name: str
    pool: str
    engine: str
    word: str
    word_style: str
    orb_style: str
    orb_radius: float
    in_flight: str
    breaker: Breaker
    chips: tuple[Chip, ...]
    kv: str
    kv_share: float
    kv_note: str
    is_kv_high: bool
    seats: str
    seats_share: float
    engine_waiting: str
    preemptions: str
    is_preempting: bool
    signal_age: str
    is_silent: bool
    override: OverrideFrame | None


def cards(scene: Scene) -> tuple[Card, ...]:
    """All backends of the scene's pools."""
    by_target = {o.target: o for o in scene.frame.overrides if o.kind == OverrideKind.BREAKER}
    return tuple(_card(b, by_target.get(b.backend)) for b in scene.backends)


def breaker(frame: BreakerFrame) -> Breaker:
    """State as icon and word; `until` feeds the countdown."""
    match frame.state:
        case BreakerState.OPEN:
            chip = Chip("solid", "open", _("Open, probe in") if frame.until else _("Open"))
        case BreakerState.HALF_OPEN:
            chip = Chip("bad", "half", _("Half-open, probing"))
        case BreakerState.FORCED_OPEN:
            chip = Chip("solid", "hand", _("Forced open"))
        case BreakerState.FORCED_CLOSED:
            chip = Chip("override", "hand", _("Forced closed"))
        case _:
            return Breaker(Chip("good", "closed", _("Closed")), None)
    return Breaker(chip, frame.until)


def engine_name(engine: str) -> str:
    """How an engine's software is written."""
    return ENGINES.get(engine, engine)


def _card(backend: BackendFrame, override: OverrideFrame | None) -> Card:
    word, style, orb = _health(backend)
    share = min(1.0, backend.in_flight / backend.limit) if backend.limit > 0 else 0.0
    return Card(
        name=backend.backend,
        pool=backend.pool,
        engine=engine_name(backend.engine),
        word=word,
        word_style=style,
        orb_style=orb,
        orb_radius=round(ORB_RADIUS * math.sqrt(share), 1),
        in_flight=count(backend.in_flight),
        breaker=breaker(backend.breaker),
        chips=_chips(backend),
        kv="" if backend.kv_ratio is None else percent(backend.kv_ratio),
        kv_share=round(min(1.0, backend.kv_ratio or 0.0) * 100, 1),
        kv_note=_("from slots") if backend.kv_source == "slots" else "",
        is_kv_high=backend.kv_ratio is not None and backend.kv_ratio >= KV_HIGH_RATIO,
        seats=count(0 if is_out(backend) else backend.limit),
        seats_share=round(share * 100, 1),
        engine_waiting="" if backend.engine_waiting is None else count(backend.engine_waiting),
        preemptions="" if backend.preemptions_per_s is None else rate(backend.preemptions_per_s),
        is_preempting=bool(backend.preemptions_per_s),
        signal_age=_age(backend.telemetry_age_s),
        is_silent=backend.telemetry_age_s is None or is_silent(backend),
        override=override,
    )


def _age(age_s: float | None) -> str:
    if age_s is None:
        return ""
    return f"{age_s:.1f}{NBSP}s" if age_s < 60 else duration(age_s)


def _health(backend: BackendFrame) -> tuple[str, str, str]:
    """The word beside the name, its style, and the ring. The first that is true, gravest first."""
    kv = backend.kv_use_ratio or backend.kv_ratio or 0.0
    troubles = (
        (is_out(backend), _("out"), "bad"),
        (backend.breaker.state == BreakerState.HALF_OPEN, _("probing"), "warn"),
        (is_silent(backend), _("no signal"), "warn"),
        (backend.slow > SLOW_FACTOR and backend.in_flight > 0, _("slow"), "warn"),
        (bool(backend.preemptions_per_s), _("saturated"), "warn"),
        (backend.binding == Account.KV and kv >= SATURATED_RATIO, _("saturated"), "warn"),
    )
    for holds, word, ring in troubles:
        if holds:
            return word, "bad", ring
    if backend.in_flight == 0:
        return _("idle"), "good", ""
    is_busy = backend.binding is not None or backend.sequences_ratio >= BUSY_RATIO
    return (_("busy") if is_busy else _("healthy")), "good", ""


def _chips(backend: BackendFrame) -> tuple[Chip, ...]:
    chips = []
    names = {
        Account.PREFILL: _("prefill binds"),
        Account.KV: _("KV binds"),
        Account.SEQUENCES: _("seats bind"),
    }
    if backend.binding in set(Account) and not is_out(backend):
        chips.append(Chip("bad", "valve", names[Account(backend.binding)]))
    if backend.slow > SLOW_FACTOR and backend.in_flight > 0 and not is_out(backend):
        chips.append(Chip("bad", "clock", _("%(times)s slower") % {"times": times(backend.slow)}))
    if backend.tpot_s is not None and backend.in_flight > 0:
        chips.append(Chip("outline", "pulse", _("TPOT %(time)s") % {"time": seconds(backend.tpot_s)}))
    return tuple(chips)
