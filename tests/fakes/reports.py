"""Reports of a gateway, with just the figures that a test names."""

from gateway.contract.report import (
    TPOT_BOUNDS_S,
    TTFT_BOUNDS_S,
    WAIT_BOUNDS_S,
    BackendGauges,
    GatewayReport,
    TenantGauge,
    TierSeries,
    TrafficCount,
)
from gateway.core.vocabulary import BreakerState

NOTHING = {
    "ttft": (0,) * (len(TTFT_BOUNDS_S) + 1),
    "tpot": (0,) * (len(TPOT_BOUNDS_S) + 1),
    "wait": (0,) * (len(WAIT_BOUNDS_S) + 1),
}


def a_series(pool: str = "chat", tier: int = 0, **figures: object) -> TierSeries:
    """A tier with nothing in it but what is named."""
    zero = dict.fromkeys(
        ("offered", "admitted", "fallback", "retries", "prompt_tokens", "output_tokens", "goodput_tokens"), 0
    )
    rest = {"wasted_tokens": 0, "waiting": 0, "oldest_wait_s": 0.0, "pressure": 0.0, **NOTHING}
    return TierSeries(**{"pool": pool, "tier": tier, **zero, **rest, **figures})


def a_gauge(backend: str = "b1", pool: str = "chat", **figures: object) -> BackendGauges:
    """An idle backend but for what is named."""
    idle = {
        "limit": 8.0,
        "in_flight": 0,
        "in_flight_by_tier": (0, 0, 0),
        "kv_tokens": 0,
        "prefill_tokens": 0,
        "prefill_ratio": 0.0,
        "kv_use_ratio": None,
        "sequences_ratio": 0.0,
        "binding": None,
        "slow": 1.0,
        "tpot_s": None,
        "breaker": BreakerState.CLOSED,
        "breaker_until": None,
        "failures": 0,
        "successes": 0,
        "cost_per_s": 0.0,
    }
    return BackendGauges(**{"backend": backend, "pool": pool, **idle, **figures})


def a_report(
    gateway: str = "g1",
    seq: int = 1,
    sent_at: float = 10.0,
    boot: str = "first",
    tiers: tuple[TierSeries, ...] = (),
    backends: tuple[BackendGauges, ...] = (),
    traffic: tuple[TrafficCount, ...] = (),
    tenants: tuple[TenantGauge, ...] = (),
    **more: object,
) -> GatewayReport:
    """A healthy gateway's report."""
    healthy = {
        "snapshot_revision": 1,
        "snapshot_refused": None,
        "bounds_epoch": 1,
        "bounds_seq": 1,
        "overrides_version": 0,
        "ledger_imbalance": 0,
        "draining": False,
        "degraded": False,
    }
    return GatewayReport(
        gateway=gateway,
        boot=boot,
        started_at=0.0,
        sent_at=sent_at,
        seq=seq,
        traffic=traffic,
        tiers=tiers,
        backends=backends,
        tenants=tenants,
        **{**healthy, **more},
    )


def a_count(outcome: str, reason: str, count: int, tenant: str = "acme", tier: int = 0) -> TrafficCount:
    """One line of traffic on pool `chat`."""
    return TrafficCount(pool="chat", tier=tier, tenant=tenant, outcome=outcome, reason=reason, count=count)
