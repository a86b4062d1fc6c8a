import msgspec
import pytest

from control.engines.base import Telemetry
from control.frames.histories import Histories
from control.frames.merge import MAX_FRAME_BYTES, Sources, merge
from control.observations import Observation, Rates
from gateway.contract.bounds import Bounds, GatewayShare
from gateway.contract.frame import ControlFrame, EventFrame, Frame
from gateway.contract.overrides import OverrideSpec
from gateway.contract.report import GatewayReport, TenantGauge
from gateway.core.vocabulary import BreakerState, OverrideKind
from tests.fakes.published import a_snapshot
from tests.fakes.reports import a_count, a_gauge, a_report, a_series

NOW = 1000.0
CONTROL = ControlFrame(
    leader="c", epoch=1, seq=1, tick_age_s=1.0, tick_duration_s=0.01, revision=1, lowest_applied_revision=1
)


def frame(*reports: GatewayReport, **changes: object) -> Frame:
    histories = Histories()
    for report in reports:
        histories.add([report], NOW)
    sources = {
        "now": NOW,
        "snapshot": a_snapshot(),
        "histories": histories,
        "observations": {},
        "bounds": Bounds(
            epoch=1, seq=1, sent_at=NOW, backends=(), gateways=(GatewayShare(gateway="g1", share=1.0),)
        ),
        "overrides": (),
        "events": (),
        "control": CONTROL,
        "incidents_open": 0,
    }
    return merge(Sources(**{**sources, **changes}))  # type: ignore[arg-type]


def two(first: dict[str, object], second: dict[str, object]) -> tuple[GatewayReport, GatewayReport]:
    """Two reports one second apart."""
    return a_report(seq=1, sent_at=10.0, **first), a_report(seq=2, sent_at=11.0, **second)  # type: ignore[arg-type]


def test_rates_are_differences_of_counters_per_second() -> None:
    before, after = two(
        {"tiers": (a_series(offered=100, admitted=90, goodput_tokens=1000),)},
        {"tiers": (a_series(offered=110, admitted=96, goodput_tokens=1500, waiting=3, oldest_wait_s=0.4),)},
    )
    tier = frame(before, after).tiers[0]
    assert (tier.offered_per_s, tier.admitted_per_s, tier.goodput_tokens_per_s) == (10, 6, 500)
    assert (tier.waiting, tier.oldest_wait_s) == (3, 0.4)


def test_a_lost_report_loses_nothing() -> None:
    """Counters are cumulative: half the reports give the same rate."""
    first = a_report(seq=1, sent_at=10.0, tiers=(a_series(offered=0),))
    third = a_report(seq=3, sent_at=11.0, tiers=(a_series(offered=20),))
    assert frame(first, third).tiers[0].offered_per_s == 20


def test_sheds_are_told_by_reason_and_503_is_not_429() -> None:
    before, after = two(
        {"traffic": (a_count("refused", "early_drop", 5),)},
        {
            "traffic": (
                a_count("refused", "early_drop", 8),
                a_count("evicted", "queue_timeout", 1),
                a_count("refused", "breaker_open", 2),
                a_count("completed", "", 50),
            ),
            "tiers": (a_series(),),
        },
    )
    tier = frame(before, after).tiers[0]
    assert tier.shed_per_s == {"early_drop": 3.0, "queue_timeout": 1.0, "breaker_open": 2.0}
    assert tier.refused_429_per_s == 4.0


def test_percentiles_are_of_all_gateways_together() -> None:
    def bucketed(gateway: str, bucket: int) -> tuple[GatewayReport, GatewayReport]:
        empty = a_series()
        ttft = tuple(100 if i == bucket else 0 for i in range(len(empty.ttft)))
        return (
            a_report(gateway, 1, 10.0, tiers=(empty,)),
            a_report(gateway, 2, 11.0, tiers=(a_series(ttft=ttft),)),
        )

    tier = frame(*bucketed("g1", 2), *bucketed("g2", 7)).tiers[0]
    assert tier.ttft_p50_s == pytest.approx(0.1)
    assert tier.ttft_p95_s is not None
    assert 0.75 < tier.ttft_p95_s <= 1.0


def test_unknown_telemetry_is_null_and_never_zero() -> None:
    backend = frame(a_report(backends=(a_gauge(),))).backends[0]
    assert (backend.kv_ratio, backend.kv_source, backend.engine_running, backend.telemetry_age_s) == (
        None,
    ) * 4


