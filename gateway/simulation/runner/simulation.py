"""One run: gateways and engines, told by callers and by one another."""

import random

from gateway.core.commands import Abort, Command, Dispatch, Evict, Refuse, WakeAt
from gateway.core.events import Abandoned, Arrived, Event, Failed, Finished, Progress, Ticked
from gateway.core.gate import Gate
from gateway.core.vocabulary import Fault
from gateway.simulation.model import Engine, Sequence
from gateway.simulation.outer import PERIOD_S, Outer
from gateway.simulation.runner.agenda import Agenda
from gateway.simulation.runner.callers import Callers
from gateway.simulation.runner.setup import POOL, Attempt, EngineFault, EngineTotals, Record, Setup
from gateway.simulation.traffic import Request, requests

TICK_S = 0.05
REFUSED_CONNECTION_S = 0.001


class Simulation:
    """One run."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        profile = setup.profile
        agenda = self._agenda = Agenda()
        self._at = agenda.at
        self.engines = [Engine(profile.engine, _seed(setup.seed, index)) for index in range(profile.engines)]
        self.backends = [f"b{index}" for index in range(profile.engines)]
        self.gates = [
            Gate(setup.policy, now=0.0, dice=_dice("gate", setup.seed, index).random)
            for index in range(setup.gateways)
        ]
        self.record = Record(setup, requests(profile, setup.phases, setup.until_s, setup.seed))
        self._index = {name: index for index, name in enumerate(self.backends)}
        self._lost = [False] * profile.engines
        self._past = [0, 0, 0, 0, 0]  # what engines had counted when they were lost
        self._outer = setup.outer and Outer(setup.outer, self.engines, self.backends, setup.gateways)
        self._dice = _dice("callers", setup.seed, 0)
        self._attempts: dict[str, Attempt] = {}
        self._wake_at = [0.0] * setup.gateways
        self._callers = Callers(setup, self.record, agenda, self._dice, self._try)

    def run(self) -> Record:
        """Run to the end of the setup's time."""
        self._at(0.0, self._tick)
        self._at(0.0, self._count)
        if self._outer is not None:
            self._at(PERIOD_S, self._tick_outer, self._outer)
        if self.setup.window_sample_s is not None:
            self._at(0.0, self._sample_windows, self.setup.window_sample_s)
        for fault in self.setup.faults:
            self._at(fault.at_s, self._apply_fault, fault)
        self._callers.begin()
        self._agenda.run(self.setup.until_s)
        self._count()
        self.record.events = self._agenda.done
        return self.record

    @property
    def now(self) -> float:
        """Seconds on the virtual clock."""
        return self._agenda.now

    def _tell(self, gateway: int, event: Event) -> None:
        for command in self.gates[gateway].handle(event, self.now):
            self._obey(gateway, command)

    def _obey(self, gateway: int, command: Command) -> None:
        match command:
            case Dispatch():
                self._dispatch(self._attempts[command.ticket], self._index[command.backend])
            case Refuse() | Evict():
                after = command.retry_after
                self._refused(self._attempts[command.ticket], None if after is None else after.after_s)
            case Abort():
                self.engines[self._index[command.backend]].abort(command.ticket)
            case WakeAt():
                self._wake(gateway, command.at)
            case _:
                pass

    def _wake(self, gateway: int, at: float) -> None:
        next_tick = (int(self.now / TICK_S + 1e-6) + 1) * TICK_S
        self._wake_at[gateway] = at
        if at < next_tick:
            self._at(max(self.now, at), self._woken, gateway, at)

    def _woken(self, gateway: int, at: float) -> None:
        if self._wake_at[gateway] == at:
            self._tell(gateway, Ticked())

    def _tick(self) -> None:
        for gateway in range(len(self.gates)):
            self._tell(gateway, Ticked())
        self._at(self.now + TICK_S, self._tick)

    def _tick_outer(self, outer: Outer) -> None:
        if not outer.is_alive(self.now):
            return
        bounds = outer.tick([gate.view(self.now) for gate in self.gates], self.now)
        for gateway, bound in enumerate(bounds):
            self._tell(gateway, bound)
        self._at(self.now + PERIOD_S, self._tick_outer, outer)

    def _dispatch(self, attempt: Attempt, index: int) -> None:
        if self._lost[index]:
            self._at(self.now + REFUSED_CONNECTION_S, self._fail, attempt, Fault.CONNECTION)
            return
        attempt.engine = index
        request = attempt.request
        engine = self.engines[index]
        engine.submit(attempt.ticket, request.prompt_tokens, request.output_tokens)
        self.record.engine_waiting_max = max(
            self.record.engine_waiting_max, len(engine.waiting) + len(engine.running) - engine.spec.seats
        )
        if not engine.is_stepping:
            engine.is_stepping = True
            self._at(self.now, self._start_step, index)

    def _start_step(self, index: int) -> None:
        engine = self.engines[index]
        duration = engine.start_step()
        if duration is None:
            engine.is_stepping = False
        else:
            self._at(self.now + duration, self._finish_step, index, engine.counters)

    def _finish_step(self, index: int, life: object) -> None:
        engine = self.engines[index]
        if engine.counters is not life:  # lost meanwhile
            return
        emits = engine.finish_step()
        engine.is_stepping = True  # until the next step is scheduled, below
        self._relay(index, emits)
        self._start_step(index)

    def _relay(self, index: int, emits: list[Sequence]) -> None:
        """Tell every gateway what came out of one step of one engine."""
        now = self.now
        tokens: list[list[tuple[str, int]]] = [[] for _ in self.gates]
        done: list[tuple[Attempt, Sequence]] = []
        for sequence in emits:
            attempt = self._attempts.get(sequence.key)
            if attempt is None:
                continue
            attempt.last_at = now
            if attempt.first_at is None:
                attempt.first_at = now
                load = self.setup.profile.tiers[attempt.request.tier]
                self._at(attempt.started_at + load.total_patience_s, self._lose_patience, attempt)
            tokens[attempt.gateway].append(attempt.pair)
            if sequence.generated >= sequence.output_tokens:
                done.append((attempt, sequence))
        for gateway, pairs in enumerate(tokens):
            if pairs:
                self._tell(gateway, Progress(self.backends[index], tuple(pairs)))
        for attempt, sequence in done:
            self._answered(attempt, sequence)

    def _apply_fault(self, fault: EngineFault) -> None:
        engine = self.engines[fault.engine]
        engine.slow_factor = fault.slow_factor
        self._lost[fault.engine] = fault.is_lost
        if not fault.is_lost:
            return
        self._past = [a + b for a, b in zip(self._past, _counted(engine.counters), strict=True)]
        attempts = [attempt for attempt in self._attempts.values() if attempt.engine == fault.engine]
        works = [self._work(engine, attempt.ticket) for attempt in attempts]
        engine.crash()
        for attempt, work in zip(attempts, works, strict=True):
            self.record.wasted.append((self.now, work))
            self._fail(attempt, Fault.MIDSTREAM if attempt.first_at is not None else Fault.CONNECTION)

    def _work(self, engine: Engine, key: str) -> float:
        """Cost of what an engine has computed for one attempt."""
        sequence = engine.sequence(key)
        if sequence is None:
            return 0.0
        prefilled = min(sequence.prompt_tokens, sequence.context)
        return sequence.generated + prefilled / self.setup.profile.output_cost

    def _try(self, request: Request) -> None:
        gateways = len(self.gates)
        gateway = self._dice.randrange(gateways) if gateways > 1 else 0
        request.attempts += 1
        attempt = Attempt(request, gateway, self.now)
        self._attempts[attempt.ticket] = attempt
        self._tell(
            gateway,
            Arrived(
                ticket=attempt.ticket,
                pool=POOL,
                tier=request.tier,
                tenant=request.tenant,
                prompt_tokens=request.estimate,
                is_retry=request.attempts > 1,
            ),
        )
        if attempt.is_open:
            patience = self.setup.profile.tiers[request.tier].first_token_patience_s
            self._at(self.now + patience, self._lose_first_patience, attempt)

    def _close(self, attempt: Attempt) -> None:
        attempt.is_open = False
        del self._attempts[attempt.ticket]

    def _refused(self, attempt: Attempt, after_s: int | None) -> None:
        self._close(attempt)
        self._callers.refused(attempt.request, after_s)

    def _fail(self, attempt: Attempt, fault: Fault) -> None:
        """The attempt failed at its backend."""
        if not attempt.is_open:
            return
        self._close(attempt)
        self._tell(attempt.gateway, Failed(attempt.ticket, fault))
        self._callers.failed(attempt.request)

    def _lose_first_patience(self, attempt: Attempt) -> None:
        if attempt.is_open and attempt.first_at is None:
            self._abandon(attempt)

    def _lose_patience(self, attempt: Attempt) -> None:
        if attempt.is_open:
            self._abandon(attempt)

    def _abandon(self, attempt: Attempt) -> None:
        self._close(attempt)
        generated = None
        if attempt.engine is not None:
            engine = self.engines[attempt.engine]
            sequence = engine.sequence(attempt.ticket)
            generated = 0 if sequence is None else sequence.generated
            self.record.wasted.append((self.now, self._work(engine, attempt.ticket)))
            engine.abort(attempt.ticket)
        self._tell(attempt.gateway, Abandoned(attempt.ticket, generated))
        self._callers.failed(attempt.request)

    def _answered(self, attempt: Attempt, sequence: Sequence) -> None:
        if not attempt.is_open or attempt.first_at is None:
            return
        self._close(attempt)
        request = attempt.request
        request.ttft_s = attempt.first_at - attempt.started_at
        request.tpot_s = (attempt.last_at - attempt.first_at) / max(1, sequence.generated - 1)
        if not request.is_in_objective(self.setup.profile.tiers[request.tier]):
            cost = sequence.generated + sequence.prompt_tokens / self.setup.profile.output_cost
            self.record.wasted.append((self.now, cost))
        self._tell(attempt.gateway, Finished(attempt.ticket, sequence.prompt_tokens, sequence.generated))
        self._callers.decided(request)

    def _count(self) -> None:
        sums = self._past
        for engine in self.engines:
            sums = [a + b for a, b in zip(sums, _counted(engine.counters), strict=True)]
        self.record.totals.append(EngineTotals(self.now, *sums))
        self._at(self.now + 1.0, self._count)

    def _sample_windows(self, period_s: float) -> None:
        gauges = self.gates[0].view(self.now).backends
        self.record.windows.append((self.now, tuple(gauge.prefill_window_tokens for gauge in gauges)))
        self._at(self.now + period_s, self._sample_windows, period_s)


def run(setup: Setup) -> Record:
    """Run one setup from start to end."""
    return Simulation(setup).run()


def _counted(counters: object) -> list[int]:
    names = ("prompt_tokens", "generated_tokens", "recomputed_tokens", "preemptions", "finished")
    return [getattr(counters, name) for name in names]


def _dice(use: str, seed: int, index: int) -> random.Random:
    return random.Random(f"{use} {seed} {index}")  # noqa: S311  # a model, not a secret


def _seed(seed: int, index: int) -> int:
    return seed * 1000 + index
