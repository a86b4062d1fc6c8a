"""Rows -> `contract.Snapshot`. One function per kind; nothing is decided here.

What there may be thousands of (tenants, grants, keys) is read as plain values: a third of the time of whole rows.
"""

from datetime import UTC, datetime

from django.db.models import F, Q, Sum
from django.utils import timezone

from control import models
from gateway.contract.snapshot import (
    BackendSpec,
    FallbackSpec,
    GrantSpec,
    KeySpec,
    PoolSpec,
    Snapshot,
    TenantSpec,
    TierSpec,
)
from gateway.core import policy as core
from gateway.core.vocabulary import DropPolicy, LimitAlgorithm

_GRANT_FIELDS = (
    "weight",
    "requests_per_min",
    "requests_burst",
    "tokens_per_min",
    "tokens_burst",
    "concurrency",
    "monthly_tokens",
)


def build_snapshot(revision: int, at: datetime | None = None) -> Snapshot:
    """The tables as they are now (inside of a transaction: as they are about to be)."""
    now = at or timezone.now()
    return Snapshot(
        revision=revision,
        created_at=now.timestamp(),
        tiers=tuple(_tier(row) for row in models.Tier.objects.select_related("queue").order_by("rank")),
        pools=tuple(
            _pool(row) for row in models.Pool.objects.select_related("fallback_pool").order_by("name")
        ),
        backends=tuple(
            _backend(row) for row in models.Backend.objects.select_related("pool").order_by("name")
        ),
        tenants=_tenants(),
        grants=_grants(now),
        keys=_keys(now),
    )


def _queue(row: models.QueuePolicy) -> core.QueuePolicy:
    return core.QueuePolicy(
        max_size=row.max_size,
        timeout_s=row.timeout_s,
        drop=DropPolicy(row.drop),
        max_size_per_tenant=row.max_size_per_tenant,
        delay_budget_s=row.delay_budget_s,
        retry_after_max_s=row.retry_after_max_s,
    )


def _tier(row: models.Tier) -> TierSpec:
    return TierSpec(
        policy=core.TierPolicy(
            rank=row.rank,
            name=row.name,
            ttft_objective_s=row.ttft_objective_s,
            tpot_objective_s=row.tpot_objective_s,
            queue=_queue(row.queue),
            weight=row.weight,
            share_cap=row.share_cap,
            floor=row.floor,
            hold_back_prefill=row.hold_back_prefill,
            hold_back_kv=row.hold_back_kv,
            delay_budget_factor=row.delay_budget_factor,
        ),
        refusal_messages=row.refusal_messages,
    )


def _pool_policy(row: models.Pool) -> core.PoolPolicy:
    return core.PoolPolicy(
        name=row.name,
        limit=core.LimitPolicy(
            algorithm=LimitAlgorithm(row.algorithm),
            min_limit=row.min_limit,
            max_limit=row.max_limit,
            initial_limit=row.initial_limit,
            reserved_seats=row.reserved_seats,
            chunk_tokens=row.chunk_tokens,
            kv_target=row.kv_target,
        ),
        breaker=core.BreakerPolicy(
            enabled=row.breaker_enabled,
            window_s=row.breaker_window_s,
            min_requests=row.breaker_min_requests,
            failure_ratio=row.breaker_failure_ratio,
            open_s=row.breaker_open_s,
            half_open_probes=row.breaker_half_open_probes,
            probe_timeout_s=row.breaker_probe_timeout_s,
            ramp_s=row.breaker_ramp_s,
        ),
        watermark=core.WatermarkPolicy(
            safe=row.watermark_safe, maximum=row.watermark_maximum, jitter_s=row.watermark_jitter_s
        )
        if row.watermark_enabled
        else None,
        output_cost=row.output_cost,
        default_output_tokens=row.default_output_tokens,
        max_output_tokens=row.max_output_tokens,
    )


def _pool(row: models.Pool) -> PoolSpec:
    return PoolSpec(
        policy=_pool_policy(row),
        models=tuple(row.models_served),
        fallback=FallbackSpec(
            text=row.fallback_text or None,
            pool=row.fallback_pool.name if row.fallback_pool else None,
            tiers=tuple(row.fallback_tiers),
        ),
        sse_keepalive_s=row.sse_keepalive_s,
        connect_timeout_s=row.connect_timeout_s,
        first_byte_timeout_s=row.first_byte_timeout_s,
        idle_timeout_s=row.idle_timeout_s,
        total_timeout_s=row.total_timeout_s,
    )


def _backend(row: models.Backend) -> BackendSpec:
    return BackendSpec(
        policy=core.BackendPolicy(
            name=row.name,
            pool=row.pool.name,
            weight=row.weight,
            enabled=row.enabled,
            drained=row.drained,
            max_seqs=row.max_seqs,
            kv_capacity_tokens=row.kv_capacity_tokens,
            context_tokens=row.context_tokens,
        ),
        url=row.url,
        engine=row.engine,
        metrics_url=row.metrics_url or None,
        credential=row.credential or None,
    )


def _tenants() -> tuple[TenantSpec, ...]:
    rows = models.Tenant.objects.order_by("name").values_list("name", "enabled", "refusal_messages")
    return tuple(
        TenantSpec(name=name, enabled=enabled, refusal_messages=messages) for name, enabled, messages in rows
    )


def _grants(now: datetime) -> tuple[GrantSpec, ...]:
    used, month = _month_to_date(now), now.strftime("%Y-%m")
    rows = models.Grant.objects.order_by("tenant__name", "pool__name").values_list(
        "tenant__name", "pool__name", "tier__rank", *_GRANT_FIELDS
    )
    specs = []
    for tenant, pool, rank, *values in rows:
        bounds = dict(zip(_GRANT_FIELDS, values, strict=True))
        if bounds["monthly_tokens"] is not None:
            bounds |= {"month_to_date_tokens": used.get((tenant, pool), 0), "month": month}
        specs.append(GrantSpec(tenant=tenant, pool=pool, tier=rank, **bounds))
    return tuple(specs)


def _month_to_date(now: datetime) -> dict[tuple[str, str], int]:
    first = datetime(now.year, now.month, 1, tzinfo=UTC)
    sums = (
        models.UsageLedger.objects.filter(hour__gte=first)
        .order_by()
        .values_list("tenant", "pool")
        .annotate(total=Sum(F("prompt_tokens") + F("output_tokens")))
    )
    return {(tenant, pool): total for tenant, pool, total in sums}


def _keys(now: datetime) -> tuple[KeySpec, ...]:
    rows = (
        models.ApiKey.objects.filter(
            Q(expires_at__isnull=True) | Q(expires_at__gt=now), revoked_at__isnull=True
        )
        .order_by("public_id")
        .values_list(
            "public_id",
            "tenant__name",
            "tier__rank",
            "expires_at",
            "digest",
            "previous_digest",
            "previous_expires_at",
        )
    )
    return tuple(
        KeySpec(
            public_id=public_id,
            tenant=tenant,
            digests=(digest, previous) if overlap is not None and overlap > now else (digest,),
            tier=rank,
            expires_at=None if expires is None else expires.timestamp(),
        )
        for public_id, tenant, rank, expires, digest, previous, overlap in rows
    )
