"""Tenants, what they may use, their keys and people, and what they ask for."""

from typing import TYPE_CHECKING

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from control.models.documents import is_messages
from control.models.guard import Guarded
from control.models.names import name_field
from control.models.policy import Pool, Tier

if TYPE_CHECKING:
    from django_stubs_ext import StrPromise


class Tenant(Guarded):
    """Who is isolated and has quotas."""

    name = name_field(help_text=_("In metrics, logs and pages; can't be changed later."))
    title = models.CharField(
        _("title"), max_length=120, blank=True, default="", help_text=_("What people call it.")
    )
    enabled = models.BooleanField(_("enabled"), default=True, help_text=_("Off: every key of it is refused."))
    contact = models.EmailField(_("contact"), blank=True, default="")
    refusal_messages = models.JSONField(
        _("refusal messages"),
        default=dict,
        blank=True,
        validators=[is_messages],
        help_text=_('Text that replaces ours, by language: {"en": "...", "zh": "..."}.'),
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        verbose_name = _("tenant")
        verbose_name_plural = _("tenants")
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


def _bound(label: "StrPromise") -> "models.PositiveBigIntegerField[int | None, int | None]":
    return models.PositiveBigIntegerField(
        label, null=True, blank=True, validators=[MinValueValidator(1)], help_text=_("Empty: no bound.")
    )


class Grant(Guarded):
    """Which tenant may use which pool, in which tier, and how much of it."""

    tenant = models.ForeignKey(
        Tenant, on_delete=models.CASCADE, related_name="grants", verbose_name=_("tenant")
    )
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="grants", verbose_name=_("pool"))
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT, related_name="grants", verbose_name=_("tier"))
    weight = models.FloatField(
        _("weight"),
        default=1.0,
        validators=[MinValueValidator(0.01), MaxValueValidator(1000.0)],
        help_text=_("Fair share against the tier's other tenants."),
    )
    requests_per_min = _bound(_("requests/min"))
    requests_burst = _bound(_("requests, burst"))
    tokens_per_min = _bound(_("LLM tokens/min"))
    tokens_burst = _bound(_("LLM tokens, burst"))
    concurrency = _bound(_("concurrency"))
    monthly_tokens = _bound(_("LLM tokens/month"))

    class Meta:
        verbose_name = _("grant")
        verbose_name_plural = _("grants")
        ordering = ("tenant__name", "pool__name")
        constraints = (
            models.UniqueConstraint(fields=("tenant", "pool"), name="grant_once_per_tenant_and_pool"),
            models.CheckConstraint(
                condition=Q(weight__gt=0) & Q(weight__lte=1000), name="grant_weight_in_range"
            ),
            *(
                models.CheckConstraint(
                    condition=Q(**{f"{name}__isnull": True}) | Q(**{f"{name}__gte": 1}),
                    name=f"grant_{name}_positive",
                )
                for name in (
                    "requests_per_min",
                    "requests_burst",
                    "tokens_per_min",
                    "tokens_burst",
                    "concurrency",
                    "monthly_tokens",
                )
            ),
        )

    def __str__(self) -> str:
        return f"{self.tenant} / {self.pool}"


class ApiKey(Guarded):
    """A tenant's key: public id and digests only. The key itself is shown once and never stored."""

    public_id = models.CharField(_("public id"), max_length=12, unique=True)
    environment = models.CharField(_("environment"), max_length=8, default="live")
    tenant = models.ForeignKey(
        Tenant, on_delete=models.CASCADE, related_name="keys", verbose_name=_("tenant")
    )
    name = models.CharField(_("name"), max_length=80, help_text=_("What it is used for."))
    digest = models.CharField(max_length=64)
    previous_digest = models.CharField(max_length=64, blank=True, default="")
    previous_expires_at = models.DateTimeField(null=True, blank=True)
    tier = models.ForeignKey(
        Tier,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="keys",
        verbose_name=_("tier"),
        help_text=_("Only lowers what the grant gives. Empty: the grant's tier."),
    )
    created_by = models.CharField(_("created by"), max_length=150)
    created_at = models.DateTimeField(_("created"))
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True)
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True)

    class Meta:
        verbose_name = _("API key")
        verbose_name_plural = _("API keys")
        ordering = ("-created_at", "-id")
        constraints = (
            models.CheckConstraint(
                condition=Q(previous_digest="", previous_expires_at__isnull=True)
                | (~Q(previous_digest="") & Q(previous_expires_at__isnull=False)),
                name="key_overlap_ends",
            ),
            models.CheckConstraint(
                condition=Q(expires_at__isnull=True) | Q(expires_at__gt=F("created_at")),
                name="key_expires_after_creation",
            ),
        )

    def __str__(self) -> str:
        return f"sg_{self.environment}_{self.public_id}"


