from datetime import timedelta

import pytest
from django.utils import timezone

from control.audit import Actor
from control.models import ApiKey, AuditEvent, writing
from control.services import Conflict, Invalid, NotFound, keys
from gateway.contract import keyring
from tests.fakes.installation import ALICE

pytestmark = pytest.mark.django_db
PEPPER = b"a key pepper for tests only"


def mint(**changes):
    return keys.mint_key(ALICE, keys.MintKey(**{"tenant": "acme", "name": "ci", **changes}))


def row_of(minted):
    return ApiKey.objects.get(public_id=minted.public_id)


def test_a_key_is_well_formed_stored_as_a_digest_only_and_recognised_by_it(installed, audited):
    with audited(1):
        minted = mint(tier=2)
    row = row_of(minted)
    assert keyring.public_id_of(minted.key) == minted.public_id
    assert keyring.matches(PEPPER, minted.key, [row.digest])
    assert (row.tenant.name, row.tier.rank, row.created_by) == ("acme", 2, "alice")
    stored = repr([getattr(row, field.attname) for field in ApiKey._meta.concrete_fields])
    assert minted.key[-49:] not in stored
    assert minted.key not in repr(minted)


def test_no_trace_of_a_key_is_in_the_audit_log(installed):
    minted = mint()
    rotated = keys.rotate_key(ALICE, minted.public_id)
    logged = "".join(AuditEvent.objects.values_list("changes", flat=True))
    for key in (minted.key, rotated.key):
        assert key[-49:] not in logged
        assert keyring.digest(PEPPER, key) not in logged


def test_keys_differ_and_so_do_their_ids(installed):
    made = [mint() for _ in range(20)]
    assert len({minted.key for minted in made}) == len({minted.public_id for minted in made}) == 20


def test_after_a_rotation_both_secrets_count_until_the_overlap_ends(installed, audited):
    old = mint()
    with audited(1):
        new = keys.rotate_key(ALICE, old.public_id, overlap_s=60)
    row = row_of(old)
    assert new.public_id == old.public_id
    assert keyring.public_id_of(new.key) == old.public_id
    assert keyring.matches(PEPPER, new.key, [row.digest])
    assert keyring.matches(PEPPER, old.key, [row.previous_digest])
    assert timedelta(seconds=50) < row.previous_expires_at - timezone.now() <= timedelta(seconds=60)


def test_a_rotation_without_overlap_ends_the_old_secret_at_once(installed):
    old = mint()
    keys.rotate_key(ALICE, old.public_id, overlap_s=0)
    row = row_of(old)
    assert (row.previous_digest, row.previous_expires_at) == ("", None)
    assert not keyring.matches(PEPPER, old.key, [row.digest])


def test_an_overlap_that_is_over_is_forgotten_and_published(installed, audited):
    old, other = mint(), mint()
    keys.rotate_key(ALICE, old.public_id, overlap_s=1)
    keys.rotate_key(ALICE, other.public_id, overlap_s=3600)
    with writing():
        ApiKey.objects.filter(public_id=old.public_id).update(previous_expires_at=timezone.now())
    loop = Actor("tick", "loop")
    with audited(1):
        assert keys.end_overlaps(loop) == 1
    with audited(0):
        assert keys.end_overlaps(loop) == 0
    assert row_of(old).previous_digest == ""
    assert row_of(other).previous_digest != ""


def test_a_revoked_key_stays_revoked_and_cannot_be_rotated(installed, audited):
    minted = mint()
    with audited(1):
        keys.revoke_key(ALICE, minted.public_id, reason="leaked")
    first = row_of(minted).revoked_at
    with audited(0):
        keys.revoke_key(ALICE, minted.public_id)
    assert row_of(minted).revoked_at == first
    with audited(0), pytest.raises(Conflict, match="revoked"):
        keys.rotate_key(ALICE, minted.public_id)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"tenant": "nobody"}, NotFound),
        ({"tier": 7}, NotFound),
        ({"name": ""}, Invalid),
        ({"expires_at": timezone.now() - timedelta(days=1)}, Invalid),
    ],
    ids=["tenant", "tier", "name", "expiry"],
)
def test_a_key_that_cannot_be_is_refused(installed, audited, changes, fault):
    with audited(0), pytest.raises(fault):
        mint(**changes)
    assert not ApiKey.objects.exists()


def test_keys_that_never_were_are_not_found(installed):
    for action in (keys.rotate_key, keys.revoke_key):
        with pytest.raises(NotFound):
            action(ALICE, "zzzzzzzzzzzz")


@pytest.mark.parametrize("overlap_s", [-1, keys.MAX_OVERLAP_S + 1])
def test_an_overlap_has_bounds(installed, overlap_s):
    minted = mint()
    with pytest.raises(Invalid, match="overlap_s"):
        keys.rotate_key(ALICE, minted.public_id, overlap_s=overlap_s)
