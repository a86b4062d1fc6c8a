"""The virtual clock."""

from gateway.simulation.runner.agenda import Agenda


def test_things_are_done_in_order_of_time_and_then_of_asking():
    agenda, done = Agenda(), []
    for at, name in ((2.0, "c"), (1.0, "a"), (1.0, "b"), (3.0, "never")):
        agenda.at(at, done.append, name)
    agenda.run(3.0)
    assert done == ["a", "b", "c"]
    assert (agenda.now, agenda.done) == (3.0, 3)


def test_what_is_done_may_ask_for_more():
    agenda, seen = Agenda(), []

    def again() -> None:
        seen.append(agenda.now)
        agenda.at(agenda.now + 1.0, again)

    agenda.at(0.0, again)
    agenda.run(3.5)
    assert seen == [0.0, 1.0, 2.0, 3.0]
