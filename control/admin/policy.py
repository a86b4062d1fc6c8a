"""Tiers, queue policies, pools and backends."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from control.admin.base import ServiceAdmin
from control.admin.forms import PoolForm
from control.admin.site import room
from control.models import Backend, Pool, QueuePolicy, Tier


@admin.register(QueuePolicy, site=room)
class QueuePolicyAdmin(ServiceAdmin):
    """Queue policies."""

    list_display = ("name", "max_size", "timeout_s", "drop", "retry_after_max_s", "used_by")
    list_filter = ("drop",)
    search_fields = ("name",)
    fieldsets = (
        (None, {"fields": ("name", "drop", "max_size", "timeout_s")}),
        (_("Details"), {"fields": ("max_size_per_tenant", "delay_budget_s", "retry_after_max_s")}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With the tiers that use it, in one more query."""
        return super().get_queryset(request).prefetch_related("tiers")

    @admin.display(description=_("tiers"))
    def used_by(self, row: QueuePolicy) -> str:
        """Which tiers queue by it."""
        return ", ".join(str(tier) for tier in row.tiers.all())


@admin.register(Tier, site=room)
class TierAdmin(ServiceAdmin):
    """Tiers."""

    list_display = ("rank", "name", "queue", "ttft_objective_s", "tpot_objective_s", "weight", "floor")
    list_display_links = ("rank", "name")
    search_fields = ("name",)
    fixed_fields = ("rank",)
    fieldsets = (
        (None, {"fields": ("rank", "name", "queue")}),
        (_("Objectives"), {"fields": ("ttft_objective_s", "tpot_objective_s", "delay_budget_factor")}),
        (
            _("Share"),
            {
                "fields": ("weight", "share_cap", "floor", "hold_back_prefill", "hold_back_kv"),
                "description": _("Who goes first, who gets what is left, and who is held back first."),
            },
        ),
        (_("Refusals"), {"fields": ("refusal_messages",)}),
    )


@admin.register(Pool, site=room)
class PoolAdmin(ServiceAdmin):
    """Pools."""

    form = PoolForm
    list_display = ("name", "model_names", "algorithm", "min_limit", "max_limit", "breaker_enabled")
    list_filter = ("algorithm", "breaker_enabled", "watermark_enabled")
    search_fields = ("name",)
    fixed_fields = ("name",)
    fieldsets = (
        (None, {"fields": ("name", "models_served")}),
        (
            _("Limit"),
            {
                "fields": (
                    "algorithm",
                    ("min_limit", "max_limit", "initial_limit"),
                    ("reserved_seats", "chunk_tokens", "kv_target"),
                )
            },
        ),
        (
            _("Breaker"),
            {
                "fields": (
                    "breaker_enabled",
                    ("breaker_window_s", "breaker_min_requests", "breaker_failure_ratio"),
                    ("breaker_open_s", "breaker_ramp_s"),
                    ("breaker_half_open_probes", "breaker_probe_timeout_s"),
                )
            },
        ),
        (
            _("Fallback"),
            {
                "fields": ("fallback_text", "fallback_pool", "fallback_tiers"),
                "description": _("What is answered while the breaker is open: a text or another pool."),
            },
        ),
        (
            _("Engine-queue rule"),
            {
                "classes": ("collapse",),
                "fields": (
                    "watermark_enabled",
                    ("watermark_safe", "watermark_maximum", "watermark_jitter_s"),
                ),
            },
        ),
        (_("Cost"), {"fields": ("output_cost", "default_output_tokens", "max_output_tokens")}),
        (
            _("Time"),
            {
                "fields": (
                    ("connect_timeout_s", "first_byte_timeout_s"),
                    ("idle_timeout_s", "total_timeout_s"),
                    "sse_keepalive_s",
                )
            },
        ),
    )

    @admin.display(description=_("model names"))
    def model_names(self, row: Pool) -> str:
        """What callers may ask for."""
        return ", ".join(row.models_served)


@admin.register(Backend, site=room)
class BackendAdmin(ServiceAdmin):
    """Backends."""

    list_display = ("name", "pool", "engine", "url", "enabled", "drained", "weight")
    list_filter = ("pool", "engine", "enabled", "drained")
    search_fields = ("name", "url", "pool__name")
    list_select_related = ("pool",)
    fixed_fields = ("name",)
    actions = ("drain", "take_back", "disable", "enable")
    fieldsets = (
        (None, {"fields": ("name", "pool", "engine", "url", "metrics_url", "credential")}),
        (_("Traffic"), {"fields": ("enabled", "drained", "weight")}),
        (
            _("Engine"),
            {
                "fields": ("max_seqs", "kv_capacity_tokens", "context_tokens"),
                "description": _("Leave empty what telemetry tells."),
            },
        ),
    )

    @admin.action(description=_("Drain: nothing new, finish what is in flight"), permissions=["change"])
    def drain(self, request: HttpRequest, queryset: QuerySet[Backend]) -> None:
        """Drain the chosen ones."""
        self.set_fields(request, queryset, drained=True)

    @admin.action(description=_("Take back into service"), permissions=["change"])
    def take_back(self, request: HttpRequest, queryset: QuerySet[Backend]) -> None:
        """Undo a drain."""
        self.set_fields(request, queryset, drained=False)

    @admin.action(description=_("Disable"), permissions=["change"])
    def disable(self, request: HttpRequest, queryset: QuerySet[Backend]) -> None:
        """Take them out."""
        self.set_fields(request, queryset, enabled=False)

    @admin.action(description=_("Enable"), permissions=["change"])
    def enable(self, request: HttpRequest, queryset: QuerySet[Backend]) -> None:
        """Put them in."""
        self.set_fields(request, queryset, enabled=True)
