"""When a request is tried again, and when its caller gives up."""

import random

import pytest

from gateway.simulation.profiles import GPU
from gateway.simulation.runner.agenda import Agenda
from gateway.simulation.runner.callers import Callers
from gateway.simulation.runner.setup import Record, Setup
from gateway.simulation.scenarios import policies
from gateway.simulation.traffic import Manners, Phase, Request

DICE = random.Random


class World:
    def __init__(self, requests=(), **changes):
        setup = Setup(
            profile=GPU,
            policy=policies.valve(GPU),
            phases=(Phase(0.0, (0.0,) * 3),),
            until_s=300.0,
            seed=1,
            **changes,
        )
        self.agenda = Agenda()
        self.record = Record(setup, list(requests))
        self.tried = []
        self.callers = Callers(setup, self.record, self.agenda, DICE(1), self.attempt)
        self.answer = None

    def attempt(self, request):
        self.tried.append((request.number, self.agenda.now))
        if self.answer is not None:
            self.answer(request)


def request(number=0, at=0.0, tier=0):
    return Request(number, at, tier, "p0-0")


def test_requests_are_tried_when_they_arrive():
    world = World([request(0, 1.0), request(1, 1.5)])
    world.callers.begin()
    world.agenda.run(10.0)
    assert world.tried == [(0, 1.0), (1, 1.5)]


def test_the_obedient_come_back_when_told():
    world = World([request(0, 1.0)])
    world.answer = lambda r: world.callers.refused(r, 3) if r.refusals == 0 else world.callers.decided(r)
    world.callers.begin()
    world.agenda.run(100.0)
    (_, first), (_, second) = world.tried
    assert 3.0 <= second - first <= 3.75
    assert world.record.requests[0].decided_at == second


def test_after_so_many_refusals_a_caller_gives_up():
    world = World([request(0, 0.0, tier=2)], manners=Manners())
    world.record.requests[0].is_obedient = False
    world.answer = lambda r: world.callers.refused(r, None)
    world.callers.begin()
    world.agenda.run(300.0)
    assert len(world.tried) == 1 + GPU.tiers[2].max_retries
    assert world.record.requests[0].decided_at is not None


def test_a_caller_that_would_come_back_too_late_gives_up_at_once():
    world = World([request(0, 0.0)])
    world.answer = lambda r: world.callers.refused(r, 16)
    world.callers.begin()
    world.agenda.run(300.0)
    assert len(world.tried) == 1
    assert world.record.requests[0].decided_at == 0.0


@pytest.mark.parametrize(("manners", "tries"), [(Manners(), 3), (Manners(is_storm=True), 7)])
def test_failures_are_retried_twice_and_in_a_storm_six_times(manners, tries):
    world = World([request(0, 0.0, tier=2)], manners=manners)
    world.answer = world.callers.failed
    world.callers.begin()
    world.agenda.run(300.0)
    assert len(world.tried) == tries


def test_callers_of_a_closed_loop_call_again_after_a_pause():
    world = World(callers=(1, 0, 2))
    world.answer = world.callers.decided
    world.callers.begin()
    world.agenda.run(20.0)
    assert {made.tier for made in world.record.requests} == {0, 2}
    assert 60 < len(world.tried) < 240
    assert [number for number, _ in world.tried] == list(range(len(world.tried)))
