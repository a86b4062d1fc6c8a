"""The audit log: append-only, hash-chained (`control.audit` writes, reads and verifies the chain)."""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from control.models.guard import AppendOnly, Guarded


class AuditEvent(AppendOnly):
    """One change: who, what, when, why. `digest` covers everything in the row and the digest before it."""

    seq = models.PositiveBigIntegerField(_("number"), primary_key=True)
    at = models.DateTimeField(_("at"), db_index=True)
    actor = models.CharField(_("actor"), max_length=150, db_index=True)
    origin = models.CharField(
        _("origin"), max_length=24, help_text=_("admin, dashboard, api, command or loop")
    )
    action = models.CharField(_("action"), max_length=40, db_index=True)
    object_type = models.CharField(_("type"), max_length=40)
    object_id = models.CharField(_("id"), max_length=64)
    object_name = models.CharField(_("object"), max_length=200)
    reason = models.CharField(_("reason"), max_length=500, blank=True, default="")
    changes = models.TextField(_("changes"), help_text=_("Canonical JSON: {field: [before, after]}."))
    revision = models.PositiveBigIntegerField(_("revision"), null=True, blank=True)
    previous_digest = models.CharField(_("digest before"), max_length=64)
    digest = models.CharField(_("digest"), max_length=64, unique=True)

    class Meta:
        verbose_name = _("audit event")
        verbose_name_plural = _("audit events")
        ordering = ("-seq",)
        indexes = (models.Index(fields=("object_type", "object_id"), name="audit_by_object"),)
        constraints = (
            models.CheckConstraint(condition=Q(seq__gte=1), name="audit_numbers_start_at_one"),
            models.CheckConstraint(condition=~Q(actor=""), name="audit_has_an_actor"),
        )

    def __str__(self) -> str:
        return f"#{self.seq} {self.actor} {self.action} {self.object_name}"


class AuditHead(Guarded):
    """The end of the chain: locked by whoever appends, so that numbers and digests have no gaps and no forks."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    seq = models.PositiveBigIntegerField(default=0)
    digest = models.CharField(max_length=64, default="0" * 64)

    class Meta:
        constraints = (models.CheckConstraint(condition=Q(id=1), name="audit_has_one_head"),)

    def __str__(self) -> str:
        return f"{self.seq}:{self.digest}"
