"""What a request's headers say about it: deadline, retry, priority, idempotency, language, trace.

Headers are hints: one that makes no sense is ignored, except `x-request-timeout-ms`, which exists only here and is
refused where it is wrong. A caller may lower its priority and never raise it.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from gateway.contract.snapshot import TierSpec
from gateway.faults import CallerError, CallerFault

Headers = Mapping[bytes, bytes]  # names in small letters; of a repeated one, the last

MAX_CLIENT_ID = 64
MAX_IDEMPOTENCY_KEY = 255
MAX_TIMEOUT_S = 86_400.0
_match_traceparent = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}").fullmatch
_match_whole = re.compile(rb"[0-9]{1,9}").fullmatch
_match_seconds = re.compile(rb"[0-9]{1,9}(\.[0-9]{1,9})?").fullmatch
_unprintable = re.compile(r"[^\x21-\x7e]")


class Hints(Struct, frozen=True):
    """What the headers ask for. `timeout_s`: how long the caller waits; None where it says nothing."""

    timeout_s: float | None
    is_retry: bool
    tier: bytes | None
    idempotency_key: bytes | None
    traceparent: str
    client_id: str  # the caller's own request id: shortened, printable


def read(headers: Headers) -> Hints:
    """All hints at once.

    Raises:
        CallerError: `x-request-timeout-ms` is not a positive whole number, or the idempotency key is too long.
    """
    key = headers.get(b"idempotency-key")
    if key is not None and len(key) > MAX_IDEMPOTENCY_KEY:
        raise CallerError(
            CallerFault.INVALID, f"Idempotency-Key: at most {MAX_IDEMPOTENCY_KEY} bytes.", "Idempotency-Key"
        )
    trace = headers.get(b"traceparent")
    client_id = headers.get(b"x-request-id")
    return Hints(
        timeout_s=_timeout(headers),
        is_retry=_is_retry(headers.get(b"x-stainless-retry-count")),
        tier=headers.get(b"x-sluicegate-tier"),
        idempotency_key=key or None,
        traceparent=trace.decode() if trace is not None and _match_traceparent(trace) else "",
        client_id=_printable(client_id) if client_id else "",
    )


def _printable(value: bytes) -> str:
    return _unprintable.sub("?", value[:MAX_CLIENT_ID].decode("ascii", "replace"))


def _timeout(headers: Headers) -> float | None:
    ours = headers.get(b"x-request-timeout-ms")
    if ours is not None:
        if not _match_whole(ours) or int(ours) == 0:
            raise CallerError(
                CallerFault.INVALID,
                "x-request-timeout-ms: a positive whole number of milliseconds is expected.",
                "x-request-timeout-ms",
            )
        return min(int(ours) / 1000, MAX_TIMEOUT_S)
    theirs = headers.get(b"x-stainless-read-timeout") or headers.get(b"x-stainless-timeout")
    if theirs is None or not _match_seconds(theirs):
        return None
    return min(float(theirs), MAX_TIMEOUT_S) or None


def _is_retry(count: bytes | None) -> bool:
    return count is not None and count != b"0" and bool(_match_whole(count)) and int(count) > 0


def lowered_tier(wish: bytes, granted: int, tiers: Mapping[int, TierSpec]) -> tuple[int, bool]:
    """(the tier to use, whether the wish was ignored) for a wish such as `2`, `P2` or a tier's name."""
    rank = _rank(wish.decode("ascii", "replace").strip(), tiers)
    if rank is None or rank < granted:
        return granted, True
    return rank, False


def _rank(wish: str, tiers: Mapping[int, TierSpec]) -> int | None:
    digits = wish[1:] if wish[:1] in ("P", "p") else wish
    if len(digits) < 4 and digits.isascii() and digits.isdigit():
        return int(digits) if int(digits) in tiers else None
    return next((rank for rank, tier in tiers.items() if tier.policy.name == wish), None)


@lru_cache(maxsize=256)
def language(accept_language: bytes) -> str:
    """`zh` where the caller prefers Chinese to English, else `en`."""
    best, best_weight = "en", 0.0
    for part in accept_language[:200].decode("ascii", "replace").lower().split(","):
        tag, _, weight_text = part.strip().partition(";q=")
        primary = tag.partition("-")[0].strip()
        weight = _weight(weight_text)
        if primary in ("en", "zh") and weight > best_weight:
            best, best_weight = primary, weight
    return best


def _weight(text: str) -> float:
    if not text:
        return 1.0
    return float(text) if _match_seconds(text.strip().encode()) else 0.0
