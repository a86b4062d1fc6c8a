"""What operators set: queue policies, tiers, pools and backends. Field names are those of `gateway.core.policy`."""

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from control.models.documents import is_messages, is_model_names, is_ranks
from control.models.guard import Guarded
from control.models.names import name_field
from gateway.contract.urls import url_problem
from gateway.core.vocabulary import DropPolicy, LimitAlgorithm

MAX_QUEUE = 100_000
MAX_WAIT_S = 3600.0
ENGINES = (
    ("vllm", "vLLM"),
    ("sglang", "SGLang"),
    ("tensorrt_llm", "TensorRT-LLM"),
    ("triton", "TensorRT-LLM behind Triton"),
    ("tgi", "TGI"),
    ("llama_cpp", "llama.cpp"),
    ("none", _("none (no telemetry)")),
)
DROPS = (
    (DropPolicy.TAIL.value, _("tail: the newest arrival is refused when full")),
    (DropPolicy.EARLY_DROP.value, _("early-drop-on-pressure: sheds before it is full")),
    (DropPolicy.FAST_REJECT.value, _("fast-reject: refuses what can't start in time")),
)
ALGORITHMS = tuple((algorithm.value, algorithm.value) for algorithm in LimitAlgorithm)
_RATIO = [MinValueValidator(0.0), MaxValueValidator(1.0)]


class QueuePolicy(Guarded):
    """How a tier's queue behaves: how many may wait, how long, what is shed."""

    name = name_field()
    max_size = models.PositiveIntegerField(
        _("max size"),
        default=200,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_QUEUE)],
        help_text=_("Tickets that may wait, per pool and tier, over all gateways."),
    )
    timeout_s = models.FloatField(
        _("timeout, s"),
        default=8.0,
        validators=[MinValueValidator(0.05), MaxValueValidator(MAX_WAIT_S)],
        help_text=_(
            "Longest wait. A ticket that waited this long is evicted; the delay budget usually acts first."
        ),
    )
    drop = models.CharField(
        _("drop policy"), max_length=32, choices=DROPS, default=DropPolicy.EARLY_DROP.value
    )
    max_size_per_tenant = models.PositiveIntegerField(
        _("max size per tenant"), null=True, blank=True, help_text=_("Empty: no bound of its own.")
    )
    delay_budget_s = models.FloatField(
        _("delay budget, s"),
        null=True,
        blank=True,
        validators=[MinValueValidator(0.0), MaxValueValidator(MAX_WAIT_S)],
        help_text=_("Empty: the tier's factor times its TTFT objective."),
    )
    retry_after_max_s = models.PositiveSmallIntegerField(
        _("longest Retry-After, s"), default=60, validators=[MinValueValidator(1), MaxValueValidator(60)]
    )

    class Meta:
        verbose_name = _("queue policy")
        verbose_name_plural = _("queue policies")
        ordering = ("name",)
        constraints = (
            models.CheckConstraint(
                condition=Q(max_size__gte=1) & Q(max_size__lte=MAX_QUEUE), name="queue_max_size_in_range"
            ),
            models.CheckConstraint(
                condition=Q(timeout_s__gt=0) & Q(timeout_s__lte=MAX_WAIT_S), name="queue_timeout_in_range"
            ),
            models.CheckConstraint(
                condition=Q(drop__in=[drop.value for drop in DropPolicy]), name="queue_drop_policy_known"
            ),
            models.CheckConstraint(
                condition=Q(max_size_per_tenant__isnull=True)
                | (Q(max_size_per_tenant__gte=1) & Q(max_size_per_tenant__lte=F("max_size"))),
                name="queue_tenant_bound_within_size",
                violation_error_message=_("Max size per tenant: between 1 and the max size."),
            ),
            models.CheckConstraint(
                condition=Q(retry_after_max_s__gte=1) & Q(retry_after_max_s__lte=60),
                name="queue_retry_after_in_range",
            ),
        )

    def __str__(self) -> str:
        return self.name


