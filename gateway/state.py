"""What is in force: one snapshot, indexed for look-up by the path of a request, swapped as a whole.

`State.applied` is replaced, never changed: whoever reads it once keeps one consistent view for as long as it likes,
and a reader that wants the newest reads it again. Look-ups never await and never fail: absent is None.

Who writes: `snapshots`, and nobody else. Who reads: `auth`, `app`, `proxy`, `fallback`, `quotas`, `reporter`, `ops`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gateway.contract.snapshot import (
    BackendSpec,
    GrantSpec,
    KeySpec,
    PoolSpec,
    Snapshot,
    TenantSpec,
    TierSpec,
)

Version = tuple[int, int, int]  # (generation, epoch, seq) of an envelope: compared to tell newer from older


class Source(StrEnum):
    """Where the snapshot in force came from."""

    VALKEY = "valkey"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Applied:
    """One snapshot and its indexes. Build it with `index`."""

    snapshot: Snapshot
    version: Version
    source: Source
    tiers: Mapping[int, TierSpec]  # by rank
    pools: Mapping[str, PoolSpec]  # by pool name
    pool_by_model: Mapping[str, PoolSpec]  # by served model name, aliases included
    backends: Mapping[str, BackendSpec]  # by backend name
    tenants: Mapping[str, TenantSpec]  # by slug, disabled ones included
    grants: Mapping[tuple[str, str], GrantSpec]  # by (tenant, pool)
    grants_by_tenant: Mapping[str, tuple[GrantSpec, ...]]
    keys: Mapping[str, KeySpec]  # by public id, disabled and expired ones included
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)  # by backend name, resolved

    @property
    def revision(self) -> int:
        """Number of the policy revision."""
        return self.snapshot.revision

    def models_of(self, tenant: str) -> tuple[str, ...]:
        """Every model name that the tenant may use, sorted: what `GET /v1/models` lists."""
        names = {m for g in self.grants_by_tenant.get(tenant, ()) for m in self.pools[g.pool].models}
        return tuple(sorted(names))


def index(
    snapshot: Snapshot,
    version: Version,
    source: Source,
    credentials: Mapping[str, str] | None = None,
) -> Applied:
    """Index a snapshot that has already been validated (`contract.codec.decode_snapshot`)."""
    by_tenant: dict[str, list[GrantSpec]] = {}
    for grant in snapshot.grants:
        by_tenant.setdefault(grant.tenant, []).append(grant)
    return Applied(
        snapshot=snapshot,
        version=version,
        source=source,
        tiers={t.policy.rank: t for t in snapshot.tiers},
        pools={p.policy.name: p for p in snapshot.pools},
        pool_by_model={model: p for p in snapshot.pools for model in p.models},
        backends={b.policy.name: b for b in snapshot.backends},
        tenants={t.name: t for t in snapshot.tenants},
        grants={(g.tenant, g.pool): g for g in snapshot.grants},
        grants_by_tenant={tenant: tuple(grants) for tenant, grants in by_tenant.items()},
        keys={k.public_id: k for k in snapshot.keys},
        credentials=credentials or {},
    )


@dataclass(slots=True)
class State:
    """The one mutable cell of the shell's knowledge. `applied` is None until a first snapshot came or was loaded."""

    applied: Applied | None = None
    draining: bool = False  # set on SIGTERM: `readyz` says 503, answers carry `Connection: close`
    live_valkey: bool = False  # the subscription to changes is up
    gateways: int = 1  # live gateways as last known: divides local shares while Valkey is away
    snapshot_refused: str | None = None  # why the newest snapshot was refused; None where it was not
    bounds_version: Version = (0, 0, 0)
    overrides_version: int = 0

    @property
    def degraded(self) -> bool:
        """True: serving, but on what was known before Valkey went away."""
        return not self.live_valkey
