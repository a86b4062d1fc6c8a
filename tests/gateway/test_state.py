"""The snapshot in force, indexed for the path of a request."""

from gateway.contract.snapshot import PoolSpec
from gateway.core.policy import PoolPolicy
from gateway.state import Source, State, index
from tests.fakes.published import a_grant, a_snapshot


def test_everything_is_found_by_what_requests_know():
    applied = index(a_snapshot(7), (1, 0, 7), Source.DISK, {"b1": "a secret"})
    assert applied.revision == 7
    assert applied.pool_by_model["tiny-alias"] is applied.pools["chat"]
    assert applied.grants["acme", "chat"].tier == 1
    assert applied.keys["abcdefghijkl"].tenant == "acme"
    assert applied.backends["b1"].engine == "llama_cpp"
    assert applied.tiers[0].policy.rank == 0
    assert "a secret" not in repr(applied)


def test_a_tenant_sees_only_the_models_of_its_grants():
    other = PoolSpec(policy=PoolPolicy(name="other"), models=("large",))
    snapshot = a_snapshot(pools=(*a_snapshot().pools, other), grants=(a_grant(),))
    applied = index(snapshot, (1, 0, 1), Source.VALKEY)
    assert applied.models_of("acme") == ("tiny", "tiny-alias")
    assert applied.models_of("nobody") == ()


def test_without_valkey_it_is_degraded():
    assert State().degraded
    assert not State(live_valkey=True).degraded
