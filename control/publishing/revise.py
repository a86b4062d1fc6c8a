"""Number a policy and keep it, or refuse it with every field that is wrong: inside of the caller's transaction."""

import hashlib
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
from django.db import transaction
from django.utils import timezone

from control.models import PolicyRevision, PublishedState, Tier
from control.publishing import deliver
from control.publishing.build import build_snapshot
from gateway.contract import codec
from gateway.contract.checks import snapshot_problems
from gateway.contract.overrides import Overrides
from gateway.contract.snapshot import Snapshot
from gateway.core.policy import Problem

_PLACE = re.compile(r"^(tiers|pools|backends|tenants|grants|keys)\[(\d+)\](?:\.|$)")
_MAX_LINE = 300
_NAMES: dict[str, Callable[[Any], str]] = {
    "tiers": lambda spec: str(spec.policy.name),
    "pools": lambda spec: str(spec.policy.name),
    "backends": lambda spec: str(spec.policy.name),
    "tenants": lambda spec: str(spec.name),
    "grants": lambda spec: f"{spec.tenant}/{spec.pool}",
    "keys": lambda spec: str(spec.public_id),
}


class PolicyRefused(Exception):  # noqa: N818  # named for what happened
    """The tables as they would be are no valid policy. `problems` names every field."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(f"{p.field}: {p.message}" for p in problems))
        self.problems = problems


def policy_problems(snapshot: Snapshot) -> tuple[Problem, ...]:
    """Everything that is wrong with a snapshot, each with the name of the thing instead of its place."""
    found = snapshot_problems(snapshot)
    return tuple(
        Problem(_named(problem.field, snapshot), problem.message, problem.is_warning) for problem in found
    )


def _named(field: str, snapshot: Snapshot) -> str:
    """`pools[2].models` -> `pools[chat-70b].models`, as core has it anyway."""
    match = _PLACE.match(field)
    if match is None:
        return field
    section, index = match[1], int(match[2])
    spec = getattr(snapshot, section)[index]
    name = _NAMES[section](spec)
    rest = field[match.end() :]
    return f"{section}[{name}].{rest}" if rest else f"{section}[{name}]"


def revise(author: str, summary: str) -> int | None:
    """Check the tables and keep them as the next revision; on commit it is sent to the gateways.

    Returns its number; None where nothing changed for the gateways, or where there is no tier yet (an installation
    that is being set up has nothing to publish).

    Raises:
        PolicyRefused: the tables are no valid policy. The caller's transaction must roll back.
    """
    if not Tier.objects.exists():
        return None
    state, _ = PublishedState.objects.select_for_update().get_or_create(id=1)
    now = timezone.now()
    snapshot = build_snapshot(state.revision + 1, now)
    problems = policy_problems(snapshot)
    if problems:
        raise PolicyRefused(problems)
    content = _content_digest(snapshot)
    last = PolicyRevision.objects.filter(number=state.revision).first()
    if last is not None and last.content_digest == content:
        return None
    state.revision = snapshot.revision
    state.save()
    PolicyRevision(
        number=snapshot.revision,
        created_at=now,
        author=author,
        summary=summary[:_MAX_LINE],
        body=codec.encode(snapshot),
        content_digest=content,
    ).save()
    transaction.on_commit(deliver.deliver_snapshot, robust=True)
    return snapshot.revision


def _content_digest(snapshot: Snapshot) -> str:
    bare = msgspec.structs.replace(snapshot, revision=0, created_at=0.0)
    return hashlib.sha256(codec.encode(bare)).hexdigest()


def read_revision(number: int) -> Snapshot:
    """A kept revision, decoded.

    Raises:
        PolicyRevision.DoesNotExist: there is none of this number.
    """
    return codec.decode_snapshot(bytes(PolicyRevision.objects.get(number=number).body))


def bump_overrides() -> int:
    """The next version of the set of overrides; on commit the set is sent to the gateways."""
    state, _ = PublishedState.objects.select_for_update().get_or_create(id=1)
    state.overrides_version += 1
    state.save()
    transaction.on_commit(deliver.deliver_overrides, robust=True)
    return state.overrides_version


def overrides_in_force(version: int, now: datetime | None = None) -> Overrides:
    """The set that gateways have to obey."""
    return deliver.overrides_body(version, now)
