"""Rows of the policy tables, saved and deleted whole: checked, written, audited, numbered as a revision, published.

The admin hands over model instances (nobody above the admin does); `rehearse` tells a form, before anything is saved,
every reason for which the policy would be refused.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from typing import TypeVar

from django.core.exceptions import ValidationError
from django.db import IntegrityError, models, transaction
from django.db.models import ProtectedError

from control import publishing
from control.audit import Actor, Entry, change
from control.models import (
    ApiKey,
    AppendOnly,
    Backend,
    Grant,
    Override,
    Pool,
    QueuePolicy,
    Tenant,
    Tier,
    writing,
)
from control.services.errors import Conflict, Invalid
from gateway.core.policy import Problem

POLICY_TABLES = (Tenant, Grant, ApiKey, Tier, QueuePolicy, Pool, Backend)
_SECRET_FIELDS = frozenset({"digest", "previous_digest", "password"})
_UNINTERESTING = frozenset({"last_login"})
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Written:
    """What a write did: the policy revision that it made, and whether anything changed at all."""

    revision: int | None
    is_changed: bool


def write(actor: Actor, record: models.Model, *, reason: str = "", action: str = "") -> Written:
    """Insert or update one row.

    Raises:
        Invalid: a field, a constraint, or the policy that would come of it is wrong.
        Conflict: somebody else wrote the same at the same time.
    """
    _refuse_foreign(record)
    is_new = record._state.adding  # noqa: SLF001  # Django's documented way to tell
    return _guarded(lambda: _write(actor, record, action or ("created" if is_new else "updated"), reason))


def remove(actor: Actor, record: models.Model, *, reason: str = "") -> Written:
    """Delete one row, and what belongs to it alone.

    Raises:
        Invalid: the policy that would be left is wrong.
        Conflict: something still uses it; the message says what.
    """
    _refuse_foreign(record)
    return _guarded(lambda: _remove(actor, record, reason))


def rehearse(record: models.Model) -> tuple[Problem, ...]:
    """What the policy would be refused for if this row were saved now. Saves nothing."""
    if not isinstance(record, POLICY_TABLES):
        return ()
    trial = copy.copy(record)
    trial._state = copy.copy(record._state)  # noqa: SLF001  # so that the trial's key stays the trial's
    with transaction.atomic(), writing():
        trial.save()
        problems = publishing.policy_problems(publishing.build_snapshot(0)) if Tier.objects.exists() else ()
        transaction.set_rollback(True)
    return problems


@contextmanager
def together() -> Iterator[None]:
    """Several writes, all or none; each leaves its own audit row."""
    with transaction.atomic():
        yield


def _refuse_foreign(record: models.Model) -> None:
    if isinstance(record, AppendOnly | Override):
        raise TypeError(f"{type(record).__name__} is not edited as a row")


def _guarded(work: Callable[[], T]) -> T:
    """Turn what the database or the policy objects to into words."""
    try:
        return work()
    except publishing.PolicyRefused as refusal:
        raise Invalid(refusal.problems) from None
    except ValidationError as error:
        raise Invalid.from_django(error) from None
    except ProtectedError as error:
        users = ", ".join(sorted(f"{o._meta.verbose_name} {o}" for o in error.protected_objects))  # noqa: SLF001
        raise Conflict(f"It is still used by: {users}.") from None
    except IntegrityError as error:
        raise Conflict(f"The database refused it: {str(error).splitlines()[0]}") from None


def _write(actor: Actor, record: models.Model, action: str, reason: str) -> Written:
    with change(actor, action, reason=reason) as entry:
        before = _stored(record)
        record.full_clean()
        record.save()
        entry.about(record)
        _note(entry, before, values_of(record))
        if not entry.changes:
            entry.skip()
            return Written(None, is_changed=False)
        entry.revision = _revise(actor, record, f"{entry.object_type} {entry.object_name} {action}")
        return Written(entry.revision, is_changed=True)


def _remove(actor: Actor, record: models.Model, reason: str) -> Written:
    with change(actor, "deleted", reason=reason) as entry:
        entry.about(record)
        _note(entry, values_of(record), {})
        _, counts = record.delete()
        others = {name: n for name, n in counts.items() if n and name != record._meta.label}  # noqa: SLF001
        if others:
            entry.note("with it", before=others, after=None)
        entry.revision = _revise(actor, record, f"{entry.object_type} {entry.object_name} deleted")
        return Written(entry.revision, is_changed=True)


def _revise(actor: Actor, record: models.Model, summary: str) -> int | None:
    return publishing.revise(actor.name, summary) if isinstance(record, POLICY_TABLES) else None


def _stored(record: models.Model) -> dict[str, object]:
    """The row as it is, locked; empty for a new one."""
    if record._state.adding:  # noqa: SLF001  # as above
        return {}
    rows = type(record)._base_manager.select_for_update(of=("self",))  # noqa: SLF001  # no custom filter may hide it
    row = rows.filter(pk=record.pk).first()
    if row is None:
        raise Conflict("It was deleted meanwhile.")
    return values_of(row)


def values_of(record: models.Model) -> dict[str, object]:
    """A row as plain values; of a secret's digest only whether it changed can be seen."""
    values: dict[str, object] = {}
    for field in record._meta.concrete_fields:  # noqa: SLF001  # Django's documented introspection
        if field.primary_key or field.name in _UNINTERESTING:
            continue
        value = field.value_from_object(record)
        if isinstance(value, datetime | date):
            value = value.isoformat()
        values[field.name] = f"sha:{value[-8:]}" if value and field.name in _SECRET_FIELDS else value
    return values


def _note(entry: Entry, before: dict[str, object], after: dict[str, object]) -> None:
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            entry.note(name, before=before.get(name), after=after.get(name))
