"""Tenants, grants, keys (shown once), quota requests."""

from typing import Any

from django.contrib import admin, messages
from django.db import models
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy as _

from control.admin.base import ReadOnlyAdmin, ServiceAdmin
from control.admin.site import access, actor, room
from control.models import ApiKey, Grant, QuotaRequest, Tenant
from control.services import Conflict, keys, quotas, records


@admin.register(Tenant, site=room)
class TenantAdmin(ServiceAdmin):
    """Tenants."""

    list_display = ("name", "title", "enabled", "contact", "created_at")
    list_filter = ("enabled",)
    search_fields = ("name", "title", "contact")
    fixed_fields = ("name",)
    actions = ("disable", "enable")
    fieldsets = (
        (None, {"fields": ("name", "title", "enabled", "contact")}),
        (_("Refusals"), {"fields": ("refusal_messages",)}),
    )

    @admin.action(description=_("Disable: refuse every key"), permissions=["change"])
    def disable(self, request: HttpRequest, queryset: QuerySet[Tenant]) -> None:
        """Refuse every key of the chosen ones."""
        self.set_fields(request, queryset, enabled=False)

    @admin.action(description=_("Enable"), permissions=["change"])
    def enable(self, request: HttpRequest, queryset: QuerySet[Tenant]) -> None:
        """Accept their keys again."""
        self.set_fields(request, queryset, enabled=True)


@admin.register(Grant, site=room)
class GrantAdmin(ServiceAdmin):
    """Grants."""

    list_display = ("tenant", "pool", "tier", "weight", "requests_per_min", "tokens_per_min", "concurrency")
    list_display_links = ("tenant", "pool")
    list_filter = ("tier", "pool")
    search_fields = ("tenant__name", "tenant__title", "pool__name")
    list_select_related = ("tenant", "pool", "tier")
    autocomplete_fields = ("tenant",)
    fixed_fields = ("tenant", "pool")
    fieldsets = (
        (None, {"fields": ("tenant", "pool", "tier", "weight")}),
        (
            _("Quotas"),
            {
                "fields": (
                    ("requests_per_min", "requests_burst"),
                    ("tokens_per_min", "tokens_burst"),
                    "concurrency",
                    "monthly_tokens",
                ),
                "description": _("Empty: no bound. LLM tokens are prompt and output together."),
            },
        ),
    )


class KeyForm(ModelForm):  # type: ignore[type-arg]  # generic for type checkers alone
    """A key to be made; what it is made of comes from chance, not from a form."""


