"""Rows to snapshot: nothing is lost, nothing secret gets in."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from control import publishing
from control.models import ApiKey, Backend, Grant, Pool, Tenant, Tier, UsageLedger
from control.services import keys, records
from gateway.contract import codec
from gateway.core.policy import default_tiers
from gateway.core.vocabulary import LimitAlgorithm
from tests.fakes.installation import ALICE

pytestmark = pytest.mark.django_db


def test_the_tiers_of_a_new_installation_are_those_of_core(installed):
    snapshot = publishing.build_snapshot(1)
    assert tuple(tier.policy for tier in snapshot.tiers) == default_tiers()


def test_a_built_snapshot_is_one_that_a_gateway_accepts(installed):
    keys.mint_key(ALICE, keys.MintKey(tenant="acme", name="k", tier=2))
    snapshot = publishing.build_snapshot(7)
    assert codec.decode_snapshot(codec.encode(snapshot)) == snapshot


def test_every_field_of_a_pool_arrives(installed):
    pool = Pool.objects.get()
    changes = {
        "algorithm": "vegas", "min_limit": 3, "max_limit": 33, "initial_limit": 5, "reserved_seats": 2,
        "chunk_tokens": 512, "kv_target": 0.8, "breaker_window_s": 7.0, "breaker_min_requests": 6,
        "breaker_failure_ratio": 0.25, "breaker_open_s": 2.0, "breaker_half_open_probes": 2,
        "breaker_probe_timeout_s": 3.0, "breaker_ramp_s": 4.0, "watermark_enabled": True, "watermark_safe": 4,
        "watermark_maximum": 40, "watermark_jitter_s": 0.5, "output_cost": 4.0, "default_output_tokens": 99,
        "max_output_tokens": 999, "fallback_text": "later", "fallback_tiers": [0, 1], "sse_keepalive_s": 3.0,
        "connect_timeout_s": 1.5, "first_byte_timeout_s": 50.0, "idle_timeout_s": 40.0, "total_timeout_s": 400.0,
    }  # fmt: skip
    for name, value in changes.items():
        setattr(pool, name, value)
    records.write(ALICE, pool)
    (spec,) = publishing.build_snapshot(1).pools
    limit, breaker, watermark = spec.policy.limit, spec.policy.breaker, spec.policy.watermark
    assert limit.algorithm is LimitAlgorithm.VEGAS
    assert (limit.min_limit, limit.max_limit, limit.initial_limit, limit.reserved_seats) == (3, 33, 5, 2)
    assert (limit.chunk_tokens, limit.kv_target) == (512, 0.8)
    assert (breaker.window_s, breaker.min_requests, breaker.failure_ratio, breaker.open_s) == (
        7.0,
        6,
        0.25,
        2.0,
    )
    assert (breaker.half_open_probes, breaker.probe_timeout_s, breaker.ramp_s) == (2, 3.0, 4.0)
    assert (watermark.safe, watermark.maximum, watermark.jitter_s) == (4, 40, 0.5)
    assert (spec.policy.output_cost, spec.policy.default_output_tokens, spec.policy.max_output_tokens) == (
        4.0,
        99,
        999,
    )
    assert (spec.fallback.text, spec.fallback.pool, spec.fallback.tiers) == ("later", None, (0, 1))
    assert (spec.sse_keepalive_s, spec.connect_timeout_s, spec.first_byte_timeout_s) == (3.0, 1.5, 50.0)
    assert (spec.idle_timeout_s, spec.total_timeout_s) == (40.0, 400.0)


def test_every_field_of_a_backend_and_a_grant_arrives(installed):
    backend = Backend.objects.get()
    backend.credential, backend.metrics_url, backend.weight = (
        "env:ENGINE_KEY",
        "http://127.0.0.1:9/metrics",
        2.0,
    )
    backend.drained, backend.max_seqs, backend.kv_capacity_tokens, backend.context_tokens = (
        True,
        8,
        4096,
        2048,
    )
    records.write(ALICE, backend)
    grant = Grant.objects.get()
    bounds = {
        "requests_per_min": 60, "requests_burst": 10, "tokens_per_min": 6000, "tokens_burst": 1000,
        "concurrency": 4, "monthly_tokens": 10**6,
    }  # fmt: skip
    for name, value in bounds.items():
        setattr(grant, name, value)
    records.write(ALICE, grant)
    snapshot = publishing.build_snapshot(1)
    (spec,) = snapshot.backends
    assert (spec.credential, spec.metrics_url, spec.engine) == (
        "env:ENGINE_KEY",
        "http://127.0.0.1:9/metrics",
        "llama_cpp",
    )
    policy = spec.policy
    assert (policy.weight, policy.drained, policy.max_seqs) == (2.0, True, 8)
    assert (policy.kv_capacity_tokens, policy.context_tokens) == (4096, 2048)
    (granted,) = snapshot.grants
    assert {name: getattr(granted, name) for name in bounds} == bounds


def test_the_month_to_date_is_the_ledgers_sum_of_this_month(installed):
    grant = Grant.objects.get()
    grant.monthly_tokens = 1000
    records.write(ALICE, grant)
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)
    for hour, tokens in (
        (datetime(2026, 10, 31, 23, tzinfo=UTC), 500),
        (now.replace(day=1, hour=0), 30),
        (now, 4),
    ):
        UsageLedger.objects.create(
            tenant="acme", pool="chat", hour=hour, prompt_tokens=tokens, output_tokens=1
        )
    (granted,) = publishing.build_snapshot(1, now).grants
    assert (granted.month, granted.month_to_date_tokens) == ("2026-11", 36)


def test_keys_that_are_revoked_or_expired_are_left_out_and_a_rotation_has_two_digests(installed):
    made = [keys.mint_key(ALICE, keys.MintKey(tenant="acme", name=name)) for name in "abc"]
    keys.revoke_key(ALICE, made[0].public_id)
    soon = keys.mint_key(
        ALICE, keys.MintKey(tenant="acme", name="d", expires_at=timezone.now() + timedelta(seconds=60))
    )
    keys.rotate_key(ALICE, made[1].public_id, overlap_s=3600)
    later = timezone.now() + timedelta(minutes=5)
    specs = {key.public_id: key for key in publishing.build_snapshot(1).keys}
    assert set(specs) == {made[1].public_id, made[2].public_id, soon.public_id}
    assert len(specs[made[1].public_id].digests) == 2
    assert soon.public_id not in {key.public_id for key in publishing.build_snapshot(1, later).keys}
    tomorrow = timezone.now() + timedelta(days=1)
    assert {len(key.digests) for key in publishing.build_snapshot(1, tomorrow).keys} == {1}


def test_no_key_and_no_contact_is_in_a_snapshot(installed):
    tenant = Tenant.objects.get()
    tenant.contact = "who@acme.example"
    records.write(ALICE, tenant)
    minted = keys.mint_key(ALICE, keys.MintKey(tenant="acme", name="k"))
    body = codec.encode(publishing.build_snapshot(1)).decode()
    assert minted.key[-49:] not in body
    assert "who@acme.example" not in body


def test_building_costs_the_same_number_of_queries_however_many_tenants(installed, django_assert_num_queries):
    with django_assert_num_queries(7):
        publishing.build_snapshot(1)
    pool, tier = Pool.objects.get(), Tier.objects.get(rank=2)
    for number in range(5):
        tenant = Tenant(name=f"t{number}")
        records.write(ALICE, tenant)
        records.write(ALICE, Grant(tenant=tenant, pool=pool, tier=tier))
    with django_assert_num_queries(7):
        publishing.build_snapshot(1)
    assert ApiKey.objects.count() == 0
