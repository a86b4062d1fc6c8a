"""Who is calling: an API key in, its tenant and the lowest tier that the key allows out. No I/O.

A key is looked up by its public id in the snapshot in force and compared by its digest in constant time; a malformed
one or one with a wrong checksum is refused before any look-up. Every failure is told in the same words, so that an
answer reveals neither whether a key exists nor why it is not accepted; the reason goes to the log only.
"""

from collections.abc import Mapping

from msgspec import Struct

from gateway.contract import keyring
from gateway.contract.snapshot import KeySpec, TenantSpec
from gateway.faults import CallerError, CallerFault
from gateway.state import Applied

_BEARER = b"bearer "
_MESSAGE = "Incorrect API key provided. Check that it is complete, enabled and not expired."
_MISSING = (
    "No API key was provided. Send it in an Authorization header with the Bearer scheme: "
    "Authorization: Bearer YOUR_KEY."
)


class Caller(Struct, frozen=True):
    """A recognised caller."""

    tenant: TenantSpec
    key: KeySpec

    def tier(self, granted: int) -> int:
        """The tier to use where the grant allows `granted`: a key may lower it."""
        own = self.key.tier
        return granted if own is None or own < granted else own


def presented_key(headers: Mapping[bytes, bytes]) -> str | None:
    """The key that the caller sent: a bearer token, or `x-api-key` as Anthropic's clients send it."""
    authorization = headers.get(b"authorization")
    if authorization is not None and authorization[:7].lower() == _BEARER:
        raw = authorization[7:].strip()
    else:
        raw = headers.get(b"x-api-key", b"")
    return raw.decode("latin-1") or None


def authenticate(applied: Applied, headers: Mapping[bytes, bytes], pepper: bytes, wall: float) -> Caller:
    """The caller that a request's headers prove; `wall` is the time in epoch seconds, for expiry.

    Raises:
        CallerError: no key, or one that is malformed, unknown, wrong, expired or disabled.
    """
    key = presented_key(headers)
    if key is None:
        raise CallerError(CallerFault.UNAUTHENTICATED, _MISSING)
    public_id = keyring.public_id_of(key)
    spec = applied.keys.get(public_id) if public_id else None
    if spec is None or not keyring.matches(pepper, key, spec.digests):
        raise CallerError(CallerFault.UNAUTHENTICATED, _MESSAGE)
    tenant = applied.tenants.get(spec.tenant)
    expired = spec.expires_at is not None and wall >= spec.expires_at
    if tenant is None or not tenant.enabled or not spec.enabled or expired:
        raise CallerError(CallerFault.UNAUTHENTICATED, _MESSAGE)
    return Caller(tenant, spec)
