"""The command itself, as far as it goes without starting the whole system: what it refuses, in one line each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from control.supervisor import state

ROOT = Path(__file__).parents[3]


def run(folder: Path, **variables: str) -> tuple[int, list[str]]:
    """`make up` without make: exit code and what it said on stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "control.supervisor"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "SLUICEGATE_STATE_DIR": str(folder), "DEMO": "0", **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stderr.splitlines()


def test_a_state_folder_in_use_is_refused_with_who_holds_it_and_what_to_do(tmp_path: Path) -> None:
    with state.lock(tmp_path):
        code, (line,) = run(tmp_path)
    assert code == 1
    assert line.startswith(f"make up: {tmp_path} is in use by process {os.getpid()}. Stop that")


def test_a_state_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, (line,) = run(tmp_path / "file" / "state")
    assert (code, line) == (1, f"make up: {tmp_path}/file/state: Not a directory")


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"WEB_PORT": "eighty"}, "WEB_PORT='eighty': expected a port number from 1 to 65535."),
        (
            {"REDIS_URL": "http://x"},
            "migrate failed: sluicegate: REDIS_URL: expected redis://host or unix:///path, not 'http'",
        ),
        (
            {"REDIS_URL": "redis://127.0.0.1:1", "DATABASE_URL": "sqlite:////nowhere/at/all.sqlite3"},
            "migrate failed: sluicegate: DATABASE_URL: the database can't be used: unable to open database file",
        ),
    ],
)
def test_a_wrong_variable_is_named_in_one_line(tmp_path: Path, variables: dict[str, str], words: str) -> None:
    assert run(tmp_path, **variables) == (1, [f"make up: {words}"])


def test_a_secret_that_is_none_is_refused_before_anything_serves(tmp_path: Path) -> None:
    code, (line,) = run(tmp_path, REDIS_URL="redis://127.0.0.1:1", SLUICEGATE_KEY_PEPPER="short")
    assert code == 1
    assert line.startswith("make up: seed_demo failed: sluicegate: SLUICEGATE_KEY_PEPPER is too short")
