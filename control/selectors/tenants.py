"""Tenants, what they may use, their keys and what they asked for."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Q

from control.models import ApiKey, Grant, QuotaRequest, Tenant


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A tenant; `keys` counts those not revoked."""

    name: str
    title: str
    enabled: bool
    grants: int
    keys: int


@dataclass(frozen=True, slots=True)
class GrantRow:
    """What a tenant may use. None: no bound."""

    tenant: str
    pool: str
    tier: int
    tier_name: str
    weight: float
    requests_per_min: int | None
    tokens_per_min: int | None
    concurrency: int | None
    monthly_tokens: int | None


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key, without anything that could be used."""

    public_id: str
    prefix: str
    name: str
    tier: int | None
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    overlap_until: datetime | None


@dataclass(frozen=True, slots=True)
class QuotaRequestRow:
    """A quota request."""

    number: int
    tenant: str
    pool: str
    requested_by: str
    requested_at: datetime
    justification: str
    requests_per_min: int | None
    tokens_per_min: int | None
    concurrency: int | None
    monthly_tokens: int | None
    state: str


def tenants(limit: int = 1000) -> tuple[TenantRow, ...]:
    """All tenants by name."""
    rows = Tenant.objects.annotate(
        grant_count=Count("grants", distinct=True),
        key_count=Count("keys", filter=Q(keys__revoked_at__isnull=True), distinct=True),
    ).order_by("name")[:limit]
    return tuple(TenantRow(row.name, row.title, row.enabled, row.grant_count, row.key_count) for row in rows)


def grants_of(tenant: str) -> tuple[GrantRow, ...]:
    """What one tenant may use, by pool."""
    rows = (
        Grant.objects.filter(tenant__name=tenant)
        .select_related("tenant", "pool", "tier")
        .order_by("pool__name")
    )
    return tuple(
        GrantRow(
            tenant=row.tenant.name,
            pool=row.pool.name,
            tier=row.tier.rank,
            tier_name=row.tier.name,
            weight=row.weight,
            requests_per_min=row.requests_per_min,
            tokens_per_min=row.tokens_per_min,
            concurrency=row.concurrency,
            monthly_tokens=row.monthly_tokens,
        )
        for row in rows
    )


def keys_of(tenant: str) -> tuple[KeyRow, ...]:
    """One tenant's keys, newest first."""
    rows = ApiKey.objects.filter(tenant__name=tenant).select_related("tier").order_by("-created_at", "-id")
    return tuple(
        KeyRow(
            public_id=row.public_id,
            prefix=str(row),
            name=row.name,
            tier=row.tier.rank if row.tier else None,
            created_by=row.created_by,
            created_at=row.created_at,
            expires_at=row.expires_at,
            revoked_at=row.revoked_at,
            last_used_at=row.last_used_at,
            overlap_until=row.previous_expires_at,
        )
        for row in rows
    )


def pending_quota_requests() -> tuple[QuotaRequestRow, ...]:
    """What waits for a decision, oldest first."""
    rows = (
        QuotaRequest.objects.filter(state=QuotaRequest.State.PENDING)
        .select_related("grant__tenant", "grant__pool")
        .order_by("requested_at", "id")
    )
    return tuple(
        QuotaRequestRow(
            number=row.pk,
            tenant=row.grant.tenant.name,
            pool=row.grant.pool.name,
            requested_by=row.requested_by,
            requested_at=row.requested_at,
            justification=row.justification,
            requests_per_min=row.requests_per_min,
            tokens_per_min=row.tokens_per_min,
            concurrency=row.concurrency,
            monthly_tokens=row.monthly_tokens,
            state=row.state,
        )
        for row in rows
    )
