"""Manual settings with actor, reason and expiry."""

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from control.models.guard import Guarded
from gateway.core.vocabulary import OverrideKind

MAX_OVERRIDE_S = 24 * 3600
KINDS = tuple((kind.value, kind.value) for kind in OverrideKind)


class Override(Guarded):
    """One manual setting. In force while `released_at` is empty and `expires_at` is ahead; at most one per target."""

    key = models.CharField(max_length=24, unique=True)
    kind = models.CharField(_("kind"), max_length=24, choices=KINDS)
    target = models.CharField(_("target"), max_length=63)
    value = models.CharField(_("value"), max_length=32)
    actor = models.CharField(_("actor"), max_length=150)
    reason = models.CharField(_("reason"), max_length=500)
    created_at = models.DateTimeField(_("created"))
    lifetime_s = models.PositiveIntegerField(
        _("lifetime, s"), validators=[MinValueValidator(1), MaxValueValidator(MAX_OVERRIDE_S)]
    )
    expires_at = models.DateTimeField(_("expires"))
    released_at = models.DateTimeField(_("released"), null=True, blank=True)
    released_by = models.CharField(_("released by"), max_length=150, blank=True, default="")

    class Meta:
        verbose_name = _("override")
        verbose_name_plural = _("overrides")
        ordering = ("-created_at", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=("kind", "target"),
                condition=Q(released_at__isnull=True),
                name="override_one_per_target",
            ),
            models.CheckConstraint(
                condition=Q(lifetime_s__gte=1) & Q(lifetime_s__lte=MAX_OVERRIDE_S),
                name="override_lasts_a_day_at_most",
            ),
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("created_at")), name="override_expires_after_creation"
            ),
            models.CheckConstraint(
                condition=~Q(reason="") & ~Q(actor=""), name="override_has_actor_and_reason"
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.target}={self.value}"
