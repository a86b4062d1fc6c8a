"""What a user may do."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from django.contrib.auth.models import AnonymousUser
from django.contrib.auth.models import User as UserModel

from control.models import Membership

User = UserModel | AnonymousUser
_STAFF_ORDER = (Membership.Role.VIEWER.value, Membership.Role.OPERATOR.value, Membership.Role.ADMIN.value)


@dataclass(frozen=True, slots=True)
class Access:
    """A user's roles. `staff`: "", "viewer", "operator" or "admin"; `tenants`: tenant name -> tenant role."""

    username: str = ""
    staff: str = ""
    tenants: Mapping[str, str] = field(default_factory=dict)

    @property
    def may_view(self) -> bool:
        """May see the control room."""
        return bool(self.staff)

    @property
    def may_override(self) -> bool:
        """May set and release overrides."""
        return self.staff in _STAFF_ORDER[1:]

    @property
    def may_edit(self) -> bool:
        """May edit policy, tenants, keys and people."""
        return self.staff == _STAFF_ORDER[2]


def access_of(user: User) -> Access:
    """The roles of a user; a superuser is an admin, somebody inactive or not signed in has none."""
    if not isinstance(user, UserModel) or not user.is_active:
        return Access()
    rows = Membership.objects.filter(user_id=user.pk).select_related("tenant")
    staff = "admin" if user.is_superuser else ""
    tenants: dict[str, str] = {}
    for row in rows:
        if row.tenant is not None:
            tenants[row.tenant.name] = row.role
        elif not user.is_superuser:
            staff = row.role
    return Access(user.get_username(), staff, tenants)
