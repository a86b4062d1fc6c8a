"""What a body must satisfy beyond its types: one table, each row one thing that is wrong."""

import dataclasses

import msgspec
import pytest

from gateway.contract.bounds import BackendBound, GatewayShare, RetryBudget
from gateway.contract.checks import bounds_problems, gate_policy, overrides_problems, snapshot_problems
from gateway.contract.overrides import Overrides
from gateway.contract.snapshot import FallbackSpec, Snapshot, TenantSpec
from gateway.core.vocabulary import OverrideKind
from tests.fakes.published import NOW, a_grant, a_snapshot, an_override, some_bounds

PLAIN = a_snapshot()
POOL, BACKEND, KEY, TIER = PLAIN.pools[0], PLAIN.backends[0], PLAIN.keys[0], PLAIN.tiers[0]


def replaced(thing, **changes):
    return msgspec.structs.replace(thing, **changes)


def pool(**changes) -> Snapshot:
    return a_snapshot(pools=(replaced(POOL, **changes),))


def backend(**changes) -> Snapshot:
    return a_snapshot(backends=(replaced(BACKEND, **changes),))


def grant(**changes) -> Snapshot:
    return a_snapshot(grants=(a_grant(**changes),))


def key(**changes) -> Snapshot:
    return a_snapshot(keys=(replaced(KEY, **changes),))


def policy(thing, **changes):
    return replaced(thing, policy=dataclasses.replace(thing.policy, **changes))


def test_a_good_snapshot_has_no_problem():
    assert snapshot_problems(PLAIN) == ()
    assert gate_policy(PLAIN, 3).gateways == 3


@pytest.mark.parametrize(
    ("field", "snapshot"),
    [
        ("revision", a_snapshot(-1)),
        ("tiers", a_snapshot(tiers=())),
        ("tiers", a_snapshot(tiers=(*PLAIN.tiers, TIER))),
        ("tiers[0].policy.name", a_snapshot(tiers=(policy(TIER, name="two words"), *PLAIN.tiers[1:]))),
        ("pools", a_snapshot(pools=(POOL, replaced(POOL, models=("other",))))),
        ("models", a_snapshot(pools=(POOL, replaced(policy(POOL, name="chat2"))))),
        ("pools[0].policy.name", a_snapshot(pools=(policy(POOL, name=""),), backends=(), grants=())),
        ("pools[0].policy.name", a_snapshot(pools=(policy(POOL, name="x" * 101),), backends=(), grants=())),
        ("pools[0].models", pool(models=())),
        ("pools[0].models", pool(models=("a model",))),
        ("pools[0].models", pool(models=("m" * 201,))),
        ("pools[0].connect_timeout_s", pool(connect_timeout_s=0.0)),
        ("pools[0].total_timeout_s", pool(total_timeout_s=-1.0)),
        ("pools[0].sse_keepalive_s", pool(sse_keepalive_s=-1.0)),
        ("pools[0].fallback.tiers", pool(fallback=FallbackSpec(tiers=(9,)))),
        ("pools[0].fallback.pool", pool(fallback=FallbackSpec(pool="nowhere"))),
        ("pools[0].fallback.pool", pool(fallback=FallbackSpec(pool="chat"))),
        ("pools[0].fallback", pool(fallback=FallbackSpec(pool="chat", text="sorry"))),
        ("backends", a_snapshot(backends=(BACKEND, BACKEND))),
        ("backends[0].policy.name", a_snapshot(backends=(policy(BACKEND, name="-"),))),
        ("backends[0].policy.pool", a_snapshot(backends=(policy(BACKEND, pool="nowhere"),))),
        ("backends[0].url", backend(url="ftp://engine")),
        ("backends[0].metrics_url", backend(metrics_url="http://169.254.169.254/metrics")),
        ("backends[0].credential", backend(credential="sk-a-secret-itself")),
        ("tenants", a_snapshot(tenants=(*PLAIN.tenants, *PLAIN.tenants))),
        ("tenants[1].name", a_snapshot(tenants=(*PLAIN.tenants, TenantSpec(name="a\nb")))),
        ("tenants[1].name", a_snapshot(tenants=(*PLAIN.tenants, TenantSpec(name="a\n")))),
        ("grants", a_snapshot(grants=(a_grant(), a_grant()))),
        ("grants[0].tenant", grant(tenant="nobody")),
        ("grants[0].pool", grant(pool="nowhere")),
        ("grants[0].tier", grant(tier=9)),
        ("grants[0].weight", grant(weight=0.0)),
        ("grants[0].requests_per_min", grant(requests_per_min=0)),
        ("grants[0].requests_burst", grant(requests_burst=-1)),
        ("grants[0].tokens_per_min", grant(tokens_per_min=0)),
        ("grants[0].tokens_burst", grant(tokens_burst=0)),
        ("grants[0].concurrency", grant(concurrency=0)),
        ("grants[0].monthly_tokens", grant(monthly_tokens=-1)),
        ("grants[0].month_to_date_tokens", grant(month_to_date_tokens=-1)),
        ("grants[0].month", grant(month="2026-13")),
        ("keys", a_snapshot(keys=(KEY, KEY))),
        ("keys[0].tenant", key(tenant="nobody")),
        ("keys[0].tier", key(tier=9)),
        ("keys[0].public_id", key(public_id="with space")),
        ("keys[0].digests", key(digests=())),
        ("keys[0].digests", key(digests=("0" * 64,) * 3)),
        ("keys[0].digests", key(digests=("not hex" * 9,))),
    ],
)
def test_what_is_wrong_with_a_snapshot_is_named(field, snapshot):
    assert field in [problem.field for problem in snapshot_problems(snapshot)]


