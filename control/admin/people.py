"""Users and their memberships. Rights come from memberships alone: Django's groups and permissions are not used."""

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.forms import UserChangeForm
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _

from control.admin.base import ServiceAdmin
from control.admin.site import actor, room
from control.audit import change
from control.models import Membership


@admin.register(User, site=room)
class PeopleAdmin(ServiceAdmin, UserAdmin):  # type: ignore[type-arg]  # generic for type checkers alone
    """Users."""

    form = UserChangeForm
    list_display = ("username", "email", "is_staff", "is_superuser", "is_active", "last_login")
    list_filter = ("is_staff", "is_superuser", "is_active")
    search_fields = ("username", "email", "first_name", "last_name")
    filter_horizontal = ()
    readonly_fields = ("last_login", "date_joined")
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        (_("Person"), {"fields": ("first_name", "last_name", "email")}),
        (
            _("Sign-in"),
            {
                "fields": ("is_active", "is_staff", "is_superuser"),
                "description": _("Staff may sign in here; what they may do says their membership."),
            },
        ),
        (_("Dates"), {"fields": ("last_login", "date_joined")}),
    )

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:  # noqa: A002  # Django's own signature
        """Django's, with an audit row where the password did change."""
        with change(actor(request), "password changed") as entry:
            before = User.objects.filter(pk=id).values_list("password", flat=True).first()
            response = super().user_change_password(request, id, form_url)
            user = User.objects.filter(pk=id).first()
            if user is None or user.password == before:
                entry.skip()
            else:
                entry.about(user)
        return response


@admin.register(Membership, site=room)
class MembershipAdmin(ServiceAdmin):
    """Memberships."""

    list_display = ("user", "role", "tenant")
    list_filter = ("role",)
    search_fields = ("user__username", "tenant__name")
    list_select_related = ("user", "tenant")
    autocomplete_fields = ("user", "tenant")
    fixed_fields = ("user",)
