"""Small frames and scenes for tables: say only what matters, the rest is a calm pool `chat` with two backends."""

# ruff: noqa: E501  # tables read better in one line
import msgspec

from dashboard.charts.samples import sample_of
from dashboard.panels.scene import Scene
from gateway.contract import frame as f

NOW = 1_796_047_592.0  # 2026-11-30 14:06:32 UTC


def tier(rank=0, **changes):
    plain = f.TierFrame(
        pool="chat", tier=rank, name=("realtime", "agents", "batch")[rank], offered_per_s=5.0, admitted_per_s=5.0,
        shed_per_s={}, refused_429_per_s=0.0, waiting=0, max_size=200, delay_budget_s=0.5, oldest_wait_s=0.0, in_flight=4,
        ttft_p50_s=0.2, ttft_p95_s=0.4, tpot_p50_s=0.03, tpot_p95_s=0.05, ttft_objective_s=1.0, tpot_objective_s=0.15,
        goodput_tokens_per_s=500.0, retries_per_s=0.0, pressure=0.1,
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


def breaker(state="closed", until=None):
    return f.BreakerFrame(state=state, manual=state.startswith("forced"), until=until)


def backend(name="b1", **changes):
    plain = f.BackendFrame(
        backend=name, pool="chat", engine="vllm", limit=40.0, limit_max=64, reserved_seats=2, in_flight=10,
        in_flight_by_tier=(4, 4, 2), engine_running=10, engine_waiting=0, kv_ratio=0.4, kv_source="gauge", prefill_ratio=0.2,
        kv_use_ratio=0.4, sequences_ratio=0.25, binding=None, breaker=breaker(), telemetry_age_s=0.5, preemptions_per_s=0.0,
        slow=1.0, tpot_s=0.04,
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


def tenant(name="acme", rank=2, **changes):
    plain = f.TenantFrame(
        tenant=name, pool="chat", tier=rank, offered_per_s=2.0, admitted_per_s=2.0, shed_per_s=0.0, waiting=0, in_flight=1,
        cost_share=0.1,
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


def gateway(name="gw-1", **changes):
    plain = f.GatewayFrame(
        gateway=name, report_age_s=0.3, snapshot_revision=7, snapshot_refused=None, bounds_epoch=1, bounds_seq=1, share=1.0,
        ledger_imbalance=0, draining=False, degraded=False,
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


def override(target="b1", value="open", **changes):
    plain = f.OverrideFrame(
        id="ov_1", kind="breaker", target=target, value=value, actor="d.reyes", reason="engine restarts",
        expires_at=NOW + 900,
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


def frame(at=NOW, **changes):
    plain = f.Frame(
        at=at,
        tiers=(tier(0), tier(1, ttft_objective_s=4.0), tier(2, ttft_objective_s=15.0)),
        backends=(backend("b1"), backend("b2")),
        backends_left_out=0,
        tenants=(),
        gateways=(gateway(),),
        control=f.ControlFrame(
            leader="control-1", epoch=1, seq=1, tick_age_s=0.1, tick_duration_s=0.03, revision=7, lowest_applied_revision=7
        ),
        overrides=(),
        events=(),
        incidents_open=0,
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


def scene(newest=None, before=(), *, pool="chat", by="shed", now=None):
    """A scene whose past is `before` (frames, oldest first, one a second up to the newest)."""
    newest = newest or frame()
    past = [msgspec.structs.replace(each, at=newest.at - len(before) + i) for i, each in enumerate(before)]
    samples = tuple(sample_of(each) for each in (*past, newest))
    return Scene(newest, samples, newest.events, newest.at if now is None else now, pool, by)


def shedding(rank, rate, reason="fast_reject", offered=None, **changes):
    """A tier of which `rate` per second are shed for `reason`."""
    total = rate + 1.0 if offered is None else offered
    return tier(
        rank,
        **{
            "offered_per_s": total,
            "admitted_per_s": max(0.0, total - rate),
            "shed_per_s": {reason: rate},
            "refused_429_per_s": rate,
            "ttft_objective_s": (1.0, 4.0, 15.0)[rank],
        }
        | changes,
    )
