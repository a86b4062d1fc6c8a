"""Published policy: every revision, and what is out at the gateways."""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from control.models.guard import AppendOnly, Guarded


class PolicyRevision(AppendOnly):
    """One numbered snapshot, as the gateways get it (the body of the envelope)."""

    number = models.PositiveBigIntegerField(_("number"), primary_key=True)
    created_at = models.DateTimeField(_("created"))
    author = models.CharField(_("author"), max_length=150)
    summary = models.CharField(_("summary"), max_length=300)
    body = models.BinaryField()
    content_digest = models.CharField(
        max_length=64
    )  # of the body without number and time: equal policy, equal digest

    class Meta:
        verbose_name = _("policy revision")
        verbose_name_plural = _("policy revisions")
        ordering = ("-number",)
        constraints = (
            models.CheckConstraint(condition=Q(number__gte=1), name="revision_numbers_start_at_one"),
        )

    def __str__(self) -> str:
        return f"r{self.number}"


class PublishedState(Guarded):
    """Version numbers that only grow, and a cache of what the gateways have to get. One row, locked by who changes it."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    generation = models.PositiveBigIntegerField(default=1)
    revision = models.PositiveBigIntegerField(default=0)
    overrides_version = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = (models.CheckConstraint(condition=Q(id=1), name="published_state_is_one_row"),)

    def __str__(self) -> str:
        return f"generation {self.generation}, revision {self.revision}, overrides {self.overrides_version}"