def test_another_pool_may_be_a_fallback():
    small = replaced(policy(POOL, name="small"), models=("small",))
    assert (
        snapshot_problems(a_snapshot(pools=(replaced(POOL, fallback=FallbackSpec(pool="small")), small)))
        == ()
    )


def test_what_core_finds_in_the_policy_is_a_problem_too_but_its_warnings_are_not():
    wrong = a_snapshot(tiers=(policy(TIER, ttft_objective_s=-1.0), *PLAIN.tiers[1:]))
    (problem,) = snapshot_problems(wrong)
    assert "ttft_objective_s" in problem.field


def test_a_long_value_is_shown_short():
    (problem, *_) = snapshot_problems(grant(tenant="x" * 10_000))
    assert len(problem.message) < 200


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_good_bounds_have_no_problem():
    shares = (GatewayShare(gateway="g1", share=0.5), GatewayShare(gateway="g2", share=0.5))
    backends = (BackendBound(backend="b1", limit_min=1, limit_max=1), BackendBound(backend="b2", limit_max=4))
    assert bounds_problems(some_bounds(1, 1, gateways=shares, backends=backends)) == ()


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("backends", {"backends": (BackendBound(backend="b1"), BackendBound(backend="b1"))}),
        ("gateways", {"gateways": (GatewayShare(gateway="g", share=0.1),) * 2}),
        ("gateways[0].share", {"gateways": (GatewayShare(gateway="g", share=1.5),)}),
        ("retry_budgets[0].factor", {"retry_budgets": (RetryBudget(tenant="t", factor=-0.1, until=1.0),)}),
        ("backends[0].limit_min", {"backends": (BackendBound(backend="b1", limit_min=5, limit_max=4),)}),
        ("backends[0].limit_min", {"backends": (BackendBound(backend="b1", limit_min=-1),)}),
    ],
)
def test_what_is_wrong_with_bounds_is_named(field, changes):
    assert [p.field for p in bounds_problems(some_bounds(1, 1, **changes))] == [field]


# -- overrides ---------------------------------------------------------------------------------------------------------


def overrides(*specs) -> Overrides:
    return Overrides(version=1, overrides=specs)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (OverrideKind.BREAKER, "closed"),
        (OverrideKind.LIMIT_PIN, "12"),
        (OverrideKind.TENANT_WEIGHT, "0.5"),
        (OverrideKind.POOL_FALLBACK, "on"),
    ],
)
def test_good_overrides_have_no_problem(kind, value):
    assert overrides_problems(overrides(an_override(kind=kind, value=value), an_override("o2"))) == ()


@pytest.mark.parametrize(
    ("field", "specs"),
    [
        ("overrides", (an_override(), an_override())),
        ("overrides[0]", (an_override(actor=""),)),
        ("overrides[0]", (an_override(reason=""),)),
        ("overrides[0].expires_at", (an_override(expires_at=NOW),)),
        ("overrides[0].target", (an_override(target=""),)),
        ("overrides[0].value", (an_override(value="ajar"),)),
        ("overrides[0].value", (an_override(kind=OverrideKind.LIMIT_PIN, value="many"),)),
        ("overrides[0].value", (an_override(kind=OverrideKind.LIMIT_PIN, value="-1"),)),
        ("overrides[0].value", (an_override(kind=OverrideKind.TIER_THROTTLE, value="nan"),)),
    ],
)
def test_what_is_wrong_with_overrides_is_named(field, specs):
    assert [p.field for p in overrides_problems(overrides(*specs))] == [field]
