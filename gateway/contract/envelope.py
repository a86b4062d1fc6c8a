r"""How a body travels: one header line, then the body's bytes, authenticated together with HMAC-SHA256.

    {"v":1,"kind":"bounds","generation":1,"epoch":7,"seq":41,"sent_at":...,"key_id":"...","mac":"..."}\n<body>

The mac covers the header without its `mac` and the body. Two keys may be known (rotation). Anything that is not
exactly this is refused with a named reason; the caller counts it and keeps what it has.
"""

import hashlib
import hmac

import msgspec
from msgspec import Struct

VERSION = 1
MAX_HEADER_BYTES = 1024


class EnvelopeRefused(Exception):  # noqa: N818  # a verdict, named by the glossary
    """The bytes are not a genuine envelope of the expected kind. `reason` is a low-cardinality word."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Header(Struct, frozen=True, kw_only=True):
    """What is known of a body before it is read. (generation, epoch, seq) orders bodies of one kind."""

    v: int = VERSION
    kind: str
    generation: int
    epoch: int
    seq: int
    sent_at: float
    key_id: str
    mac: str = ""

    @property
    def version(self) -> tuple[int, int, int]:
        """What is compared to tell newer from older."""
        return (self.generation, self.epoch, self.seq)


class SigningKey(Struct, frozen=True):
    """A shared secret and the public name that says which one was used."""

    secret: bytes

    @property
    def key_id(self) -> str:
        """First 8 hex digits of a digest of the secret: tells keys apart, reveals nothing."""
        return hashlib.sha256(b"sluicegate key id\0" + self.secret).hexdigest()[:8]


_header_decoder = msgspec.json.Decoder(Header)
_encode = msgspec.json.encode


def _mac(key: SigningKey, header: Header, body: bytes) -> str:
    unsigned = _encode(msgspec.structs.replace(header, mac=""))
    return hmac.new(key.secret, unsigned + b"\n" + body, hashlib.sha256).hexdigest()


def seal(key: SigningKey, header: Header, body: bytes) -> bytes:
    """Header line and body, signed with `key` (which also sets `key_id`)."""
    named = msgspec.structs.replace(header, key_id=key.key_id)
    signed = msgspec.structs.replace(named, mac=_mac(key, named, body))
    return _encode(signed) + b"\n" + body


def peek(data: bytes) -> Header:
    """The header alone, unchecked: for ages and versions to look at, never to act on a body.

    Raises:
        EnvelopeRefused: `malformed`.
    """
    line, newline, _ = data.partition(b"\n")
    if not newline or len(line) > MAX_HEADER_BYTES:
        raise EnvelopeRefused("malformed")
    try:
        return _header_decoder.decode(line)
    except (msgspec.DecodeError, RecursionError):
        raise EnvelopeRefused("malformed") from None


def unseal(keys: tuple[SigningKey, ...], kind: str, data: bytes) -> tuple[Header, bytes]:
    """Check and split an envelope.

    Raises:
        EnvelopeRefused: `malformed`, `version`, `kind`, `unknown_key` or `forged`.
    """
    header = peek(data)
    _, _, body = data.partition(b"\n")
    if header.v != VERSION:
        raise EnvelopeRefused("version")
    if header.kind != kind:
        raise EnvelopeRefused("kind")
    key = next((k for k in keys if k.key_id == header.key_id), None)
    if key is None:
        raise EnvelopeRefused("unknown_key")
    # as bytes: of two texts, compare_digest takes ASCII only, and this one is anybody's
    if not hmac.compare_digest(_mac(key, header, body).encode(), header.mac.encode()):
        raise EnvelopeRefused("forged")
    return header, body
