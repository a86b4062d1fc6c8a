import msgspec
import pytest

from control.frames.events import CALM_S, MAX_EVENTS, Feed, newest
from gateway.contract.frame import (
    BackendFrame,
    BreakerFrame,
    ControlFrame,
    EventFrame,
    Frame,
    GatewayFrame,
    OverrideFrame,
    TierFrame,
)

BACKEND = BackendFrame(
    backend="b1",
    pool="chat",
    engine="vllm",
    limit=8.0,
    limit_max=8,
    reserved_seats=1,
    in_flight=0,
    in_flight_by_tier=(0, 0, 0),
    engine_running=None,
    engine_waiting=None,
    kv_ratio=None,
    kv_source=None,
    prefill_ratio=0.0,
    kv_use_ratio=None,
    sequences_ratio=0.0,
    binding=None,
    breaker=BreakerFrame(state="closed", manual=False, until=None),
    telemetry_age_s=None,
    preemptions_per_s=None,
    slow=1.0,
    tpot_s=None,
)
TIER = TierFrame(
    pool="chat",
    tier=2,
    name="batch",
    offered_per_s=1.0,
    admitted_per_s=1.0,
    shed_per_s={},
    refused_429_per_s=0.0,
    waiting=0,
    max_size=10,
    delay_budget_s=1.0,
    oldest_wait_s=0.0,
    in_flight=0,
    ttft_p50_s=None,
    ttft_p95_s=None,
    tpot_p50_s=None,
    tpot_p95_s=None,
    ttft_objective_s=1.0,
    tpot_objective_s=0.1,
    goodput_tokens_per_s=0.0,
    retries_per_s=0.0,
    pressure=0.0,
)
GATEWAY = GatewayFrame(
    gateway="g1",
    report_age_s=0.5,
    snapshot_revision=1,
    snapshot_refused=None,
    bounds_epoch=1,
    bounds_seq=1,
    share=1.0,
    ledger_imbalance=0,
    draining=False,
    degraded=False,
)
CONTROL = ControlFrame(
    leader="c", epoch=1, seq=1, tick_age_s=1.0, tick_duration_s=0.01, revision=1, lowest_applied_revision=1
)
CALM = Frame(
    at=10.0,
    tiers=(TIER,),
    backends=(BACKEND,),
    backends_left_out=0,
    tenants=(),
    gateways=(GATEWAY,),
    control=CONTROL,
    overrides=(),
    events=(),
    incidents_open=0,
)
PIN = OverrideFrame(
    id="o1", kind="limit-pin", target="b1", value="4", actor="ada", reason="hot", expires_at=100.0
)
replace = msgspec.structs.replace


def later(**changed: object) -> Frame:
    return replace(CALM, at=11.0, **changed)


def texts(before: Frame, after: Frame) -> list[str]:
    feed = Feed()
    assert feed.take(before) == []
    return [event.text for event in feed.take(after)]


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (later(overrides=(PIN,)), "ada set limit-pin 4 on b1: hot"),
        (
            later(backends=(replace(BACKEND, breaker=BreakerFrame(state="open", manual=False, until=20.0)),)),
            "breaker of b1: closed to open",
        ),
        (
            later(tiers=(replace(TIER, shed_per_s={"early_drop": 1.0, "queue_full": 5.0}),)),
            "P2 of chat is shed: queue_full",
        ),
        (later(gateways=(replace(GATEWAY, report_age_s=3.5),)), "g1 has not reported for 3 s"),
        (later(gateways=(GATEWAY, replace(GATEWAY, gateway="g2"))), "g2 reports"),
        (
            later(gateways=(replace(GATEWAY, snapshot_refused="tiers: missing"),)),
            "g1 refused a snapshot: tiers: missing",
        ),
        (later(control=replace(CONTROL, revision=2)), "policy revision 2 published"),
    ],
)
def test_each_change_is_one_line(after: Frame, text: str) -> None:
    assert texts(CALM, after) == [text]


def test_nothing_changed_is_no_line() -> None:
    assert texts(CALM, later()) == []


def test_ends_are_told_as_well() -> None:
    silent = replace(CALM, gateways=(replace(GATEWAY, report_age_s=9.0),))
    assert texts(silent, later()) == ["g1 reports again"]


def test_shedding_that_comes_and_goes_is_one_event_and_ends_after_a_calm_while() -> None:
    feed, shed = Feed(), (replace(TIER, shed_per_s={"queue_full": 5.0}),)
    told = []
    for second in range(40):
        sheds = 1 <= second <= 19 and second % 2 == 1
        told += [
            (e.at, e.text)
            for e in feed.take(replace(CALM, at=float(second), tiers=shed if sheds else (TIER,)))
        ]
    assert told == [(1.0, "P2 of chat is shed: queue_full"), (19.0 + CALM_S, "P2 of chat is no longer shed")]


def test_an_override_that_ran_out_expired_and_one_that_did_not_was_released() -> None:
    pinned = replace(CALM, overrides=(PIN,))
    assert texts(pinned, replace(CALM, at=100.0)) == ["limit-pin 4 on b1 expired"]
    assert texts(pinned, later()) == ["limit-pin 4 on b1 was released"]


def test_the_feed_keeps_the_newest_first() -> None:
    made = newest(EventFrame(at=float(n), kind="k", text=str(n)) for n in range(50))
    assert len(made) == MAX_EVENTS
    assert made[0].text == "49"
