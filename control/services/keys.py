"""API keys: minted with 256 bits of chance, shown once, stored as a digest; rotated with an overlap; revoked for good."""

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from control.audit import Actor
from control.models import ApiKey, Tenant, Tier
from control.services import records
from control.services.errors import Conflict, Invalid, NotFound
from gateway.contract import keyring

MAX_OVERLAP_S = 30 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class MintKey:
    """What is asked for. `tier` (a rank) may only lower what the grant gives."""

    tenant: str
    name: str
    tier: int | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class MintedKey:
    """The key, for the one time that it is shown, and the public id by which it is known afterwards."""

    key: str
    public_id: str

    def __repr__(self) -> str:
        """Without the key: it must not get into a log."""
        return f"MintedKey(public_id={self.public_id!r})"


def mint_key(actor: Actor, wanted: MintKey) -> MintedKey:
    """Make a key for a tenant.

    Raises:
        NotFound: no such tenant or tier.
        Invalid: the name is empty, or the expiry is not ahead.
    """
    tenant = Tenant.objects.filter(name=wanted.tenant).first()
    if tenant is None:
        raise NotFound(f"There is no tenant {wanted.tenant!r}.")
    row = ApiKey(tenant=tenant, name=wanted.name, tier=_tier(wanted.tier), expires_at=wanted.expires_at)
    return issue(actor, row)


def issue(actor: Actor, row: ApiKey) -> MintedKey:
    """Give a key to a new, unsaved row (the admin's form made it), and save it."""
    now = timezone.now()
    if row.expires_at is not None and row.expires_at <= now:
        raise Invalid.of("expires_at", "must be ahead")
    minted = _mint()
    row.environment = settings.KEY_ENVIRONMENT
    row.public_id = minted.public_id
    row.digest = _digest(minted.key)
    row.created_by = actor.name
    row.created_at = now
    records.write(actor, row, action="minted")
    return MintedKey(minted.key, minted.public_id)


def rotate_key(actor: Actor, public_id: str, *, overlap_s: int = 86_400) -> MintedKey:
    """A new secret under the same public id; the old one goes on for `overlap_s` seconds (0: ends at once).

    Raises:
        NotFound: no such key.
        Conflict: it is revoked.
        Invalid: the overlap is negative or over 30 days.
    """
    if not 0 <= overlap_s <= MAX_OVERLAP_S:
        raise Invalid.of("overlap_s", f"must be 0 to {MAX_OVERLAP_S} seconds")
    row = _live(public_id)
    minted = _mint(public_id)
    row.previous_digest = row.digest if overlap_s else ""
    row.previous_expires_at = timezone.now() + timedelta(seconds=overlap_s) if overlap_s else None
    row.digest = _digest(minted.key)
    records.write(actor, row, action="rotated")
    return MintedKey(minted.key, public_id)


def revoke_key(actor: Actor, public_id: str, *, reason: str = "") -> None:
    """End a key at once and for good; what was revoked already stays as it is.

    Raises:
        NotFound: no such key.
    """
    row = _find(public_id)
    if row.revoked_at is None:
        row.revoked_at = timezone.now()
        row.previous_digest, row.previous_expires_at = "", None
        records.write(actor, row, action="revoked", reason=reason)


def end_overlaps(actor: Actor) -> int:
    """Forget previous secrets whose overlap is over, and publish; returns how many. Cheap where none is due (tick)."""
    due = ApiKey.objects.filter(previous_expires_at__lte=timezone.now())
    count = 0
    for row in due:
        row.previous_digest, row.previous_expires_at = "", None
        records.write(actor, row, action="overlap ended")
        count += 1
    return count


def _mint(public_id: str | None = None) -> keyring.MintedKey:
    return keyring.mint(
        settings.KEY_ENVIRONMENT, secrets.token_bytes(keyring.RANDOM_BYTES), public_id=public_id
    )


def _digest(key: str) -> str:
    return keyring.digest(settings.KEY_PEPPER.encode(), key)


def _tier(rank: int | None) -> Tier | None:
    if rank is None:
        return None
    tier = Tier.objects.filter(rank=rank).first()
    if tier is None:
        raise NotFound(f"There is no tier P{rank}.")
    return tier


def _find(public_id: str) -> ApiKey:
    row = ApiKey.objects.select_related("tenant", "tier").filter(public_id=public_id).first()
    if row is None:
        raise NotFound(f"There is no key {public_id!r}.")
    return row


def _live(public_id: str) -> ApiKey:
    row = _find(public_id)
    if row.revoked_at is not None:
        raise Conflict("It is revoked: make a new key instead.")
    return row
