"""The benchmark of the core: the same script every time, and a figure above its bound is missed."""

from benchmarks import core
from benchmarks.core import Bench, Figure, new_gate, timed
from gateway.core.commands import Dispatch


def test_a_figure_above_its_must_is_missed():
    assert Figure("cost", 12.1, "us", 12.0).is_missed
    assert not Figure("cost", 12.0, "us", 12.0).is_missed
    assert not Figure("shown only", 99.0, "us").is_missed
    assert str(Figure("cost", 12.1, "us", 12.0)).endswith("MISSED")


def test_a_gate_that_plays_a_script_does_the_work_of_the_first_one():
    bench = Bench()
    said = [bench.tell(bench.arrival()) for _ in range(20)]
    again = new_gate(bench.size)
    assert [again.handle(event, now) for event, now in bench.script] == said
    assert any(isinstance(command, Dispatch) for commands in said for command in commands)


def test_the_least_of_all_slices_is_below_every_replay(monkeypatch):
    spent = iter([[3.0, 1.0], [2.0, 4.0]])
    monkeypatch.setattr(core, "replayed", lambda *_: next(spent))
    bench = Bench()

    def play() -> None:
        for _ in range(core.SLICE + 1):
            bench.tell(bench.arrival())

    timing = timed(bench, play, events=1, replays=2)
    assert (timing.least_us, timing.best_us, timing.median_us) == (3e6, 4e6, 5e6)
