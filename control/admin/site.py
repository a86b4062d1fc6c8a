"""Our admin site: for those with a staff role; a changed password leaves an audit row."""

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy as _

from control.audit import Actor, change
from control.selectors import Access, access_of


def access(request: HttpRequest) -> Access:
    """What the signed-in user may do; asked of the database once per request."""
    known: Access | None = getattr(request, "sluicegate_access", None)
    if known is None:
        known = access_of(request.user)
        request.sluicegate_access = known  # type: ignore[attr-defined]  # a request carries what is known of it
    return known


def actor(request: HttpRequest) -> Actor:
    """Who acts, for the audit row."""
    return Actor(request.user.get_username(), "admin")


class ControlRoomSite(AdminSite):
    """The admin."""

    site_header = _("Sluicegate admin")
    site_title = _("Sluicegate admin")
    index_title = _("Tables")

    def has_permission(self, request: HttpRequest) -> bool:
        """Staff with a role."""
        return super().has_permission(request) and access(request).may_view

    def password_change(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> TemplateResponse:
        """Django's, with an audit row where the password did change."""
        with change(actor(request), "password changed") as entry:
            username = request.user.get_username()
            before = _password(username)
            response = super().password_change(request, extra_context)
            if _password(username) == before:
                entry.skip()
            else:
                entry.about(User.objects.get(username=username))
        return response


room = ControlRoomSite()


def _password(username: str) -> str:
    return User.objects.filter(username=username).values_list("password", flat=True).first() or ""
