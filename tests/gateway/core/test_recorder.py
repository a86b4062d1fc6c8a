"""What is written down, for how long, and what a tape is good for."""

import pytest

from gateway.core.commands import Decision
from gateway.core.events import Ticked
from gateway.core.recorder import Entry, Recorder, Tape, is_sampled, replay
from gateway.core.vocabulary import ShedReason
from tests.fakes.playbook import chance

WHY = Decision("size", 2.0, 2.0, 2, 0.0)


def entry(ticket: str, at: float) -> Entry:
    return Entry(ticket, at, "chat", 1, "ada", ShedReason.QUEUE_FULL, WHY)


def test_the_newest_decisions_are_kept():
    recorder = Recorder(newest=3)
    for index in range(5):
        recorder.add(entry(f"t{index}", 0.0))
    assert [kept.ticket for kept in recorder] == ["t2", "t3", "t4"]
    assert len(recorder) == 3


def test_nothing_older_than_the_bound_is_kept():
    recorder = Recorder(longest_s=10.0)
    for at in (0.0, 5.0, 10.5):
        recorder.add(entry(f"t{at}", at))
    assert [kept.at for kept in recorder] == [5.0, 10.5]


def test_the_newest_decision_about_a_ticket_is_found():
    recorder = Recorder()
    recorder.add(entry("a", 1.0))
    recorder.add(entry("a", 2.0))
    assert recorder.find("a") == entry("a", 2.0)
    assert recorder.find("b") is None


def test_the_sample_is_a_fixed_hundredth_of_all_ids():
    sampled = [index for index in range(100_000) if is_sampled(f"ticket-{index}")]
    assert 900 <= len(sampled) <= 1100
    assert sampled[:3] == [171, 173, 275]  # the same in every process
    assert isinstance(is_sampled("\ud800"), bool)


def test_a_tape_that_ran_over_its_length_says_so():
    tape = Tape(2)
    dice = tape.dice(chance(1).random)
    for at in range(3):
        dice()
        tape.keep(Ticked(), float(at))
    dice()
    assert (tape.overran, tape.events, tape.rolls) == (True, [], [])
    with pytest.raises(ValueError, match="ran over"):
        list(replay(tape, lambda _: lambda _event, _now: []))


def test_a_replay_feeds_the_same_events_and_rolls():
    tape = Tape(10)
    dice = tape.dice(chance(1).random)
    rolled = [dice(), dice()]
    tape.keep(Ticked(), 1.0)
    tape.keep(Ticked(), 2.0)
    seen = []

    def start(rolls):
        def handle(event, now):
            seen.append((event, now, rolls()))
            return []

        return handle

    assert list(replay(tape, start)) == [[], []]
    assert seen == [(Ticked(), 1.0, rolled[0]), (Ticked(), 2.0, rolled[1])]
