import msgspec
import pytest

from gateway.auth import authenticate, presented_key
from gateway.contract import keyring
from gateway.contract.snapshot import Snapshot, TenantSpec
from gateway.faults import CallerError, CallerFault
from gateway.state import Applied, Source, index
from tests.fakes.gateway import PEPPER, a_world, key_of

WALL = 1_900_000_000.0


def applied(**changes: object) -> Applied:
    snapshot: Snapshot = msgspec.structs.replace(a_world("http://127.0.0.1:9"), **changes)
    return index(snapshot, (1, 0, 1), Source.VALKEY)


def bearer(key: str) -> dict[bytes, bytes]:
    return {b"authorization": b"Bearer " + key.encode()}


def refusal(world: Applied, headers: dict[bytes, bytes], pepper: bytes = PEPPER) -> CallerError:
    with pytest.raises(CallerError) as caught:
        authenticate(world, headers, pepper, WALL)
    assert caught.value.fault is CallerFault.UNAUTHENTICATED
    return caught.value


def test_a_key_proves_its_tenant():
    caller = authenticate(applied(), bearer(key_of("t1").key), PEPPER, WALL)
    assert caller.tenant.name == "t1"
    assert caller.key.public_id == key_of("t1").public_id


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ({b"authorization": b"Bearer abc"}, "abc"),
        ({b"authorization": b"bearer  abc "}, "abc"),
        ({b"x-api-key": b"abc"}, "abc"),
        ({b"authorization": b"Bearer abc", b"x-api-key": b"xyz"}, "abc"),
        ({b"authorization": b"Basic abc", b"x-api-key": b"xyz"}, "xyz"),
        ({b"authorization": b"Bearer "}, None),
        ({}, None),
    ],
)
def test_where_a_key_is_looked_for(headers: dict[bytes, bytes], key: str | None):
    assert presented_key(headers) == key


class Counting(dict[str, object]):
    looked_up = 0

    def get(self, *args: object) -> object:
        Counting.looked_up += 1
        return super().get(*args)  # type: ignore[arg-type]


def test_a_wrong_checksum_is_refused_without_a_look_up():
    world = applied()
    object.__setattr__(world, "keys", Counting(world.keys))
    key = key_of("t0").key
    refusal(world, bearer(key[:-1] + ("a" if key[-1] != "a" else "b")))
    refusal(world, bearer("sk-something-else"))
    assert Counting.looked_up == 0
    authenticate(world, bearer(key), PEPPER, WALL)
    assert Counting.looked_up == 1


def test_another_secret_under_a_known_public_id_is_refused():
    known = key_of("t0")
    forged = f"sg_test_{known.public_id}_{'A' * 43}"
    forged += keyring._checksum(forged)
    assert keyring.public_id_of(forged) == known.public_id
    refusal(applied(), bearer(forged))


def test_a_key_hashed_with_another_pepper_is_refused():
    refusal(applied(), bearer(key_of("t0").key), b"another pepper")


@pytest.mark.parametrize("changes", [{"enabled": False}, {"expires_at": WALL}, {"expires_at": 1.0}])
def test_disabled_and_expired_keys_are_refused(changes: dict[str, object]):
    keys = tuple(msgspec.structs.replace(k, **changes) for k in a_world("http://127.0.0.1:9").keys)
    refusal(applied(keys=keys), bearer(key_of("t0").key))


def test_a_key_is_good_until_the_instant_it_expires():
    keys = tuple(
        msgspec.structs.replace(k, expires_at=WALL + 0.1) for k in a_world("http://127.0.0.1:9").keys
    )
    assert authenticate(applied(keys=keys), bearer(key_of("t0").key), PEPPER, WALL)


def test_every_failure_says_the_same_words():
    keys = tuple(msgspec.structs.replace(k, enabled=False) for k in a_world("http://127.0.0.1:9").keys)
    disabled = applied(keys=keys)
    off = applied(tenants=tuple(TenantSpec(name=t.name, enabled=False) for t in disabled.tenants.values()))
    messages = {
        refusal(disabled, bearer(key_of("t0").key)).message,
        refusal(off, bearer(key_of("t0").key)).message,
        refusal(applied(), bearer(keyring.mint("test", bytes(48)).key)).message,
        refusal(applied(), bearer("nonsense")).message,
    }
    assert len(messages) == 1


@pytest.mark.parametrize(("own", "granted", "used"), [(None, 1, 1), (2, 1, 2), (1, 1, 1), (0, 1, 1)])
def test_a_key_may_lower_the_granted_tier_and_never_raise_it(own: int | None, granted: int, used: int):
    keys = tuple(msgspec.structs.replace(k, tier=own) for k in a_world("http://127.0.0.1:9").keys)
    caller = authenticate(applied(keys=keys), bearer(key_of("t0").key), PEPPER, WALL)
    assert caller.tier(granted) == used
