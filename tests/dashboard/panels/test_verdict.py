# ruff: noqa: E501  # tables read better in one line
import pytest

from dashboard.panels.verdict import verdict
from dashboard.panels.wording import NBSP
from tests.fakes.scenes import backend, breaker, frame, gateway, scene, shedding, tenant, tier

CALM = (tier(0), tier(1, ttft_objective_s=4.0), tier(2, ttft_objective_s=15.0))
KV_BOUND = backend("b2", kv_ratio=0.97, kv_use_ratio=0.97, binding="kv", in_flight=36)
OUT = backend("b2", breaker=breaker("open"), limit=0.0, in_flight=0)
FORCED = backend("b2", breaker=breaker("forced-open"), limit=0.0, in_flight=0)


def said(newest, before=(), **more):
    return verdict(scene(newest, before, **more))


def plain(text):
    return text.replace(NBSP, " ")


SITUATIONS = [
    # what, tiers, backends, level, sentence
    ("calm", CALM, (backend("b1"), backend("b2")), "good", "All tiers inside their objectives. Nothing shed for 1 s."),
    (
        "no traffic",
        tuple(tier(r, offered_per_s=0, admitted_per_s=0, in_flight=0, ttft_p95_s=None, tpot_p95_s=None) for r in (0, 1, 2)),
        (backend("b1", in_flight=0),),
        "good",
        "No traffic. Nothing is shed.",
    ),
    (
        "P2 shed, KV binds",
        (*CALM[:2], shedding(2, 40.0)),
        (backend("b1"), KV_BOUND),
        "bad",
        "Shedding P2 for 1 s: KV cache 97 % on b2. P0 healthy.",
    ),
    (
        "P2 and P1 shed, KV binds, one out",
        (CALM[0], shedding(1, 9.0, "early_drop"), shedding(2, 40.0)),
        (KV_BOUND, backend("b4", breaker=breaker("open"), limit=0.0, in_flight=0)),
        "bad",
        "Shedding P2 for 1 s, P1 for 1 s: KV cache 97 % on b2, b4 is out. P0 healthy.",
    ),
    (
        "prefill binds on more work than KV",
        (*CALM[:2], shedding(2, 4.0)),
        (
            backend("b1", binding="prefill", prefill_ratio=0.93, in_flight=30),
            backend("b2", binding="prefill", prefill_ratio=0.95, in_flight=30),
            backend("b3", binding="kv", kv_use_ratio=0.98, in_flight=31),
        ),
        "bad",
        "Shedding P2 for 1 s: prefill 95 % on b2. P0 healthy.",
    ),
    (
        "seats bind",
        (*CALM[:2], shedding(2, 4.0, "queue_full")),
        (backend("b1", binding="sequences", limit=8.0, in_flight=8, sequences_ratio=1.0),),
        "bad",
        "Shedding P2 for 1 s: 8 of 8 seats taken on b1. P0 healthy.",
    ),
    (
        "no gate binds: the reason itself",
        (*CALM[:2], shedding(2, 4.0, "deadline")),
        (backend("b1"),),
        "bad",
        "Shedding P2 for 1 s: work cannot start before the callers' deadlines. P0 healthy.",
    ),
    (
        "an unknown reason of a newer gateway",
        (*CALM[:2], shedding(2, 4.0, "phase_of_the_moon")),
        (backend("b1"),),
        "bad",
        "Shedding P2 for 1 s: queues are full. P0 healthy.",
    ),
    (
        "a retry storm",
        (*CALM[:2], shedding(2, 8.0, "retry_budget", offered=10.0, retries_per_s=9.0)),
        (backend("b1", binding="kv", kv_use_ratio=0.9),),
        "bad",
        "Shedding P2 for 1 s: retries are 45 % of what is offered. P0 healthy.",
    ),
    (
        "a slow backend binds",
        (*CALM[:2], shedding(2, 8.0)),
        (backend("b1", slow=4.0, binding="sequences", limit=10.0, in_flight=10), backend("b2")),
        "bad",
        "Shedding P2 for 1 s: 10 of 10 seats taken on b1, b1 runs 4x slower. P0 healthy.",
    ),
    (
        "engines answer busy",
        (*CALM[:2], shedding(2, 8.0, "engine_busy")),
        (backend("b1", binding="kv", kv_use_ratio=0.95),),
        "bad",
        "Shedding P2 for 1 s: engines answer busy. P0 healthy.",
    ),
    (
        "P0 itself is shed",
        (shedding(0, 3.0, "queue_full", offered=4.0), *CALM[1:]),
        (KV_BOUND,),
        "bad",
        "Shedding P0 for 1 s: KV cache 97 % on b2. P0 is hit: 75 % of it shed.",
    ),
    (
        "P2 shed and P0 slow",
        (tier(0, ttft_p95_s=2.1), CALM[1], shedding(2, 40.0)),
        (KV_BOUND,),
        "bad",
        "Shedding P2 for 1 s: KV cache 97 % on b2. P0 slow: TTFT p95 2.1 s, objective 1 s.",
    ),
    (
        "everything out",
        (shedding(0, 5.0, "no_backend", offered=5.0), *CALM[1:]),
        (OUT,),
        "bad",
        "Shedding P0 for 1 s: no backend takes traffic, b2 is out. P0 is hit: 100 % of it shed.",
    ),
    ("everything out, nobody asks", CALM, (OUT,), "bad", "No backend takes traffic: b2 is out."),
    (
        "one out, the other carries it",
        CALM,
        (backend("b1"), OUT),
        "bad",
        "b2 is out. Nothing shed. P0 healthy.",
    ),
    (
        "forced open by a person",
        CALM,
        (backend("b1"), FORCED),
        "bad",
        "b2 is forced open. Nothing shed. P0 healthy.",
    ),
    (
        "many out",
        CALM,
        tuple(backend(f"b{i}", breaker=breaker("open" if i else "closed")) for i in range(6)),
        "bad",
        "5 of 6 backends are out. Nothing shed. P0 healthy.",
    ),
    (
        "P0 slow and nothing shed",
        (tier(0, tpot_p95_s=0.4), *CALM[1:]),
        (backend("b1", slow=3.0), backend("b2")),
        "bad",
        "P0 slow: TPOT p95 0.40 s, objective 0.15 s: b1 runs 3x slower. Nothing shed.",
    ),
    (
        "only P2 slow",
        (*CALM[:2], tier(2, ttft_p95_s=20.0, ttft_objective_s=15.0)),
        (backend("b1"),),
        "note",
        "P2 slow: TTFT p95 20 s, objective 15 s. Nothing shed.",
    ),
    (
        "a tenant over its own limits is no overload",
        (*CALM[:2], shedding(2, 41.0, "rate_limited")),
        (backend("b1"),),
        "note",
        "Refusing 41.0/s of P2 over tenants' own limits. P0 healthy.",
    ),
    (
        "telemetry lost",
        CALM,
        (backend("b1"), backend("b2", telemetry_age_s=12.0)),
        "note",
        "No signal from b2; answers still come. Nothing shed. P0 healthy.",
    ),
    (
        "P0 without traffic while P2 is shed",
        (tier(0, offered_per_s=0, admitted_per_s=0, in_flight=0, ttft_p95_s=None, tpot_p95_s=None), CALM[1], shedding(2, 9)),
        (KV_BOUND,),
        "bad",
        "Shedding P2 for 1 s: KV cache 97 % on b2. P0 has no traffic.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("tiers", "backends", "level", "sentence"), [s[1:] for s in SITUATIONS], ids=[s[0] for s in SITUATIONS]
)
def test_the_sentence_names_what_holds(tiers, backends, level, sentence):
    found = said(frame(tiers=tiers, backends=backends))
    assert (found.level, plain(found.say)) == (level, sentence)


def test_where_a_backend_is_out_a_tenant_over_its_limits_is_not_called_nothing():
    found = said(frame(tiers=(*CALM[:2], shedding(2, 41.0, "rate_limited")), backends=(backend("b1"), OUT)))
    assert found.say == "b2 is out. Only tenants over their own limits are refused. P0 healthy."


def test_a_little_shed_is_not_called_nothing():
    lone = frame(tiers=(*CALM[:2], shedding(2, 0.4, "deadline", offered=200.0)))
    assert said(lone).say.endswith("Hardly anything shed: 0.4/s.")


@pytest.mark.parametrize("gateways", [(), (gateway(report_age_s=4.0),)])
def test_without_a_gateway_that_reports_nothing_is_called_calm(gateways):
    found = said(frame(gateways=gateways))
    assert (found.level, found.say) == ("bad", "No gateway reports: nothing is known about the traffic.")


def test_since_when_is_counted_from_the_first_shed_sample():
    storm = frame(tiers=(*CALM[:2], shedding(2, 40.0)), backends=(KV_BOUND,))
    found = said(storm, [frame()] * 60 + [storm] * 240)
    assert plain(found.say).startswith("Shedding P2 for 4 min: ")


def test_a_quiet_second_does_not_begin_the_count_again():
    storm = frame(tiers=(*CALM[:2], shedding(2, 40.0)), backends=(KV_BOUND,))
    found = said(storm, [frame()] * 60 + [storm] * 100 + [frame()] * 3 + [storm] * 16)
    assert plain(found.say).startswith("Shedding P2 for 2 min: ")


def test_what_began_before_the_past_that_is_kept_is_called_longer():
    storm = frame(tiers=(*CALM[:2], shedding(2, 40.0)), backends=(KV_BOUND,))
    found = said(storm, [storm] * 300)
    assert plain(found.say).startswith("Shedding P2 for more than 5 min: ")


def test_a_single_eviction_in_heavy_traffic_is_no_shedding():
    lone = frame(tiers=(*CALM[:2], shedding(2, 0.4, "deadline", offered=200.0)))
    quiet = frame(
        tiers=(*CALM[:2], tier(2, offered_per_s=200.0, admitted_per_s=200.0, ttft_objective_s=15.0))
    )
    assert said(lone, [quiet] * 20).level == "good"


def test_the_line_below_names_the_surge_and_who_sends_it():
    usual = frame(tenants=(tenant("northwind", offered_per_s=2.0),))
    storm = frame(
        tiers=(*CALM[:2], shedding(2, 139.0, offered=140.0)),
        backends=(KV_BOUND,),
        tenants=(tenant("northwind", offered_per_s=121.0, shed_per_s=120.0),),
    )
    found = said(storm, [usual] * 120 + [storm] * 30)
    assert plain(found.why) == (
        "Offered load is 10x the usual. northwind sends 80 % of it: 121.0/s, usually 2.0/s, since 14:06:02."
    )
    assert found.tenant == "northwind"


def test_without_enough_past_nothing_is_claimed_about_the_usual():
    storm = frame(tiers=(*CALM[:2], shedding(2, 40.0)), backends=(KV_BOUND,))
    assert said(storm, [frame()] * 20 + [storm] * 10).why == ""


def test_the_same_load_as_before_is_said_to_be_the_usual():
    usual = frame()
    loss = frame(tiers=(*CALM[:2], shedding(2, 3.0, offered=5.0)), backends=(KV_BOUND, OUT))
    found = said(loss, [usual] * 120 + [loss] * 10)
    assert plain(found.why) == "Offered load is the usual: 15.0/s, before 15.0/s."


def test_a_load_that_has_gone_is_not_called_the_usual():
    usual = frame()
    gone = tuple(tier(rank, offered_per_s=0.0, admitted_per_s=0.0) for rank in (0, 1))
    after = frame(tiers=(*gone, shedding(2, 1.0, offered=1.0)), backends=(KV_BOUND,))
    found = said(after, [usual] * 120 + [after] * 10)
    assert plain(found.why).startswith("Offered load is below the usual: 1.0/s, before 15.0/s.")


def test_a_frame_without_rates_claims_nothing_about_the_load():
    usual = frame()
    none = tuple(tier(rank, offered_per_s=0.0, admitted_per_s=0.0) for rank in (0, 1))
    after = frame(tiers=(*none, shedding(2, 3.0, offered=0.0)), backends=(KV_BOUND,))
    assert said(after, [usual] * 120 + [usual] * 9 + [after]).why == ""


def test_backends_that_are_out_can_be_overridden_from_the_banner():
    assert said(frame(backends=(backend("b1"), OUT))).backends == ("b2",)


def test_what_is_spoken_holds_no_number_that_flickers():
    one = said(frame(tiers=(*CALM[:2], shedding(2, 40.0)), backends=(KV_BOUND,)))
    two = said(
        frame(
            tiers=(*CALM[:2], shedding(2, 41.0)), backends=(backend("b2", binding="kv", kv_use_ratio=0.96),)
        )
    )
    assert one.say != two.say
    assert one.spoken == two.spoken == "Shedding P2. P0 healthy."


def test_all_pools_together_are_judged_by_the_worst():
    slow = tier(0, pool="embed", ttft_p95_s=3.0)
    found = said(frame(tiers=(*CALM, slow), backends=(backend("b1"), backend("e1", pool="embed"))), pool="")
    assert plain(found.say).startswith("P0 slow: TTFT p95 3.0 s, objective 1 s")


def test_another_pool_does_not_color_this_one():
    other = shedding(2, 40.0, pool="embed")
    found = said(
        frame(
            tiers=(*CALM, other),
            backends=(backend("b1"), backend("e1", pool="embed", breaker=breaker("open"))),
        )
    )
    assert found.level == "good"


def test_a_frame_without_tiers_and_backends_still_has_a_sentence():
    found = said(frame(tiers=(), backends=()))
    assert (found.level, found.say, found.why) == ("good", "No traffic. Nothing is shed.", "")