class Membership(Guarded):
    """What a person may do: for all of it (viewer, operator, admin) or for one tenant (owner, member, reader)."""

    class Role(models.TextChoices):
        """Roles. Staff roles have no tenant, tenant roles have one."""

        VIEWER = "viewer", _("viewer: sees everything")
        OPERATOR = "operator", _("operator: also overrides")
        ADMIN = "admin", _("admin: also edits policy")
        TENANT_OWNER = "tenant-owner", _("tenant owner: keys, members, quota requests")
        TENANT_MEMBER = "tenant-member", _("tenant member: keys")
        TENANT_VIEWER = "tenant-viewer", _("tenant viewer: sees its tenant")

    STAFF_ROLES = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
    TENANT_ROLES = (Role.TENANT_OWNER, Role.TENANT_MEMBER, Role.TENANT_VIEWER)

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships", verbose_name=_("user")
    )
    tenant = models.ForeignKey(
        Tenant,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="memberships",
        verbose_name=_("tenant"),
    )
    role = models.CharField(_("role"), max_length=16, choices=Role.choices)

    class Meta:
        verbose_name = _("membership")
        verbose_name_plural = _("memberships")
        ordering = ("user__username", "id")
        constraints = (
            models.UniqueConstraint(fields=("user", "tenant"), name="membership_once_per_user_and_tenant"),
            models.UniqueConstraint(
                fields=("user",), condition=Q(tenant__isnull=True), name="membership_one_staff_role_per_user"
            ),
            models.CheckConstraint(
                condition=Q(tenant__isnull=True, role__in=["viewer", "operator", "admin"])
                | Q(tenant__isnull=False, role__in=["tenant-owner", "tenant-member", "tenant-viewer"]),
                name="membership_role_fits_tenant",
                violation_error_message=_(
                    "Role: viewer, operator and admin have no tenant; tenant roles need one."
                ),
            ),
        )

    def __str__(self) -> str:
        return f"{self.user}: {self.role}" + (f" ({self.tenant})" if self.tenant_id else "")


class QuotaRequest(Guarded):
    """A tenant asks for more; an admin approves or declines."""

    class State(models.TextChoices):
        """Where it stands."""

        PENDING = "pending", _("pending")
        APPROVED = "approved", _("approved")
        DECLINED = "declined", _("declined")
        WITHDRAWN = "withdrawn", _("withdrawn")

    grant = models.ForeignKey(
        Grant, on_delete=models.CASCADE, related_name="quota_requests", verbose_name=_("grant")
    )
    requested_by = models.CharField(_("requested by"), max_length=150)
    requested_at = models.DateTimeField(_("requested"))
    justification = models.TextField(_("justification"), max_length=2000)
    requests_per_min = _bound(_("requests/min"))
    tokens_per_min = _bound(_("LLM tokens/min"))
    concurrency = _bound(_("concurrency"))
    monthly_tokens = _bound(_("LLM tokens/month"))
    state = models.CharField(_("state"), max_length=12, choices=State.choices, default=State.PENDING)
    decided_by = models.CharField(_("decided by"), max_length=150, blank=True, default="")
    decided_at = models.DateTimeField(_("decided"), null=True, blank=True)
    answer = models.TextField(_("answer"), blank=True, default="", max_length=2000)

    class Meta:
        verbose_name = _("quota request")
        verbose_name_plural = _("quota requests")
        ordering = ("-requested_at", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=("grant",), condition=Q(state="pending"), name="quota_request_one_pending_per_grant"
            ),
            models.CheckConstraint(
                condition=Q(state="pending", decided_at__isnull=True)
                | (~Q(state="pending") & Q(decided_at__isnull=False)),
                name="quota_request_decision_dated",
            ),
        )

    def __str__(self) -> str:
        return f"{self.grant}: {self.state}"
