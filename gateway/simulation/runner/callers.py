"""When requests are tried: arrivals, retries after a refusal or a failure, giving up, calling again."""

import random
from collections.abc import Callable

from gateway.simulation.runner.agenda import Agenda
from gateway.simulation.runner.setup import Record, Setup
from gateway.simulation.traffic import MAX_FAILURES, Request, draw, pause_s


class Callers:
    """All callers of a run. `attempt` sends a request to a gateway once."""

    def __init__(
        self,
        setup: Setup,
        record: Record,
        agenda: Agenda,
        dice: random.Random,
        attempt: Callable[[Request], None],
    ) -> None:
        self._setup = setup
        self._record = record
        self._agenda = agenda
        self._dice = dice
        self._attempt = attempt
        self._next_request = 0

    def begin(self) -> None:
        """Put the first requests on the agenda."""
        self._await_next_request()
        for tier, callers in enumerate(self._setup.callers):
            for _ in range(callers):
                self._agenda.at(pause_s(self._dice), self._call, tier)

    def refused(self, request: Request, after_s: int | None) -> None:
        """A gateway said no; `after_s`: Retry-After, where there was one."""
        manners = self._setup.manners
        request.refusals += 1
        if request.refusals > manners.tries(self._setup.profile.tiers[request.tier].max_retries):
            self.decided(request)
            return
        wait = manners.wait_s(request.refusals, after_s, is_obedient=request.is_obedient, dice=self._dice)
        self._come_back(request, wait)

    def failed(self, request: Request) -> None:
        """An attempt failed at its backend, or its caller lost patience with it."""
        manners = self._setup.manners
        request.failures += 1
        if request.failures > manners.tries(MAX_FAILURES):
            self.decided(request)
            return
        self._come_back(request, manners.wait_s(request.failures, None, is_obedient=False, dice=self._dice))

    def decided(self, request: Request) -> None:
        """It is over: answered, or given up."""
        request.decided_at = self._agenda.now
        if self._setup.callers:
            self._agenda.at(self._agenda.now + pause_s(self._dice), self._call, request.tier)

    def _come_back(self, request: Request, wait_s: float) -> None:
        patience = self._setup.profile.tiers[request.tier].gives_up_s
        if self._agenda.now + wait_s - request.arrived_at > patience:
            self.decided(request)
        else:
            self._agenda.at(self._agenda.now + wait_s, self._attempt, request)

    def _await_next_request(self) -> None:
        if self._next_request < len(self._record.requests):
            request = self._record.requests[self._next_request]
            self._next_request += 1
            self._agenda.at(request.arrived_at, self._arrive, request)

    def _arrive(self, request: Request) -> None:
        self._await_next_request()
        self._attempt(request)

    def _call(self, tier: int) -> None:
        request = draw(self._setup.profile, tier, self._agenda.now, self._dice)
        request.number = len(self._record.requests)
        self._record.requests.append(request)
        self._next_request = len(self._record.requests)
        self._attempt(request)
