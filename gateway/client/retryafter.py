"""How long a server asks to wait, from the headers of its refusal. Pure; never raises, whatever the headers say.

Read are `retry-after-ms` (milliseconds, what the official SDKs prefer) and `Retry-After` as seconds or as a date
(RFC 9110, 10.2.3). Where several are there, the wait is never shorter than any of them asks, with one exception: a
`retry-after-ms` that lies within the last second of `Retry-After` is the same instant told more exactly.
What makes no sense (negative, junk, empty) counts as missing.
"""

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Protocol

_match_number = re.compile(r"[0-9]{1,15}(\.[0-9]{0,9})?").fullmatch
_LONGEST_DATE = 64


class Headers(Protocol):
    """What is asked of headers; `httpx2.Headers` fits."""

    def get_list(self, key: str) -> Sequence[str]:
        """The values of every line of that name, in order."""


def named_wait_s(headers: Headers, wall_s: float) -> float | None:
    """Seconds (>= 0) that the server names, or None where it names none that makes sense.

    A date is held against the answer's own `Date`, so that a clock that is wrong on either side does no harm; without
    one, against `wall_s` (epoch seconds).
    """
    seconds = _largest(_number(value) for value in _items(headers, "retry-after"))
    until = _largest(_epoch_s(value) for value in headers.get_list("retry-after"))
    if until is not None:
        sent_at = _largest(_epoch_s(value) for value in headers.get_list("date"))
        left_s = max(0.0, until - (wall_s if sent_at is None else sent_at))
        seconds = left_s if seconds is None else max(seconds, left_s)
    milliseconds = _largest(_number(value) for value in _items(headers, "retry-after-ms"))
    if milliseconds is None:
        return seconds
    exact = milliseconds / 1000
    if seconds is None or exact > seconds or seconds - exact < 1:
        return exact
    return seconds


def _items(headers: Headers, name: str) -> list[str]:
    """Values of all lines; an intermediary may have joined two lines by a comma."""
    return [item.strip() for line in headers.get_list(name) for item in line.split(",")]


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _number(text: str) -> float | None:
    """Decimals are no valid Retry-After, but leave no doubt about what is meant."""
    return float(text) if _match_number(text) else None


def _epoch_s(text: str) -> float | None:
    """An HTTP date in any of its three forms; without a zone it is UTC."""
    if len(text) > _LONGEST_DATE or ":" not in text:
        return None
    try:
        at = parsedate_to_datetime(text.strip())
        stamp = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return stamp if math.isfinite(stamp) else None
