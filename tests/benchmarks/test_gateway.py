"""The benchmark of the gateway: its verdicts, and one short round with all processes."""

import json
import shutil
import subprocess
import sys

import pytest

from benchmarks.gateway import BUSY, JSON, Figure, document, main, table
from benchmarks.load import Seen


@pytest.mark.parametrize(
    ("measure", "value", "is_missed"),
    [(JSON, 0.17, True), (JSON, 0.18, False), (BUSY, 20.1, True), (BUSY, 20, False)],
)
def test_a_must_is_a_least_or_a_most(measure, value, is_missed):
    figure = Figure(measure, (value,))
    assert figure.is_missed is is_missed
    assert ("MISSED" in str(figure)) is is_missed


def test_a_figure_is_the_median_of_its_rounds():
    assert Figure(JSON, (0.1, 9.0, 0.2)).value == 0.2


def test_table_and_document_say_the_same():
    found = [Figure(JSON, (0.2, 0.3, 0.4)), Figure(BUSY, (25.0,))]
    text = "\n".join(table(found, {"refusal, nginx: CPU [us]": [5.0]}))
    decoded = json.loads(document(found, {}, {"python": "3"}))
    assert [m["value"] for m in decoded["measures"]] == [0.3, 25.0]
    assert [m["missed"] for m in decoded["measures"]] == [False, True]
    assert text.count("MISSED") == 1
    assert "refusal, nginx" in text


def test_all_answers_count_whatever_their_status():
    assert Seen(statuses={"200": 2, "429": 3}).answers == 5


def test_without_nginx_one_line_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert main(["--quick"]) == 2
    assert "nginx" in capsys.readouterr().err


@pytest.mark.bench
@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx as the yardstick")
def test_a_quick_run_measures_everything_and_ends_all_it_started(tmp_path):
    out = tmp_path / "figures.json"
    run = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-m", "benchmarks.gateway", "--quick", "--json", str(out)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode in (0, 1), run.stderr
    measures = json.loads(out.read_text())["measures"]
    assert len(measures) == 7
    assert all(measure["value"] > 0 for measure in measures)
    assert run.returncode == any(measure["missed"] for measure in measures)
