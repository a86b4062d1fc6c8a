import os
import socket
import stat
from pathlib import Path

import pytest

from control.supervisor import state
from control.supervisor.state import StartRefused


def test_secrets_are_made_once_and_only_their_owner_may_read_them(tmp_path: Path) -> None:
    first = state.load_secrets(tmp_path)
    assert set(first) == set(state.SECRET_NAMES)
    assert all(len(value) >= 48 for value in first.values())
    assert stat.S_IMODE((tmp_path / "secrets.env").stat().st_mode) == 0o600
    assert state.load_secrets(tmp_path) == first


def test_a_missing_secret_is_added_and_the_others_stay(tmp_path: Path) -> None:
    (tmp_path / "secrets.env").write_text("# kept\nSLUICEGATE_SECRET_KEY=mine\n\n")
    known = state.load_secrets(tmp_path)
    assert known["SLUICEGATE_SECRET_KEY"] == "mine"
    assert state.load_secrets(tmp_path) == known


@pytest.mark.parametrize("line", ["nonsense", "SLUICEGATE_SECRET_KEY="])
def test_a_bad_line_in_the_secrets_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "secrets.env").write_text(f"# first\n{line}\n")
    with pytest.raises(StartRefused, match=r"secrets\.env:2: expected NAME=value"):
        state.load_secrets(tmp_path)


def test_a_state_folder_serves_one_at_a_time(tmp_path: Path) -> None:
    with (
        state.lock(tmp_path),
        pytest.raises(StartRefused, match=f"in use by process {os.getpid()}"),
        state.lock(tmp_path),
    ):
        pass
    with state.lock(tmp_path):
        pass


def test_a_path_too_long_for_a_socket_gets_a_private_place(tmp_path: Path) -> None:
    short = state.socket_path(Path("/srv/x"))
    long = state.socket_path(tmp_path / ("d" * 120))
    assert short == Path("/srv/x/valkey/valkey.sock")
    assert len(os.fsencode(long)) < state.MAX_SOCKET_PATH_BYTES
    assert stat.S_IMODE(long.parent.stat().st_mode) == 0o700
    assert state.socket_path(tmp_path / ("d" * 120)) == long
    long.parent.rmdir()


def test_a_taken_port_gives_way_to_the_next_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = state.free_port(port, "127.0.0.1", taken=[port + 1])
    assert found > port + 1


def test_no_free_port_is_said_in_one_line() -> None:
    with pytest.raises(StartRefused, match=r"No free port on 127\.0\.0\.1 from 65536"):
        state.free_port(65536, "127.0.0.1")
