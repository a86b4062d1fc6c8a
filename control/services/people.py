"""Users and what they may do. Passwords are hashed by Django; the audit row says that one changed, never which."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.contrib.auth import get_user_model

from control.audit import Actor
from control.models import Membership, Tenant
from control.services import records
from control.services.errors import NotFound

if TYPE_CHECKING:
    from django.contrib.auth.models import User


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody who signs in. `role` is a staff role, or with `tenant` a tenant role."""

    username: str
    password: str
    role: str
    tenant: str | None = None
    is_superuser: bool = False


def add_person(actor: Actor, person: Person) -> None:
    """Make a user with one role.

    Raises:
        Invalid: the name is taken or malformed, or the role does not fit.
        NotFound: no such tenant.
    """
    with records.together():
        user: User = get_user_model()(
            username=person.username,
            is_staff=person.tenant is None,
            is_superuser=person.is_superuser,
        )
        user.set_password(person.password)
        records.write(actor, user)
        records.write(actor, Membership(user=user, tenant=_tenant(person.tenant), role=person.role))


def set_password(actor: Actor, username: str, password: str) -> None:
    """Replace a password.

    Raises:
        NotFound: no such user.
    """
    user = get_user_model().objects.filter(username=username).first()
    if user is None:
        raise NotFound(f"There is no user {username!r}.")
    user.set_password(password)
    records.write(actor, user, action="password changed")


def _tenant(name: str | None) -> Tenant | None:
    if name is None:
        return None
    tenant = Tenant.objects.filter(name=name).first()
    if tenant is None:
        raise NotFound(f"There is no tenant {name!r}.")
    return tenant
