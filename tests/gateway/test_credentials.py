"""Credential references, resolved in the gateway."""

import msgspec

from gateway.credentials import resolve, resolve_all
from tests.fakes.published import a_snapshot


def test_a_reference_is_resolved_from_the_environment_or_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINE_TOKEN", " from-the-environment ")
    (tmp_path / "token").write_text("from-a-file\n")
    assert resolve("env:ENGINE_TOKEN") == "from-the-environment"
    assert resolve(f"file:{tmp_path}/token") == "from-a-file"


def test_what_cannot_be_resolved_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("EMPTY", "")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for reference in ("env:EMPTY", "env:NOT_THERE", "file:/not/there", f"file:{tmp_path}/binary"):
        assert resolve(reference) is None


def test_a_backend_without_its_credential_is_said_by_reference_alone(monkeypatch, caplog):
    monkeypatch.setenv("ENGINE_TOKEN", "a-secret")
    plain = a_snapshot().backends[0]
    backends = [
        plain,
        msgspec.structs.replace(plain, credential="env:ENGINE_TOKEN"),
        msgspec.structs.replace(plain, credential="env:NOT_THERE"),
    ]
    assert resolve_all(backends) == {"b1": "a-secret"}
    assert "env:NOT_THERE" in caplog.text
    assert "a-secret" not in caplog.text