class Tier(Guarded):
    """A priority level. Rank 0 is served first."""

    rank = models.PositiveSmallIntegerField(
        _("rank"), unique=True, validators=[MaxValueValidator(9)], help_text=_("0 is served first (P0).")
    )
    name = name_field()
    queue = models.ForeignKey(
        QueuePolicy, on_delete=models.PROTECT, related_name="tiers", verbose_name=_("queue policy")
    )
    ttft_objective_s = models.FloatField(
        _("TTFT objective, s"), validators=[MinValueValidator(0.01), MaxValueValidator(MAX_WAIT_S)]
    )
    tpot_objective_s = models.FloatField(
        _("TPOT objective, s"), validators=[MinValueValidator(0.001), MaxValueValidator(60.0)]
    )
    weight = models.FloatField(
        _("weight"),
        default=1.0,
        validators=[MinValueValidator(0.01), MaxValueValidator(1000.0)],
        help_text=_("Share among the tiers below P0."),
    )
    share_cap = models.FloatField(
        _("share cap"),
        default=0.7,
        validators=_RATIO,
        help_text=_("P0 goes first only while its share of the dispatched cost is below this."),
    )
    floor = models.FloatField(
        _("floor"),
        default=0.0,
        validators=_RATIO,
        help_text=_("Share of the dispatched cost that it gets whatever happens above it."),
    )
    hold_back_prefill = models.FloatField(
        _("prefill hold-back"),
        default=1.0,
        validators=_RATIO,
        help_text=_("Part of the prefill account it may fill."),
    )
    hold_back_kv = models.FloatField(
        _("KV hold-back"), default=1.0, validators=_RATIO, help_text=_("Part of the KV account it may fill.")
    )
    delay_budget_factor = models.FloatField(
        _("delay budget factor"), default=0.5, validators=[MinValueValidator(0.0), MaxValueValidator(10.0)]
    )
    refusal_messages = models.JSONField(
        _("refusal messages"),
        default=dict,
        blank=True,
        validators=[is_messages],
        help_text=_('Text that replaces ours, by language: {"en": "...", "zh": "..."}.'),
    )

    class Meta:
        verbose_name = _("tier")
        verbose_name_plural = _("tiers")
        ordering = ("rank",)
        constraints = (
            models.CheckConstraint(condition=Q(rank__lte=9), name="tier_rank_in_range"),
            models.CheckConstraint(
                condition=Q(ttft_objective_s__gt=0)
                & Q(ttft_objective_s__lte=MAX_WAIT_S)
                & Q(tpot_objective_s__gt=0)
                & Q(tpot_objective_s__lte=60),
                name="tier_objectives_in_range",
            ),
            models.CheckConstraint(
                condition=Q(weight__gt=0) & Q(weight__lte=1000), name="tier_weight_in_range"
            ),
            models.CheckConstraint(
                condition=Q(share_cap__gt=0)
                & Q(share_cap__lte=1)
                & Q(floor__gte=0)
                & Q(floor__lte=1)
                & Q(hold_back_prefill__gt=0)
                & Q(hold_back_prefill__lte=1)
                & Q(hold_back_kv__gt=0)
                & Q(hold_back_kv__lte=1),
                name="tier_ratios_in_range",
            ),
        )

    def __str__(self) -> str:
        return f"P{self.rank} {self.name}"


class Pool(Guarded):
    """A served model, and how its backends are protected."""

    name = name_field()
    models_served = models.JSONField(
        _("model names"),
        default=list,
        validators=[is_model_names],
        help_text=_("What callers may ask for. The first is what the backends call it, others are aliases."),
    )
    algorithm = models.CharField(
        _("limit algorithm"), max_length=24, choices=ALGORITHMS, default=LimitAlgorithm.TOKEN_VALVE.value
    )
    min_limit = models.PositiveIntegerField(_("min limit"), default=4, validators=[MinValueValidator(1)])
    max_limit = models.PositiveIntegerField(_("max limit"), default=256, validators=[MinValueValidator(1)])
    initial_limit = models.PositiveIntegerField(_("initial limit"), null=True, blank=True)
    reserved_seats = models.PositiveIntegerField(
        _("reserved seats"),
        null=True,
        blank=True,
        help_text=_("For P0. Empty: one seat in twenty, at least 1."),
    )
    chunk_tokens = models.PositiveIntegerField(_("prefill chunk, LLM tokens"), default=2048)
    kv_target = models.FloatField(_("KV-cache target"), default=0.9, validators=_RATIO)

    breaker_enabled = models.BooleanField(_("breaker enabled"), default=True)
    breaker_window_s = models.FloatField(_("breaker window, s"), default=10.0)
    breaker_min_requests = models.PositiveIntegerField(_("breaker: fewest requests"), default=10)
    breaker_failure_ratio = models.FloatField(_("breaker: failure ratio"), default=0.5, validators=_RATIO)
    breaker_open_s = models.FloatField(_("breaker stays open, s"), default=2.0)
    breaker_half_open_probes = models.PositiveSmallIntegerField(_("probes while half-open"), default=1)
    breaker_probe_timeout_s = models.FloatField(_("probe timeout, s"), default=10.0)
    breaker_ramp_s = models.FloatField(_("ramp after closing, s"), default=10.0)

    watermark_enabled = models.BooleanField(
        _("engine-queue rule"),
        default=False,
        help_text=_("Off is right wherever the token valve runs."),
    )
    watermark_safe = models.PositiveIntegerField(_("engine waiting: safe"), default=5)
    watermark_maximum = models.PositiveIntegerField(_("engine waiting: maximum"), default=50)
    watermark_jitter_s = models.FloatField(_("engine-queue rule: jitter, s"), default=0.25)

    output_cost = models.FloatField(
        _("cost of an output token"),
        default=20.0,
        help_text=_("In prompt tokens: 20 on a GPU, 4 on a CPU engine."),
    )
    default_output_tokens = models.PositiveIntegerField(_("predicted output, LLM tokens"), default=256)
    max_output_tokens = models.PositiveIntegerField(_("longest output, LLM tokens"), default=4096)

    fallback_text = models.TextField(
        _("fallback text"), blank=True, default="", help_text=_("Answered while the breaker is open.")
    )
    fallback_pool = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        verbose_name=_("fallback pool"),
    )
    fallback_tiers = models.JSONField(
        _("fallback tiers"),
        default=list,
        blank=True,
        validators=[is_ranks],
        help_text=_("Ranks that may have the fallback, such as [0, 1]."),
    )

    sse_keepalive_s = models.FloatField(
        _("keep-alive comments after, s"), default=0.0, help_text=_("0: off.")
    )
    connect_timeout_s = models.FloatField(_("connect timeout, s"), default=2.0)
    first_byte_timeout_s = models.FloatField(_("first-byte timeout, s"), default=120.0)
    idle_timeout_s = models.FloatField(_("idle timeout, s"), default=60.0)
    total_timeout_s = models.FloatField(_("total timeout, s"), default=600.0)

    class Meta:
        verbose_name = _("pool")
        verbose_name_plural = _("pools")
        ordering = ("name",)
        constraints = (
            models.CheckConstraint(
                condition=Q(min_limit__gte=1) & Q(max_limit__gte=F("min_limit")),
                name="pool_limits_ordered",
                violation_error_message=_("Min limit: at least 1, and not above the max limit."),
            ),
            models.CheckConstraint(
                condition=Q(kv_target__gt=0) & Q(kv_target__lte=1), name="pool_kv_target_in_range"
            ),
            models.CheckConstraint(
                condition=Q(breaker_failure_ratio__gt=0) & Q(breaker_failure_ratio__lte=1),
                name="pool_failure_ratio_in_range",
            ),
            models.CheckConstraint(
                condition=Q(watermark_maximum__gte=F("watermark_safe")),
                name="pool_watermarks_ordered",
                violation_error_message=_("Engine waiting: the maximum is not below what is safe."),
            ),
            models.CheckConstraint(
                condition=Q(algorithm__in=[algorithm.value for algorithm in LimitAlgorithm]),
                name="pool_algorithm_known",
            ),
        )

    def __str__(self) -> str:
        return self.name