def test_stale_telemetry_is_null_but_its_age_is_told() -> None:
    told = Telemetry(running=3, waiting=0, kv_ratio=0.5, kv_source="gauge")
    old = Observation(backend="b1", telemetry=told, scraped_at=NOW - 10)
    backend = frame(observations={"b1": old}).backends[0]
    assert (backend.kv_ratio, backend.telemetry_age_s) == (None, 10.0)


def test_fresh_telemetry_is_shown() -> None:
    told = Telemetry(running=3, waiting=2, kv_ratio=0.5, kv_source="slots", max_seqs=4)
    seen = Observation(backend="b1", telemetry=told, scraped_at=NOW - 1, rates=Rates(preemptions_per_s=1.5))
    backend = frame(observations={"b1": seen}).backends[0]
    assert (backend.engine_running, backend.engine_waiting, backend.kv_ratio) == (3, 2, 0.5)
    assert (backend.kv_source, backend.limit_max, backend.preemptions_per_s) == ("slots", 4, 1.5)


def test_seats_of_all_gateways_add_up_and_the_gravest_breaker_is_shown() -> None:
    made = frame(
        a_report("g1", backends=(a_gauge(limit=4.0, in_flight=3, in_flight_by_tier=(1, 1, 1)),)),
        a_report(
            "g2", backends=(a_gauge(limit=4.0, in_flight=2, breaker=BreakerState.OPEN, breaker_until=5.0),)
        ),
    ).backends[0]
    assert (made.limit, made.in_flight, made.in_flight_by_tier) == (8.0, 5, (1, 1, 1))
    assert (made.breaker.state, made.breaker.manual, made.breaker.until) == ("open", False, 5.0)


def test_a_forced_breaker_is_shown_as_manual() -> None:
    made = frame(a_report(backends=(a_gauge(breaker=BreakerState.FORCED_CLOSED),))).backends[0]
    assert (made.breaker.state, made.breaker.manual) == ("forced-closed", True)


def test_tenants_are_sorted_by_what_they_offer_and_name_their_main_reason() -> None:
    before, after = two(
        {},
        {
            "traffic": (
                a_count("completed", "", 5, "small"),
                a_count("refused", "early_drop", 30, "large"),
                a_count("refused", "queue_full", 10, "large"),
            ),
            "tenants": (
                TenantGauge(pool="chat", tier=0, tenant="large", waiting=2, in_flight=1, cost=300.0),
            ),
        },
    )
    large, small = frame(before, after).tenants
    assert (large.tenant, large.offered_per_s, large.shed_per_s, large.main_reason) == (
        "large",
        40,
        40,
        "early_drop",
    )
    assert (large.waiting, large.in_flight, large.cost_share) == (2, 1, 1.0)
    assert (small.tenant, small.main_reason) == ("small", None)


def test_a_gateway_that_stopped_reporting_carries_nothing_but_is_still_listed() -> None:
    histories = Histories()
    histories.add([a_report(backends=(a_gauge(in_flight=3),))], NOW - 10)
    made = frame(histories=histories)
    assert made.backends[0].in_flight == 0
    assert made.gateways[0].report_age_s == 10


def test_overrides_are_listed() -> None:
    spec = OverrideSpec(
        id="o1",
        kind=OverrideKind.BREAKER,
        target="b1",
        value="open",
        actor="ada",
        reason="r" * 500,
        created_at=1.0,
        expires_at=NOW + 60,
    )
    made = frame(overrides=(spec,)).overrides[0]
    assert (made.kind, made.target, made.value, made.expires_at) == ("breaker", "b1", "open", NOW + 60)
    assert len(made.reason) == 200


def test_a_frame_never_grows_beyond_its_bound() -> None:
    """Many backends, tenants and long words: the least important go first, and what is left out is counted."""
    tenants = tuple(a_count("completed", "", n, f"tenant-{n}-" + "x" * 60) for n in range(1, 200))
    events = tuple(EventFrame(at=1.0, kind="k", text="y" * 400) for _ in range(60))
    made = frame(*two({}, {"traffic": tenants}), events=events)
    assert len(msgspec.json.encode(made)) <= MAX_FRAME_BYTES
    assert made.tenants[0].tenant.startswith("tenant-199")
