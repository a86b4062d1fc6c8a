"""Quota requests: a tenant asks, an admin decides; an approval changes the grant in the same transaction."""

from dataclasses import dataclass

from django.utils import timezone

from control.audit import Actor
from control.models import Grant, QuotaRequest
from control.services import records
from control.services.errors import Conflict, Invalid, NotFound

BOUNDS = ("requests_per_min", "tokens_per_min", "concurrency", "monthly_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskQuota:
    """What a tenant asks for. None: as it is."""

    tenant: str
    pool: str
    justification: str
    requests_per_min: int | None = None
    tokens_per_min: int | None = None
    concurrency: int | None = None
    monthly_tokens: int | None = None


def ask(actor: Actor, wanted: AskQuota) -> int:
    """File a request; returns its number.

    Raises:
        NotFound: the tenant has no grant for the pool.
        Invalid: nothing is asked for, or a figure or the justification is wrong.
        Conflict: one is pending already.
    """
    grant = Grant.objects.filter(tenant__name=wanted.tenant, pool__name=wanted.pool).first()
    if grant is None:
        raise NotFound(f"{wanted.tenant!r} has no grant for {wanted.pool!r}.")
    figures = {name: getattr(wanted, name) for name in BOUNDS}
    if all(figure is None for figure in figures.values()):
        raise Invalid.of("", "Ask for at least one figure.")
    row = QuotaRequest(
        grant=grant,
        requested_by=actor.name,
        requested_at=timezone.now(),
        justification=wanted.justification,
        **figures,
    )
    records.write(actor, row, action="quota asked")
    return row.pk


def decide(actor: Actor, number: int, *, approve: bool, answer: str = "") -> None:
    """Approve (the grant gets the figures that were asked for) or decline.

    Raises:
        NotFound: no such request.
        Conflict: it is decided already.
        Invalid: the policy that would come of it is wrong; then it stays pending.
    """
    with records.together():
        row = QuotaRequest.objects.select_for_update().filter(pk=number).first()
        if row is None:
            raise NotFound(f"There is no quota request {number}.")
        if row.state != QuotaRequest.State.PENDING:
            raise Conflict(f"It is {row.state} already, by {row.decided_by}.")
        row.state = QuotaRequest.State.APPROVED if approve else QuotaRequest.State.DECLINED
        row.decided_by, row.decided_at, row.answer = actor.name, timezone.now(), answer
        records.write(actor, row, action=f"quota {row.state}", reason=answer)
        if approve:
            _raise_grant(actor, row)


def _raise_grant(actor: Actor, row: QuotaRequest) -> None:
    grant = row.grant
    for name in BOUNDS:
        figure = getattr(row, name)
        if figure is not None:
            setattr(grant, name, figure)
    records.write(actor, grant, reason=f"quota request {row.pk}")
