"""The form of an API key, and the arithmetic that makes and recognises one. Pure: randomness is passed in.

    sg_<env: 2-8 letters>_<12 base62: public id>_<43 base62: secret><6 base62: crc32 of all before it>

The public id names the key in look-ups, logs and pages; the secret has 256 bits. Stored is only
HMAC-SHA256(pepper, whole key). The checksum lets a mistyped or invented key be refused without any look-up.
REST tokens have the same form with the prefix `sga`.
"""

import hashlib
import hmac
import re
import zlib
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
RANDOM_BYTES = 48  # 384 bits for 55 digits of base 62 (327.5 bits): the remainder's bias is below 2^-56
MAX_LENGTH = 78  # sga_ + 8 + _ + 12 + _ + 49
_PAIRS = tuple(one + other for one in ALPHABET for other in ALPHABET)  # base 3844: a checksum per request
_BLOCK_BYTES = 64  # of SHA-256
_ID_DIGITS = 12
_SECRET_DIGITS = 43
_CHECK_DIGITS = 6

_match_key = re.compile(r"sga?_[a-z]{2,8}_([0-9A-Za-z]{12})_[0-9A-Za-z]{49}", re.ASCII).fullmatch
_match_id = re.compile(r"[0-9A-Za-z]{12}", re.ASCII).fullmatch
_match_env = re.compile(r"[a-z]{2,8}", re.ASCII).fullmatch


class MintedKey(NamedTuple):
    """A new key (shown once) and its public id (stored and shown)."""

    key: str
    public_id: str


def _base62(number: int, digits: int) -> str:
    out = []
    for _ in range(digits):
        number, digit = divmod(number, 62)
        out.append(ALPHABET[digit])
    return "".join(reversed(out))


def _checksum(text: str) -> str:
    high, low = divmod(zlib.crc32(text.encode()), 3844)
    high, middle = divmod(high, 3844)
    return _PAIRS[high] + _PAIRS[middle] + _PAIRS[low]


def mint(env: str, randomness: bytes, *, prefix: str = "sg", public_id: str | None = None) -> MintedKey:
    """A new key from at least RANDOM_BYTES of cryptographic randomness; `public_id` is kept where a key is rotated.

    Raises:
        ValueError: `env` is not 2 to 8 small letters, the prefix is unknown, the public id is none, or there is too
            little randomness.
    """
    if not _match_env(env):
        raise ValueError("env: 2 to 8 small letters are needed")
    if prefix not in ("sg", "sga"):
        raise ValueError("prefix: sg or sga")
    if len(randomness) < RANDOM_BYTES:
        raise ValueError(f"randomness: at least {RANDOM_BYTES} bytes are needed")
    digits = _base62(int.from_bytes(randomness, "big"), _ID_DIGITS + _SECRET_DIGITS)
    fresh_id, secret = digits[:_ID_DIGITS], digits[_ID_DIGITS:]
    public_id = fresh_id if public_id is None else public_id
    if not _match_id(public_id):
        raise ValueError("public_id: 12 digits of base 62 are needed")
    unchecked = f"{prefix}_{env}_{public_id}_{secret}"
    return MintedKey(unchecked + _checksum(unchecked), public_id)


def public_id_of(key: str) -> str | None:
    """The public id of a well-formed key with a right checksum, else None."""
    match = _match_key(key)
    if match is None or _checksum(key[:-_CHECK_DIGITS]) != key[-_CHECK_DIGITS:]:
        return None
    return match[1]


@lru_cache(maxsize=8)
def _keyed(pepper: bytes) -> tuple["hashlib._Hash", "hashlib._Hash"]:
    """The two halves of HMAC (RFC 2104) with the pepper taken in already.

    OpenSSL looks its algorithms up anew for each one-shot HMAC: 14 us with cold caches, against 1.4 us for two copies.
    """
    block = (hashlib.sha256(pepper).digest() if len(pepper) > _BLOCK_BYTES else pepper).ljust(
        _BLOCK_BYTES, b"\0"
    )
    return hashlib.sha256(bytes(b ^ 0x36 for b in block)), hashlib.sha256(bytes(b ^ 0x5C for b in block))


def digest(pepper: bytes, key: str) -> str:
    """What is stored of a key: HMAC-SHA256(pepper, whole key), hex."""
    inner, outer = _keyed(pepper)
    within = inner.copy()
    within.update(key.encode())
    whole = outer.copy()
    whole.update(within.digest())
    return whole.hexdigest()


def matches(pepper: bytes, key: str, digests: Iterable[str]) -> bool:
    """Whether the key has one of these digests; takes the same time whichever and whether it does."""
    wanted = digest(pepper, key)
    found = False
    for known in digests:
        found |= hmac.compare_digest(wanted, known)
    return found
