"""LLM tokens that were used, exactly: the sum of what gateways told, each delta counted once."""

from django.db import models
from django.utils.translation import gettext_lazy as _


class UsageLedger(models.Model):
    """One tenant, pool and hour. Names, not references: history outlives what it is about."""

    tenant = models.CharField(_("tenant"), max_length=63)
    pool = models.CharField(_("pool"), max_length=63)
    hour = models.DateTimeField(_("hour"))
    requests = models.PositiveBigIntegerField(default=0)
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)

    class Meta:
        verbose_name = _("usage")
        verbose_name_plural = _("usage")
        ordering = ("-hour", "tenant", "pool")
        constraints = (
            models.UniqueConstraint(fields=("tenant", "pool", "hour"), name="usage_once_per_hour"),
        )

    def __str__(self) -> str:
        return f"{self.tenant} / {self.pool} {self.hour:%Y-%m-%d %H}h"


class UsageMark(models.Model):
    """The last delta of one gateway's run that was counted: what makes counting idempotent."""

    gateway = models.CharField(max_length=63)
    boot = models.CharField(max_length=64)
    seq = models.PositiveBigIntegerField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("gateway", "boot"), name="usage_mark_once_per_boot"),)

    def __str__(self) -> str:
        return f"{self.gateway}/{self.boot}: {self.seq}"
