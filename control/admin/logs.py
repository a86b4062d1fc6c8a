"""What happened: audit log, revisions, overrides, incidents, usage. Read-only, but for releasing an override."""

import json

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from control.admin.base import ReadOnlyAdmin
from control.admin.site import access, actor, room
from control.models import AuditEvent, Incident, Override, PolicyRevision, UsageLedger
from control.services import overrides


def _pretty(text: str | bytes) -> str:
    return format_html("<pre>{}</pre>", json.dumps(json.loads(text), indent=2, ensure_ascii=False))


@admin.register(AuditEvent, site=room)
class AuditEventAdmin(ReadOnlyAdmin):
    """The audit log."""

    list_display = ("seq", "at", "actor", "origin", "action", "object_type", "object_name", "reason")
    list_filter = ("action", "origin", "object_type", "at")
    search_fields = ("actor", "object_name", "reason")
    fields = (
        "seq",
        "at",
        "actor",
        "origin",
        "action",
        "object_type",
        "object_id",
        "object_name",
        "reason",
        "what_changed",
        "revision",
        "previous_digest",
        "digest",
    )
    readonly_fields = ("what_changed",)

    @admin.display(description=_("changes"))
    def what_changed(self, row: AuditEvent) -> str:
        """Field by field."""
        return _pretty(row.changes)


@admin.register(PolicyRevision, site=room)
class PolicyRevisionAdmin(ReadOnlyAdmin):
    """Published policies."""

    list_display = ("number", "created_at", "author", "summary")
    search_fields = ("author", "summary")
    fields = ("number", "created_at", "author", "summary", "policy")
    readonly_fields = ("policy",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[PolicyRevision]:
        """Lists don't need the bodies."""
        return super().get_queryset(request).defer("body")

    @admin.display(description=_("policy"))
    def policy(self, row: PolicyRevision) -> str:
        """As the gateways got it."""
        return _pretty(bytes(row.body))


@admin.register(Override, site=room)
class OverrideAdmin(ReadOnlyAdmin):
    """Overrides; they are set on the dashboard, beside what they do."""

    list_display = ("kind", "target", "value", "actor", "reason", "created_at", "expires_at", "released_at")
    list_filter = ("kind", ("released_at", admin.EmptyFieldListFilter))
    search_fields = ("target", "actor", "reason")
    actions = ("release",)

    def has_release_permission(self, request: HttpRequest) -> bool:
        """Operators and admins."""
        return access(request).may_override

    @admin.action(description=_("Release now"), permissions=["release"])
    def release(self, request: HttpRequest, queryset: QuerySet[Override]) -> None:
        """End the chosen ones before their time."""
        released = sum(overrides.release_override(actor(request), row.key) for row in queryset)
        self.message_user(request, _("%d released.") % released)


@admin.register(Incident, site=room)
class IncidentAdmin(ReadOnlyAdmin):
    """Incidents."""

    list_display = ("title", "kind", "target", "severity", "opened_at", "closed_at")
    list_filter = ("kind", "severity", ("closed_at", admin.EmptyFieldListFilter))
    search_fields = ("title", "target")


@admin.register(UsageLedger, site=room)
class UsageLedgerAdmin(ReadOnlyAdmin):
    """Usage by hour."""

    list_display = ("hour", "tenant", "pool", "requests", "prompt_tokens", "output_tokens")
    list_filter = ("pool", "hour")
    search_fields = ("tenant", "pool")
