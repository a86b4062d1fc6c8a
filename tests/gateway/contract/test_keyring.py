import hmac
import re

import pytest

from gateway.contract import keyring

RANDOMNESS = bytes(range(48))
PEPPER = b"a pepper for tests"


def test_a_minted_key_has_the_documented_form_and_names_its_public_id():
    key, public_id = keyring.mint("live", RANDOMNESS)
    assert re.fullmatch(r"sg_live_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}", key)
    assert key.split("_")[2] == public_id
    assert keyring.public_id_of(key) == public_id
    assert len(key) <= keyring.MAX_LENGTH


def test_rest_tokens_have_the_same_form_under_their_own_prefix():
    token, public_id = keyring.mint("test", RANDOMNESS, prefix="sga")
    assert token.startswith("sga_test_")
    assert keyring.public_id_of(token) == public_id


def test_one_changed_character_anywhere_breaks_the_checksum():
    key, _ = keyring.mint("live", RANDOMNESS)
    for at in range(len(key)):
        other = "b" if key[at] != "b" else "c"
        assert keyring.public_id_of(key[:at] + other + key[at + 1 :]) is None


@pytest.mark.parametrize(
    "text", ["", "sg_", "Bearer x", "sg_live_short_x", "sk-" + "a" * 48, "sg_live_" + "é" * 62]
)
def test_other_texts_are_no_keys(text: str):
    assert keyring.public_id_of(text) is None


@pytest.mark.parametrize("pepper", [b"p", b"x" * 63, b"x" * 64, b"x" * 65, b"x" * 200, bytes(range(256))])
def test_a_digest_is_hmac_sha256(pepper: bytes):
    for key in ("", "k", "ключ", "k" * 300):
        assert keyring.digest(pepper, key) == hmac.new(pepper, key.encode(), "sha256").hexdigest()


def test_different_randomness_gives_different_ids_and_secrets():
    one, other = keyring.mint("live", RANDOMNESS), keyring.mint("live", bytes(reversed(RANDOMNESS)))
    assert one.public_id != other.public_id
    assert one.key[-49:] != other.key[-49:]


def test_a_key_matches_any_of_its_digests_and_no_other():
    key, _ = keyring.mint("live", RANDOMNESS)
    other, _ = keyring.mint("live", bytes(48))
    kept = (keyring.digest(PEPPER, other), keyring.digest(PEPPER, key))
    assert keyring.matches(PEPPER, key, kept)
    assert keyring.matches(PEPPER, other, kept)
    assert not keyring.matches(PEPPER, key, kept[:1])
    assert not keyring.matches(b"another pepper", key, kept)
    assert not keyring.matches(PEPPER, key, ())


@pytest.mark.parametrize(
    ("env", "randomness", "prefix", "field"),
    [
        ("l", RANDOMNESS, "sg", "env"),
        ("LIVE", RANDOMNESS, "sg", "env"),
        ("toolongenv", RANDOMNESS, "sg", "env"),
        ("live", b"short", "sg", "randomness"),
        ("live", RANDOMNESS, "sk", "prefix"),
    ],
)
def test_a_wrong_part_is_named(env: str, randomness: bytes, prefix: str, field: str):
    with pytest.raises(ValueError, match=field):
        keyring.mint(env, randomness, prefix=prefix)


def test_a_public_id_of_another_form_is_refused():
    with pytest.raises(ValueError, match="public_id"):
        keyring.mint("live", RANDOMNESS, public_id="short")
