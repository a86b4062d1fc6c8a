"""Tiers, pools, backends and revisions."""

from dataclasses import dataclass
from datetime import datetime

from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from control.models import Backend, PolicyRevision, Pool, PublishedState, Tier
from gateway.contract import codec
from gateway.contract.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class TierRow:
    """A tier and its queue policy."""

    rank: int
    name: str
    queue: str
    max_size: int
    timeout_s: float
    drop: str
    retry_after_max_s: int
    ttft_objective_s: float
    tpot_objective_s: float


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A pool."""

    name: str
    models: tuple[str, ...]
    algorithm: str
    min_limit: int
    max_limit: int
    fallback_text: str
    fallback_pool: str | None


@dataclass(frozen=True, slots=True)
class BackendRow:
    """A backend."""

    name: str
    pool: str
    url: str
    engine: str
    enabled: bool
    drained: bool


@dataclass(frozen=True, slots=True)
class RevisionRow:
    """A published policy, without its body."""

    number: int
    created_at: datetime
    author: str
    summary: str


def tiers() -> tuple[TierRow, ...]:
    """All tiers by rank."""
    return tuple(
        TierRow(
            rank=row.rank,
            name=row.name,
            queue=row.queue.name,
            max_size=row.queue.max_size,
            timeout_s=row.queue.timeout_s,
            drop=row.queue.drop,
            retry_after_max_s=row.queue.retry_after_max_s,
            ttft_objective_s=row.ttft_objective_s,
            tpot_objective_s=row.tpot_objective_s,
        )
        for row in Tier.objects.select_related("queue").order_by("rank")
    )


def pools() -> tuple[PoolRow, ...]:
    """All pools by name."""
    return tuple(
        PoolRow(
            name=row.name,
            models=tuple(row.models_served),
            algorithm=row.algorithm,
            min_limit=row.min_limit,
            max_limit=row.max_limit,
            fallback_text=row.fallback_text,
            fallback_pool=row.fallback_pool.name if row.fallback_pool else None,
        )
        for row in Pool.objects.select_related("fallback_pool").order_by("name")
    )


def backends(pool: str | None = None) -> tuple[BackendRow, ...]:
    """All backends, or those of a pool, by name."""
    rows = Backend.objects.select_related("pool").order_by("name")
    return tuple(
        BackendRow(row.name, row.pool.name, row.url, row.engine, row.enabled, row.drained)
        for row in (rows if pool is None else rows.filter(pool__name=pool))
    )


def current_revision_number() -> int:
    """Number of the newest published policy, 0 where there is none."""
    state = PublishedState.objects.filter(id=1).first()
    return state.revision if state else 0


def current_snapshot() -> Snapshot | None:
    """The newest published policy, decoded; None where there is none."""
    row = PolicyRevision.objects.filter(number=current_revision_number()).first()
    return codec.decode_snapshot(bytes(row.body)) if row else None


def revisions(limit: int = 50) -> tuple[RevisionRow, ...]:
    """The newest first."""
    rows = PolicyRevision.objects.order_by("-number").defer("body")[:limit]
    return tuple(RevisionRow(row.number, row.created_at, row.author, row.summary) for row in rows)


def pending_migrations() -> int:
    """How many migrations the database lacks.

    Raises:
        django.db.DatabaseError: it can't be reached, or is none.
    """
    executor = MigrationExecutor(connection)
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
