"""The last good state on disk: the old one or the new one, never a part."""

import os
from pathlib import Path

import pytest

from gateway import lastgood


def test_what_is_stored_is_loaded_and_private(tmp_path):
    path = tmp_path / "below" / "snapshot.sealed"
    lastgood.store(path, b"one")
    lastgood.store(path, b"two")
    assert lastgood.load(path) == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["snapshot.sealed"]


def test_what_is_not_there_is_none(tmp_path):
    assert lastgood.load(tmp_path / "nothing") is None


def test_a_write_that_fails_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "snapshot.sealed"
    lastgood.store(path, b"one")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        lastgood.store(path, b"two")
    assert lastgood.load(path) == b"one"
    assert [p.name for p in Path(tmp_path).iterdir()] == ["snapshot.sealed"]
