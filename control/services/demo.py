"""A first installation to look at: the three tiers, one pool, three tenants with a grant and a key each, an operator.

Idempotent: what is there stays as it is, except that named backends follow their URL (ports change between runs).
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.contrib.auth import get_user_model

from control.audit import Actor
from control.models import ApiKey, Backend, Grant, Pool, QueuePolicy, Tenant, Tier
from control.services import keys, people, records
from gateway.core.policy import TierPolicy, default_tiers

OPERATOR = "operator"
CPU_TTFT_OBJECTIVES_S = (4.0, 8.0, 30.0)  # by rank; docs/scenarios.md, profiles `cpu` and `llama`
CPU_OUTPUT_COST = 4.0
TENANTS = (
    ("support-chat", "Support chat", 0),
    ("code-agent", "Code agent", 1),
    ("report-batch", "Report batch", 2),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoBackend:
    """A backend to register. `max_seqs`: its seats, None where the engine tells them or nobody knows."""

    name: str
    url: str
    engine: str
    max_seqs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """What to install. `retry_after_max_s` caps every tier's Retry-After where it is given (tests are impatient).

    `has_cpu_engine`: the objectives and the price of an output token that fit an engine without a GPU.
    """

    pool: str
    models: tuple[str, ...]
    backends: tuple[DemoBackend, ...]
    retry_after_max_s: int | None = None
    has_cpu_engine: bool = False


@dataclass(frozen=True, slots=True)
class DemoKey:
    """A demo tenant's key; `tier` is P0, P1 or P2."""

    tier: str
    tenant: str
    key: str

    def __repr__(self) -> str:
        """Without the key."""
        return f"DemoKey({self.tier}, {self.tenant})"


def install_tiers(
    actor: Actor, retry_after_max_s: int | None = None, ttft_objectives_s: Sequence[float] = ()
) -> None:
    """The three tiers and their queue policies, where there are none yet."""
    if Tier.objects.exists():
        return
    for tier in default_tiers():
        queue = QueuePolicy(
            name=tier.name,
            max_size=tier.queue.max_size,
            timeout_s=tier.queue.timeout_s,
            drop=tier.queue.drop.value,
            max_size_per_tenant=tier.queue.max_size_per_tenant,
            delay_budget_s=tier.queue.delay_budget_s,
            retry_after_max_s=min(tier.queue.retry_after_max_s, retry_after_max_s or 60),
        )
        records.write(actor, queue)
        row = _tier(tier, queue)
        if ttft_objectives_s:
            row.ttft_objective_s = ttft_objectives_s[tier.rank]
        records.write(actor, row)


def _tier(tier: TierPolicy, queue: QueuePolicy) -> Tier:
    return Tier(
        rank=tier.rank,
        name=tier.name,
        queue=queue,
        ttft_objective_s=tier.ttft_objective_s,
        tpot_objective_s=tier.tpot_objective_s,
        weight=tier.weight,
        share_cap=tier.share_cap,
        floor=tier.floor,
        hold_back_prefill=tier.hold_back_prefill,
        hold_back_kv=tier.hold_back_kv,
        delay_budget_factor=tier.delay_budget_factor,
    )


def install_demo(actor: Actor, demo: Demo, is_known: Callable[[str], bool]) -> tuple[DemoKey, ...]:
    """Install what is missing; returns the keys that were made now.

    `is_known(tenant)` says whether somebody still has a usable key of this tenant: then none is made.

    Raises:
        Invalid: a name or URL is wrong; then nothing was changed.
    """
    with records.together():
        install_tiers(actor, demo.retry_after_max_s, CPU_TTFT_OBJECTIVES_S if demo.has_cpu_engine else ())
        pool = _pool(actor, demo)
        for backend in demo.backends:
            _backend(actor, pool, backend)
        made = [_tenant(actor, pool, row, is_known) for row in TENANTS]
    return tuple(key for key in made if key is not None)


def _pool(actor: Actor, demo: Demo) -> Pool:
    pool = Pool.objects.filter(name=demo.pool).first()
    if pool is None:
        pool = Pool(
            name=demo.pool,
            models_served=list(demo.models),
            fallback_text="The assistant is resting for a moment. Please try again shortly.",
            fallback_tiers=[0],
        )
        if demo.has_cpu_engine:
            pool.output_cost = CPU_OUTPUT_COST
        records.write(actor, pool)
    return pool


def _backend(actor: Actor, pool: Pool, wanted: DemoBackend) -> None:
    row = Backend.objects.filter(name=wanted.name).first()
    if row is None:
        row = Backend(name=wanted.name, pool=pool, engine=wanted.engine, max_seqs=wanted.max_seqs)
    row.url = wanted.url
    records.write(actor, row)


def _tenant(
    actor: Actor, pool: Pool, named: tuple[str, str, int], is_known: Callable[[str], bool]
) -> DemoKey | None:
    name, title, rank = named
    tenant = Tenant.objects.filter(name=name).first()
    if tenant is None:
        tenant = Tenant(name=name, title=title)
        records.write(actor, tenant)
    if not Grant.objects.filter(tenant=tenant, pool=pool).exists():
        records.write(actor, Grant(tenant=tenant, pool=pool, tier=Tier.objects.get(rank=rank)))
    if is_known(name) and ApiKey.objects.filter(tenant=tenant, revoked_at__isnull=True).exists():
        return None
    minted = keys.mint_key(actor, keys.MintKey(tenant=name, name="demo"))
    return DemoKey(f"P{rank}", name, minted.key)


def install_operator(actor: Actor) -> str | None:
    """The user `operator`, who may override, and edit policy in the admin; returns the new password.

    None where there is one already.
    """
    if get_user_model().objects.filter(username=OPERATOR).exists():
        return None
    password = secrets.token_urlsafe(15)
    people.add_person(actor, people.Person(username=OPERATOR, password=password, role="admin"))
    return password


def replace_operator_password(actor: Actor) -> str:
    """A new generated password, where the old one was lost."""
    password = secrets.token_urlsafe(15)
    people.set_password(actor, OPERATOR, password)
    return password