class Backend(Guarded):
    """One replica of a pool: where it is, what its engine is, and facts about it that telemetry can't tell."""

    name = name_field()
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="backends", verbose_name=_("pool"))
    url = models.CharField(
        _("URL"), max_length=500, help_text=_("Without /v1, such as http://10.0.0.7:8000.")
    )
    engine = models.CharField(_("engine"), max_length=16, choices=ENGINES, default="vllm")
    metrics_url = models.CharField(
        _("metrics URL"), max_length=500, blank=True, default="", help_text=_("Empty: /metrics of the URL.")
    )
    credential = models.CharField(
        _("credential"),
        max_length=200,
        blank=True,
        default="",
        help_text=_("Where the gateway finds it, never the secret itself: env:NAME or file:/path."),
    )
    weight = models.FloatField(
        _("weight"), default=1.0, validators=[MinValueValidator(0.01), MaxValueValidator(1000.0)]
    )
    enabled = models.BooleanField(_("enabled"), default=True)
    drained = models.BooleanField(
        _("drained"), default=False, help_text=_("Finishes what is in flight, gets nothing new.")
    )
    max_seqs = models.PositiveIntegerField(_("engine's max sequences"), null=True, blank=True)
    kv_capacity_tokens = models.PositiveBigIntegerField(_("KV capacity, LLM tokens"), null=True, blank=True)
    context_tokens = models.PositiveIntegerField(_("context, LLM tokens"), null=True, blank=True)

    class Meta:
        verbose_name = _("backend")
        verbose_name_plural = _("backends")
        ordering = ("pool__name", "name")
        constraints = (
            models.CheckConstraint(
                condition=Q(weight__gt=0) & Q(weight__lte=1000), name="backend_weight_in_range"
            ),
            models.CheckConstraint(
                condition=Q(credential="")
                | Q(credential__startswith="env:")
                | Q(credential__startswith="file:/"),
                name="backend_credential_is_a_reference",
                violation_error_message=_("Credential: a reference is needed, env:NAME or file:/path."),
            ),
        )

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Addresses that could be used against us are refused here as well as where they are connected to."""
        for field in ("url", "metrics_url"):
            address: str = getattr(self, field)
            problem = url_problem(address, allow_private=settings.ALLOW_PRIVATE_BACKENDS) if address else None
            if problem is not None:
                raise ValidationError({field: f"{address!r} {problem}."})
        if self.url.rstrip("/").endswith("/v1"):  # every call would become /v1/v1/... and the engine's 404
            raise ValidationError({"url": f"{self.url!r} ends in /v1: leave it out, the gateway adds it."})
