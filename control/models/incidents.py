"""Incidents: opened and closed by rules, with one timeline."""

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _


class Incident(models.Model):
    """Something went wrong for a while. The loop's rules write it; it is history, not policy, hence not guarded."""

    key = models.CharField(max_length=24, unique=True)
    kind = models.CharField(_("kind"), max_length=40)
    target = models.CharField(_("target"), max_length=120, blank=True, default="")
    severity = models.CharField(_("severity"), max_length=12, default="warning")
    title = models.CharField(_("title"), max_length=300)
    opened_at = models.DateTimeField(_("opened"), db_index=True)
    closed_at = models.DateTimeField(_("closed"), null=True, blank=True)

    class Meta:
        verbose_name = _("incident")
        verbose_name_plural = _("incidents")
        ordering = ("-opened_at", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=("kind", "target"),
                condition=Q(closed_at__isnull=True),
                name="incident_open_once_per_target",
            ),
            models.CheckConstraint(
                condition=Q(closed_at__isnull=True) | Q(closed_at__gte=F("opened_at")),
                name="incident_closes_after_opening",
            ),
        )

    def __str__(self) -> str:
        return self.title


class IncidentEvent(models.Model):
    """One entry of an incident's timeline."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField(db_index=True)
    kind = models.CharField(max_length=40)
    text = models.CharField(max_length=500)
    target = models.CharField(max_length=120, blank=True, default="")
    author = models.CharField(max_length=150, blank=True, default="")

    class Meta:
        verbose_name = _("incident event")
        verbose_name_plural = _("incident events")
        ordering = ("at", "id")

    def __str__(self) -> str:
        return self.text
