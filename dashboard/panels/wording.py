"""How numbers, times and lists read. Units stand after a no-break space; unknown is a word, never 0."""

from collections.abc import Sequence
from datetime import UTC, datetime

from django.utils.formats import number_format
from django.utils.translation import gettext as _

NBSP = "\N{NO-BREAK SPACE}"


def _unit(words: str) -> str:
    """Number and unit never part at the end of a line."""
    return words.replace(" ", NBSP)


def count(value: float) -> str:
    """A whole number, grouped: 1,316."""
    return str(number_format(round(value), 0, use_l10n=True, force_grouping=True))


def rate(value: float) -> str:
    """A rate per second, without its unit: 9.4; above a hundred 137.8 still, above a thousand 1,378."""
    return count(value) if value >= 1000 else str(number_format(value, 1, use_l10n=True))


def percent(ratio: float, digits: int = 0) -> str:
    """A ratio as a percentage. Neither 0 nor 100 is claimed by rounding."""
    value = ratio * 100
    step = 10.0**-digits
    if 0 < value < step / 2:
        value = step
    if 100 - step / 2 <= value < 100:
        value = 100 - step
    return f"{number_format(value, digits, use_l10n=True)}{NBSP}%"


def seconds(value: float) -> str:
    """A short time: 0.71 s, 3.4 s, 12 s; under 10 ms in milliseconds."""
    if 0 < value < 0.0995:
        return _unit(_("%(n)s ms") % {"n": number_format(value * 1000, 0)})
    digits = 2 if value < 1 else 1 if value < 20 else 0
    text = str(number_format(value, digits, use_l10n=True))
    return _unit(_("%(n)s s") % {"n": text})


def bound_s(value: float) -> str:
    """A set time, as it was set: 0.5 s, 1 s, 15 s."""
    return _unit(_("%(n)s s") % {"n": f"{value:g}"})


def duration(value: float) -> str:
    """How long something lasts already: 90 s, 4 min, 6 h 41 min."""
    whole = int(value)
    if whole < 120:
        return _unit(_("%(n)s s") % {"n": whole})
    minutes = whole // 60
    if minutes < 60:
        return _unit(_("%(n)s min") % {"n": minutes})
    if minutes % 60 == 0:
        return _unit(_("%(n)s h") % {"n": minutes // 60})
    return _unit(_("%(h)s h %(m)s min") % {"h": minutes // 60, "m": minutes % 60})


def clock(at: float) -> str:
    """The time of day of an instant: 14:06:32. One that no calendar knows is told so, not a fault of the page."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "--:--:--"


def stamp(at: float) -> str:
    """The time of day with its zone: 14:06:32 UTC."""
    return f"{clock(at)}{NBSP}UTC"


def countdown(left_s: float) -> str:
    """Time left: 22:58, 1 h 05 min, 16 s."""
    whole = max(0, int(left_s))
    if whole >= 3600:
        return _unit(_("%(h)s h %(m)s min") % {"h": whole // 3600, "m": f"{whole % 3600 // 60:02d}"})
    return f"{whole // 60}:{whole % 60:02d}" if whole >= 60 else _unit(_("%(n)s s") % {"n": whole})


def listed(names: Sequence[str], most: int = 3) -> str:
    """b1; b1 and b2; b1, b2 and b3; b1, b2 and 4 more."""
    shown = list(names)
    if len(shown) > most:
        shown = [*shown[: most - 1], _("%(n)s more") % {"n": len(names) - most + 1}]
    if len(shown) < 2:
        return "".join(shown)
    return _("%(first)s and %(last)s") % {"first": ", ".join(shown[:-1]), "last": shown[-1]}


def times(factor: float) -> str:
    """A factor: 10x, 2.5x."""
    return f"{round(factor)}x" if factor >= 4 else f"{round(factor, 1):g}x"  # 3.5x, but 12x


def known(value: float | None, words: str) -> str:
    """`words` where the value is known, else the word for unknown."""
    return _("unknown") if value is None else words