@admin.register(ApiKey, site=room)
class ApiKeyAdmin(ServiceAdmin):
    """Keys: made here, shown once, rotated and revoked by actions, never deleted."""

    form = KeyForm
    list_display = ("name", "tenant", "prefix", "tier", "state", "created_at", "expires_at", "last_used_at")
    list_filter = ("tier", ("revoked_at", admin.EmptyFieldListFilter))
    search_fields = ("public_id", "name", "tenant__name")
    list_select_related = ("tenant", "tier")
    autocomplete_fields = ("tenant",)
    readonly_fields = (
        "prefix",
        "created_by",
        "created_at",
        "revoked_at",
        "last_used_at",
        "previous_expires_at",
    )
    fixed_fields = ("tenant",)
    actions = ("rotate", "revoke")
    add_fieldsets = (
        (
            None,
            {
                "fields": ("tenant", "name", "tier", "expires_at"),
                "description": _("The key is shown once, on the next page."),
            },
        ),
    )
    fieldsets = (
        (None, {"fields": ("tenant", "name", "tier", "expires_at")}),
        (
            _("History"),
            {
                "fields": (
                    "prefix",
                    "created_by",
                    "created_at",
                    "last_used_at",
                    "previous_expires_at",
                    "revoked_at",
                )
            },
        ),
    )

    def get_fieldsets(self, request: HttpRequest, obj: Any | None = None) -> Any:  # noqa: ANN401  # Django's own signature
        """A new key has no history."""
        return super().get_fieldsets(request, obj) if obj is not None else self.add_fieldsets

    def has_delete_permission(self, request: HttpRequest, obj: object | None = None) -> bool:  # noqa: ARG002  # likewise
        """Revoke it: the row tells who had it when."""
        return False

    def save_model(
        self,
        request: HttpRequest,
        obj: models.Model,
        form: "ModelForm[Any]",
        change: bool,  # noqa: FBT001  # Django's own signature
    ) -> None:
        """A new row gets a key."""
        if change or not isinstance(obj, ApiKey):
            super().save_model(request, obj, form, change)
        else:
            request.minted_key = keys.issue(actor(request), obj)  # type: ignore[attr-defined]  # for response_add alone

    def response_add(
        self,
        request: HttpRequest,
        obj: ApiKey,
        post_url_continue: str | None = None,  # noqa: ARG002  # Django's own signature
    ) -> HttpResponse:
        """The one page that shows it."""
        minted: keys.MintedKey = request.minted_key  # type: ignore[attr-defined]  # set by save_model
        return self._show(request, obj, minted)

    def _show(self, request: HttpRequest, row: ApiKey, minted: keys.MintedKey) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": _("New key"),
            "opts": self.model._meta,  # noqa: SLF001  # as Django's own templates have it
            "row": row,
            "key": minted.key,
        }
        response = TemplateResponse(request, "admin/key_minted.html", context)
        response["Cache-Control"] = "no-store"
        return response

    @admin.display(description=_("key"))
    def prefix(self, row: ApiKey) -> str:
        """What may be shown of it."""
        return f"{row}_…"

    @admin.display(description=_("state"))
    def state(self, row: ApiKey) -> str:
        """One word."""
        if row.revoked_at is not None:
            return str(_("revoked"))
        return str(_("rotating")) if row.previous_expires_at is not None else str(_("good"))

    @admin.action(description=_("Revoke: refused everywhere at once"), permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        """Revoke the chosen ones."""
        with records.together():
            for row in queryset:
                keys.revoke_key(actor(request), row.public_id)
        self.message_user(request, _("Revoked."))

    @admin.action(description=_("Rotate: a new secret; the old one ends in 24 hours"), permissions=["change"])
    def rotate(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> HttpResponse | None:
        """Rotate the one that is chosen, and show it."""
        chosen = list(queryset[:2])
        if len(chosen) != 1:
            self.message_user(request, _("Choose one key to rotate."), messages.WARNING)
            return None
        minted = keys.rotate_key(actor(request), chosen[0].public_id)
        return self._show(request, chosen[0], minted)


@admin.register(QuotaRequest, site=room)
class QuotaRequestAdmin(ReadOnlyAdmin):
    """What tenants ask for; decided by actions."""

    list_display = (
        "grant",
        "state",
        "requested_by",
        "requested_at",
        "requests_per_min",
        "tokens_per_min",
        "concurrency",
        "monthly_tokens",
    )
    list_filter = ("state",)
    search_fields = ("grant__tenant__name", "requested_by", "justification")
    list_select_related = ("grant__tenant", "grant__pool")
    actions = ("approve", "decline")

    def has_decide_permission(self, request: HttpRequest) -> bool:
        """Admins."""
        return access(request).may_edit

    @admin.action(description=_("Approve: the grant gets what was asked for"), permissions=["decide"])
    def approve(self, request: HttpRequest, queryset: QuerySet[QuotaRequest]) -> None:
        """Approve the chosen ones."""
        self._decide(request, queryset, approve=True)

    @admin.action(description=_("Decline"), permissions=["decide"])
    def decline(self, request: HttpRequest, queryset: QuerySet[QuotaRequest]) -> None:
        """Decline the chosen ones."""
        self._decide(request, queryset, approve=False)

    def _decide(self, request: HttpRequest, queryset: QuerySet[QuotaRequest], *, approve: bool) -> None:
        decided = 0
        for row in queryset:
            try:
                quotas.decide(actor(request), row.pk, approve=approve)
            except Conflict as conflict:
                self.message_user(request, f"{row.grant}: {conflict}", messages.WARNING)
            else:
                decided += 1
        self.message_user(request, _("%d decided.") % decided)
