"""What a run depends on."""

import pickle

from gateway.simulation.profiles import GPU
from gateway.simulation.runner.setup import Attempt, Setup
from gateway.simulation.scenarios import policies
from gateway.simulation.traffic import Phase, Request


def test_a_setup_can_go_to_another_process():
    setup = Setup(
        profile=GPU, policy=policies.valve(GPU), phases=(Phase(0.0, (1.0,) * 3),), until_s=1.0, seed=1
    )
    assert pickle.loads(pickle.dumps(setup)) == setup  # noqa: S301  # our own


def test_each_attempt_has_a_ticket_of_its_own():
    request = Request(7, 0.0, 0, "p0-0")
    tickets = []
    for _ in range(3):
        request.attempts += 1
        tickets.append(Attempt(request, 0, 0.0).ticket)
    assert tickets == ["7.1", "7.2", "7.3"]
