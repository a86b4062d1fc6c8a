"""Through the command, as `make up` calls it: see also tests/control/test_commands.py."""

import dataclasses

import pytest

from control.models import Backend, Grant, Pool, Tier
from control.services import Invalid, demo, records
from tests.fakes.installation import ALICE

pytestmark = pytest.mark.django_db


def wanted(url="http://127.0.0.1:9101"):
    backend = demo.DemoBackend(name="b1", url=url, engine="vllm")
    return demo.Demo(pool="chat", models=("chat",), backends=(backend,))


def test_a_first_installation_has_three_tenants_in_three_tiers_with_a_key_each(db):
    made = demo.install_demo(ALICE, wanted(), lambda _: False)
    assert [(key.tier, key.tenant) for key in made] == [
        ("P0", "support-chat"), ("P1", "code-agent"), ("P2", "report-batch"),
    ]  # fmt: skip
    granted = Grant.objects.order_by("tier__rank").values_list(
        "tenant__name", "tier__name", "tier__queue__drop"
    )
    assert list(granted) == [
        ("support-chat", "realtime-interactive", Tier.objects.get(rank=0).queue.drop),
        ("code-agent", "agent-workflow", "early-drop-on-pressure"),
        ("report-batch", "batch-extraction", "fast-reject"),
    ]


def test_a_second_one_changes_nothing_but_an_address_that_moved(db, audited):
    demo.install_demo(ALICE, wanted(), lambda _: False)
    with audited(0):
        assert demo.install_demo(ALICE, wanted(), lambda _: True) == ()
    with audited(1):
        demo.install_demo(ALICE, wanted("http://127.0.0.1:9105"), lambda _: True)
    assert Backend.objects.get().url == "http://127.0.0.1:9105"


def test_what_an_operator_changed_is_kept(db):
    demo.install_demo(ALICE, wanted(), lambda _: False)
    backend, tier = Backend.objects.get(), Tier.objects.get(rank=2)
    backend.max_seqs, backend.weight, tier.weight = 3, 2.0, 5.0
    records.write(ALICE, backend)
    records.write(ALICE, tier)
    demo.install_demo(ALICE, wanted("http://127.0.0.1:9105"), lambda _: True)
    backend = Backend.objects.get()
    assert (backend.max_seqs, backend.weight, Tier.objects.get(rank=2).weight) == (3, 2.0, 5.0)


def test_lost_keys_are_made_anew(db):
    first = demo.install_demo(ALICE, wanted(), lambda _: False)
    second = demo.install_demo(ALICE, wanted(), lambda _: False)
    assert {key.tenant for key in first} == {key.tenant for key in second}
    assert {key.key for key in first}.isdisjoint({key.key for key in second})


def test_a_bad_address_installs_nothing_at_all(db):
    with pytest.raises(Invalid):
        demo.install_demo(ALICE, wanted("ftp://x"), lambda _: False)
    assert not Tier.objects.exists()


def test_the_cap_on_retry_after_holds_for_every_tier(db):
    demo.install_tiers(ALICE, retry_after_max_s=5)
    assert {tier.queue.retry_after_max_s for tier in Tier.objects.all()} == {5}


def test_an_engine_without_a_gpu_gets_objectives_that_it_can_meet(db):
    demo.install_demo(ALICE, dataclasses.replace(wanted(), has_cpu_engine=True), lambda _: False)
    assert [tier.ttft_objective_s for tier in Tier.objects.order_by("rank")] == [4.0, 8.0, 30.0]
    assert Pool.objects.get().output_cost == 4.0


def test_keys_are_not_in_a_representation(db):
    (key, *_) = demo.install_demo(ALICE, wanted(), lambda _: False)
    assert key.key not in repr(key)
