"""How a body travels: genuine, or refused with a named reason."""

import msgspec
import pytest

from gateway.contract import keys
from gateway.contract.envelope import EnvelopeRefused, Header, SigningKey, seal, unseal

OLD, NEW = SigningKey(b"the old secret of the two"), SigningKey(b"the new secret of the two")
HEADER = Header(kind="bounds", generation=1, epoch=2, seq=3, sent_at=4.0, key_id="")


def _with_mac(mac: str) -> bytes:
    line, _, body = seal(NEW, HEADER, b"x").partition(b"\n")
    return msgspec.json.encode({**msgspec.json.decode(line), "mac": mac}) + b"\n" + body


def test_what_is_sealed_is_unsealed_with_its_version():
    header, body = unseal((NEW,), "bounds", seal(NEW, HEADER, b"body\nwith lines"))
    assert (header.version, body) == ((1, 2, 3), b"body\nwith lines")


def test_both_keys_of_a_rotation_are_accepted():
    assert unseal((NEW, OLD), "bounds", seal(OLD, HEADER, b"x"))[1] == b"x"


def test_the_name_of_a_key_reveals_nothing_and_tells_keys_apart():
    assert OLD.key_id != NEW.key_id
    assert len(OLD.key_id) == 8


@pytest.mark.parametrize(
    ("reason", "data"),
    [
        ("malformed", b"no line end"),
        ("malformed", b"{}\nbody"),
        ("malformed", b"{" + b" " * 2000 + b"}\nbody"),
        (
            "version",
            seal(NEW, Header(v=9, kind="bounds", generation=1, epoch=1, seq=1, sent_at=1.0, key_id=""), b""),
        ),
        ("kind", seal(NEW, Header(kind="frame", generation=1, epoch=1, seq=1, sent_at=1.0, key_id=""), b"")),
        ("unknown_key", seal(OLD, HEADER, b"x")),
        ("forged", seal(NEW, HEADER, b"x") + b"y"),
        ("forged", _with_mac("\u00e9" * 64)),  # compare_digest raises for texts beyond ASCII
        ("malformed", b'{"x":' + b"[" * 1000 + b"\nbody"),  # as deep as the bound on the header allows
        ("forged", seal(NEW, HEADER, b"x").replace(b'"seq":3', b'"seq":4')),
    ],
)
def test_anything_else_is_refused_with_its_reason(reason, data):
    with pytest.raises(EnvelopeRefused) as refusal:
        unseal((NEW,), "bounds", data)
    assert refusal.value.reason == reason


def test_names_in_valkey_share_one_prefix():
    names = [keys.report("g"), keys.quota("t", "requests:p"), keys.explain("r"), keys.SNAPSHOT, keys.USAGE]
    assert all(name.startswith("sluicegate:") for name in names)
    assert len(set(names)) == len(names)
