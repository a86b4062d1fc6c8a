"""The environment becomes one frozen Settings, or is refused in one line that names the variable."""

import re
from pathlib import Path

import pytest

from gateway.settings import VARIABLES, Address, Settings, SettingsRefused, read_settings

PEPPER, SIGNING = "a-pepper-of-some-length", "a-signing-key-of-length"
NEEDED = {"SLUICEGATE_KEY_PEPPER": PEPPER, "SLUICEGATE_SIGNING_KEY": SIGNING}


def read(**variables: str) -> Settings:
    return read_settings({**NEEDED, **variables})


def test_only_the_two_secrets_are_needed():
    settings = read()
    assert (settings.listen, settings.ops_listen) == (Address("127.0.0.1", 8080), Address("127.0.0.1", 8081))
    assert settings.directory == Path("var/gateway-gateway-1")
    assert settings.signing_keys == (SIGNING.encode(),)


def test_every_variable_sets_its_field():
    settings = read(
        REDIS_URL="rediss://user:word@valkey:6380/2",
        SLUICEGATE_SIGNING_KEY_PREVIOUS="the-signing-key-before",
        SLUICEGATE_GATEWAY_ID="gw-7",
        SLUICEGATE_GATEWAYS="3",
        SLUICEGATE_LISTEN=":9000",
        SLUICEGATE_OPS_LISTEN="[::1]:0",
        SLUICEGATE_STATE_DIR="/tmp/state",  # noqa: S108  # never made
        SLUICEGATE_DRAIN_S="1.5",
        SLUICEGATE_DRAIN_DELAY_S="0",
        SLUICEGATE_ALLOW_PRIVATE_BACKENDS="no",
        SLUICEGATE_LOG_LEVEL="debug",
        SLUICEGATE_ACCESS_LOG="off",
        SLUICEGATE_MAX_BODY_BYTES="1024",
        SLUICEGATE_BUFFER_BUDGET_BYTES="1048576",
        SLUICEGATE_REPORT_INTERVAL_S="0.1",
        SLUICEGATE_RESYNC_S="5",
    )
    assert settings.signing_keys == (SIGNING.encode(), b"the-signing-key-before")
    assert (str(settings.listen), settings.listen.is_public) == ("0.0.0.0:9000", True)
    assert (str(settings.ops_listen), settings.ops_listen.is_public) == ("[::1]:0", False)
    assert (settings.gateway_id, settings.gateways, settings.drain_s) == ("gw-7", 3, 1.5)
    assert (settings.allow_private_backends, settings.log_level, settings.access_log) == (
        False,
        "DEBUG",
        "off",
    )
    assert (settings.max_body_bytes, settings.report_interval_s, settings.resync_s) == (1024, 0.1, 5.0)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SLUICEGATE_KEY_PEPPER", ""),
        ("SLUICEGATE_KEY_PEPPER", "short"),
        ("SLUICEGATE_KEY_PEPPER", "aaaaaaaaaaaaaaaaaaaaaaaa"),
        ("SLUICEGATE_SIGNING_KEY", "   "),
        ("SLUICEGATE_SIGNING_KEY", "ChangeMe-ChangeMe-ChangeMe"),
        ("SLUICEGATE_SIGNING_KEY_PREVIOUS", "short"),
        ("SLUICEGATE_GATEWAY_ID", "with space"),
        ("SLUICEGATE_GATEWAYS", "0"),
        ("SLUICEGATE_GATEWAYS", "many"),
        ("SLUICEGATE_LISTEN", "8080"),
        ("SLUICEGATE_LISTEN", "host:99999"),
        ("SLUICEGATE_OPS_LISTEN", "127.0.0.1:8080"),
        ("SLUICEGATE_DRAIN_S", "-1"),
        ("SLUICEGATE_DRAIN_S", "nan"),
        ("SLUICEGATE_DEBUG", "maybe"),
        ("SLUICEGATE_LOG_LEVEL", "LOUD"),
        ("SLUICEGATE_MAX_BODY_BYTES", "0"),
        ("SLUICEGATE_RESYNC_S", "6"),
        ("REDIS_URL", "http://valkey"),
        ("REDIS_URL", "redis://"),
        ("REDIS_URL", "redis://valkey/nine"),
        ("REDIS_URL", "unix://"),
    ],
)
def test_a_wrong_value_names_its_variable_in_one_line(variable, value):
    with pytest.raises(SettingsRefused) as refusal:
        read(**{variable: value})
    assert refusal.value.variable == variable
    assert "\n" not in str(refusal.value)


