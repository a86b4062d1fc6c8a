"""The command: what it prints, and when it fails."""

from pathlib import Path

import pytest

from gateway.simulation.scenarios import __main__ as command
from tests.gateway.simulation.scenarios.test_measuring import made


@pytest.fixture
def runs(monkeypatch):
    asked = []

    def answer(ratio):
        def run_all(cases, processes):
            for case in cases:
                asked.append(case)
                yield case, made(ratio=0.1 if case.guard == "none" else ratio, series=(1.0,) * 100)

        monkeypatch.setattr(command, "run_all", run_all)
        return asked

    return answer


def test_it_succeeds_where_everything_holds(runs, capsys):
    asked = runs(0.99)
    assert command.main(["--only", "gpu/storm", "--seeds", "1-2"]) == 0
    assert {case.seed for case in asked if case.play == "storm"} == {1, 2}
    printed = capsys.readouterr().out
    assert "| gpu storm" in printed
    assert "0 with a complaint" in printed


def test_it_fails_where_a_must_is_missed(runs, capsys):
    runs(0.5)
    assert command.main(["--only", "gpu/storm", "--seeds", "1"]) == 1
    assert "must is missed" in capsys.readouterr().out


def test_it_runs_anchors_and_the_control_of_the_jump_unless_told_what(runs):
    asked = runs(0.99)
    command.main(["--seeds", "1"])
    guards = {(case.play, case.guard) for case in asked}
    assert ("jump", "36") in guards
    assert ("long", "13") in guards


def test_it_takes_ten_seeds_in_full_and_three_otherwise(runs):
    asked = runs(0.99)
    command.main(["--only", "gpu/storm"])
    assert {case.seed for case in asked if case.play == "storm"} == {101, 102, 103}
    asked.clear()
    command.main(["--only", "gpu/storm", "--full"])
    assert {case.seed for case in asked if case.play == "storm"} == set(range(101, 111))


@pytest.mark.parametrize(("text", "seeds"), [("1-3", (1, 2, 3)), ("7", (7,)), ("1,3-4", (1, 3, 4))])
def test_seeds_are_numbers_and_ranges(text, seeds):
    assert command._seeds(text) == seeds


def test_it_sweeps_when_asked(monkeypatch):
    wanted = []
    monkeypatch.setattr(command, "sweep", wanted.append)
    assert command.main(["--sweep", "gpu/long"]) == 0
    assert wanted == [("gpu/long",)]


def test_it_writes_the_table_behind_the_marker_of_a_document(runs, tmp_path):
    document = tmp_path / "scenarios.md"
    document.write_text(f"# Head\n\n{command.MARKER}\n\nold\n")
    runs(0.99)
    arguments = ["--only", "gpu/storm", "--seeds", "1", "--write", str(document)]
    assert command.main(arguments) == 0
    text = document.read_text()
    assert text.startswith("# Head")
    assert "old" not in text
    assert "--only gpu/storm --seeds 1" in text
    assert "| gpu storm" in text


def test_a_document_without_the_marker_is_left_alone(runs, tmp_path):
    document = tmp_path / "other.md"
    document.write_text("mine")
    runs(0.99)
    with pytest.raises(SystemExit, match="has no line"):
        command.main(["--only", "gpu/storm", "--seeds", "1", "--write", str(document)])
    assert document.read_text() == "mine"


def test_the_document_of_the_project_has_the_marker():
    assert command.MARKER in (Path(__file__).resolve().parents[4] / "docs" / "scenarios.md").read_text()