def test_debug_is_refused_where_others_can_reach_it():
    assert read(SLUICEGATE_DEBUG="1").debug
    with pytest.raises(SettingsRefused, match="SLUICEGATE_DEBUG"):
        read(SLUICEGATE_DEBUG="1", SLUICEGATE_LISTEN="0.0.0.0:8080")


def test_a_secret_may_come_from_a_file(tmp_path):
    (tmp_path / "pepper").write_text("a-pepper-from-a-file\n")
    found = read_settings(
        {"SLUICEGATE_SIGNING_KEY": SIGNING, "SLUICEGATE_KEY_PEPPER_FILE": str(tmp_path / "pepper")}
    )
    assert found.key_pepper == b"a-pepper-from-a-file"


def test_a_secret_from_both_or_from_no_readable_file_is_refused(tmp_path):
    with pytest.raises(SettingsRefused, match="not both"):
        read(SLUICEGATE_KEY_PEPPER_FILE=str(tmp_path / "pepper"))
    with pytest.raises(SettingsRefused, match="SLUICEGATE_KEY_PEPPER_FILE: cannot be read"):
        read_settings({"SLUICEGATE_SIGNING_KEY": SIGNING, "SLUICEGATE_KEY_PEPPER_FILE": str(tmp_path)})


def test_no_secret_is_ever_shown():
    shown = repr(read(REDIS_URL="redis://:word@valkey"))
    assert PEPPER not in shown
    assert "word" not in shown
    with pytest.raises(SettingsRefused) as refusal:
        read(REDIS_URL="redis://:word@valkey/nine")
    assert "word" not in str(refusal.value)


def test_the_documentation_lists_exactly_these_variables_and_defaults():
    page = Path("docs/settings.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `(\w+)` \| (?:secret)? ?\| `?(.*?)`? \|", page, re.MULTILINE))
    assert told == {v.name: v.default for v in VARIABLES}
    for variable in VARIABLES:
        assert variable.meaning in page


def test_the_documented_defaults_are_the_defaults():
    settings = read()
    for variable in VARIABLES:
        if variable.default in {"required", "none"}:
            continue
        explicit = read(**{variable.name: variable.default})
        assert getattr(explicit, variable.field) == getattr(settings, variable.field), variable.name


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("SLUICEGATE_GATEWAY_ID", "a b", "'a b' is no name: 1 to 63 letters"),
        ("SLUICEGATE_DRAIN_S", "soon", "'soon' is not a number"),
        ("SLUICEGATE_DRAIN_S", "-1", "'-1' is out of range: expected float >= 0"),
        ("SLUICEGATE_GATEWAYS", "2.5", "'2.5' is not a whole number"),
        ("SLUICEGATE_LOG_LEVEL", "loud", "'LOUD' is none of DEBUG, INFO, WARNING, ERROR"),
    ],
)
def test_a_wrong_value_is_told_with_what_was_given_and_what_is_expected(variable, text, words):
    secret = "of-no-value-but-long-enough"
    secrets = {"SLUICEGATE_KEY_PEPPER": secret, "SLUICEGATE_SIGNING_KEY": secret}
    with pytest.raises(SettingsRefused) as refused:
        read_settings({**secrets, variable: text})
    assert str(refused.value).startswith(f"{variable}: {words}")
