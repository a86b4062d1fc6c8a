"""One state machine over the whole gate: any order of events, and everything that must hold after each."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, precondition, rule

from gateway.core.events import (
    Abandoned,
    BackendBounds,
    BoundsReceived,
    DrainStarted,
    Failed,
    Finished,
    Override,
    OverridesReceived,
    Progress,
    PushedBack,
    QuotaDenied,
    QuotaGranted,
)
from gateway.core.policy import (
    BackendPolicy,
    BreakerPolicy,
    GatePolicy,
    LimitPolicy,
    PoolPolicy,
    WatermarkPolicy,
    default_tiers,
)
from gateway.core.vocabulary import (
    BreakerState,
    DropPolicy,
    Fault,
    LimitAlgorithm,
    OverrideKind,
    ShedReason,
)
from tests.fakes.gate_model import Shell
from tests.fakes.playbook import chance

TENANTS = ("ada", "bob", "cyd")
NUMBERS = st.one_of(st.none(), st.integers(-2, 40))


def some_tiers(drops, size: int):
    return tuple(
        replace(
            tier, queue=replace(tier.queue, max_size=size, max_size_per_tenant=max(1, size - 1), drop=drop)
        )
        for tier, drop in zip(default_tiers(), drops, strict=True)
    )


def some_policy(algorithm, drops, size, watermark) -> GatePolicy:
    limit = LimitPolicy(algorithm=algorithm, min_limit=2, max_limit=6, reserved_seats=1)
    breaker = BreakerPolicy(min_requests=2, open_s=1.0, probe_timeout_s=0.5, ramp_s=2.0)
    pool = PoolPolicy(name="chat", limit=limit, breaker=breaker, watermark=watermark, default_output_tokens=8)
    return GatePolicy(
        tiers=some_tiers(drops, size),
        pools=(pool, replace(pool, name="code", watermark=None)),
        backends=(
            BackendPolicy(name="a0", pool="chat", kv_capacity_tokens=4000, max_seqs=6),
            BackendPolicy(name="a1", pool="chat", max_seqs=4, context_tokens=1500, weight=2.0),
            BackendPolicy(name="c0", pool="code", max_seqs=3),
        ),
    )


class GateMachine(RuleBasedStateMachine):
    """Rules are what the world may do; `Shell` checks."""

    tickets = Bundle("tickets")

    @initialize(
        algorithm=st.sampled_from(LimitAlgorithm),
        drops=st.tuples(*[st.sampled_from(DropPolicy)] * 3),
        size=st.integers(1, 4),
        watermark=st.sampled_from([None, WatermarkPolicy(safe=1, maximum=6, jitter_s=0.1)]),
        seed=st.integers(0, 99),
    )
    def start(self, algorithm, drops, size, watermark, seed):
        self.policy = some_policy(algorithm, drops, size, watermark)
        self.shell = Shell(self.policy, seed=seed)

    @rule(
        target=tickets,
        pool=st.sampled_from(["chat", "chat", "code", "nowhere"]),
        tier=st.integers(0, 3),
        tenant=st.sampled_from(TENANTS),
        prompt_tokens=st.sampled_from([1, 100, 700, 3000]),
        max_output_tokens=st.sampled_from([None, 0, 8]),
        deadline_s=st.sampled_from([None, None, -1.0, 0.3, 3.0]),
        is_retry=st.booleans(),
        has_quota=st.booleans(),
    )
    def arrive(self, deadline_s, **fields):
        deadline_at = None if deadline_s is None else self.shell.now + deadline_s
        return self.shell.arrive(deadline_at=deadline_at, **fields)

    @rule(ticket=tickets, is_granted=st.booleans(), retry_s=st.sampled_from([None, 0.5, 30.0, 90.0]))
    def answer_quota(self, ticket, is_granted, retry_s):
        known = self.shell.known.get(ticket)
        if known is None or known.stage != "quota":
            return
        retry_at = None if retry_s is None else self.shell.now + retry_s
        reason = None if is_granted else ShedReason.TOKEN_LIMITED
        self.shell.answer_quota(ticket, reason=reason, retry_at=retry_at)

    @rule(backend=st.sampled_from(["a0", "a1", "c0"]), lagged=st.booleans())
    def step(self, backend, lagged):
        tickets = self.shell.in_flight(backend)
        if tickets:
            self.shell.progress(backend, tickets, lagged=lagged)

    @rule(ticket=tickets, output=st.sampled_from([None, 0, 8, 200]))
    def finish(self, ticket, output):
        if ticket in self.shell.in_flight():
            self.shell.finish(ticket, output)

    @rule(ticket=tickets, fault=st.sampled_from(Fault))
    def fail(self, ticket, fault):
        if ticket in self.shell.in_flight():
            self.shell.fail(ticket, fault)

    @rule(
        ticket=tickets,
        retry_after_s=st.sampled_from([None, 0.0, 0.2, 100.0, float("nan")]),
        status=st.sampled_from([429, 503]),
    )
    def push_back(self, ticket, retry_after_s, status):
        if ticket in self.shell.in_flight():
            self.shell.push_back(ticket, retry_after_s, status)

    @rule(ticket=tickets)
    def abandon(self, ticket):
        if ticket in self.shell.known:
            self.shell.abandon(ticket)

    @rule(seconds=st.sampled_from([0.001, 0.02, 0.05, 0.3, 2.0, 8.0]))
    def pass_time(self, seconds):
        self.shell.pass_time(seconds)

    @rule(ticket=tickets, kind=st.integers(0, 6))
    def say_something_stale(self, ticket, kind):
        """Events of a ticket that is gone."""
        if ticket in self.shell.known:
            return
        event = [
            QuotaGranted(ticket),
            QuotaDenied(ticket, ShedReason.RATE_LIMITED, None),
            Progress("a0", ((ticket, 1),)),
            Finished(ticket),
            Failed(ticket, Fault.MIDSTREAM),
            PushedBack(ticket, None, 429),
            Abandoned(ticket),
        ][kind]
        self.shell.feed(event)

    @rule(
        share=st.sampled_from([1.0, 0.5, 0.0, -1.0, float("nan")]),
        backend=st.sampled_from(["a0", "a1", "nowhere"]),
        seats=NUMBERS,
        limit_max=NUMBERS,
        waiting=NUMBERS,
        ratio=st.one_of(st.none(), st.floats()),
        age=st.one_of(st.none(), st.floats()),
        breaker=st.sampled_from([None, None, BreakerState.OPEN, BreakerState.CLOSED]),
    )
    def bound(self, share, backend, seats, limit_max, waiting, ratio, age, breaker):
        bounds = BackendBounds(
            backend=backend, seats=seats, limit_max=limit_max, engine_waiting=waiting, engine_running=waiting,
            kv_ratio=ratio, kappa=ratio, kv_target=ratio, telemetry_age_s=age, breaker=breaker,
        )  # fmt: skip
        self.shell.feed(BoundsReceived(share=share, backends=(bounds,)))

    @rule(
        kind=st.sampled_from(OverrideKind),
        whom=st.sampled_from(["a0", "a1", "chat", "ada", "1", "2"]),
        value=st.sampled_from(["open", "closed", "on", "1", "0.5", "3", "nonsense"]),
        seconds=st.sampled_from([0.0, 0.5, 10.0]),
    )
    def override(self, kind, whom, value, seconds):
        entry = Override(kind=kind, target=whom, value=value, expires_at=self.shell.now + seconds)
        self.shell.feed(OverridesReceived((entry,)))

    @rule(
        size=st.integers(1, 4),
        tiers=st.integers(1, 3),
        is_drained=st.booleans(),
        max_seqs=st.integers(2, 6),
        has_code=st.booleans(),
        has_a1=st.booleans(),
    )
    def configure(self, size, tiers, is_drained, max_seqs, has_code, has_a1):
        policy = self.policy
        drops = [tier.queue.drop for tier in policy.tiers]
        a0, a1, c0 = policy.backends
        backends = [replace(a0, max_seqs=max_seqs)]
        if has_a1:
            backends.append(replace(a1, drained=is_drained))
        if has_code:
            backends.append(c0)
        policy = replace(
            policy,
            tiers=some_tiers(drops, size)[:tiers],
            pools=policy.pools if has_code else policy.pools[:1],
            backends=tuple(backends),
        )
        self.shell.configure(policy)

    @precondition(lambda self: len(self.shell.outcomes) > 20)
    @rule()
    def drain(self):
        self.shell.feed(DrainStarted())

    def teardown(self):
        if hasattr(self, "shell"):
            self.shell.come_to_rest()
            self.shell.check_replay()


TestGateMachine = GateMachine.TestCase
TestGateMachine.settings = settings(
    max_examples=60,
    stateful_step_count=60,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # shrinking a long history takes minutes
    derandomize=True,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


# -- many requests with short answers


def overload(seed: int, requests: int, *, policy: GatePolicy | None = None) -> Shell:
    """A shell after so many requests of 8-token answers at several times what two backends can do."""
    roll = chance(seed)
    shell = Shell(policy or some_policy(LimitAlgorithm.TOKEN_VALVE, [*default_drops()], 20, None), seed=seed)
    while shell.count < requests:
        for _ in range(roll.randrange(4)):
            arrive_by_chance(shell, roll)
        for ticket in shell.staged("quota"):
            if ticket in shell.known:
                denied = ShedReason.RATE_LIMITED if roll.random() < 0.1 else None
                shell.answer_quota(ticket, reason=denied, retry_at=shell.now + 1.0)
        for backend in ("a0", "a1"):
            step_by_chance(shell, backend, roll)
        shell.pass_time(0.02)
    return shell


def default_drops():
    return [tier.queue.drop for tier in default_tiers()]


def arrive_by_chance(shell: Shell, roll) -> None:
    shell.arrive(
        pool="chat",
        tier=roll.choice([0, 1, 1, 2, 2]),
        tenant=roll.choice(["amuck", "amuck", "amuck", *TENANTS]),
        prompt_tokens=roll.randrange(1, 600),
        is_retry=roll.random() < 0.3,
        has_quota=roll.random() < 0.3,
        deadline_at=shell.now + roll.random() * 3 if roll.random() < 0.2 else None,
    )


def step_by_chance(shell: Shell, backend: str, roll) -> None:
    """One engine step: a token each; some answers end, some callers leave, some attempts fail."""
    tickets = shell.in_flight(backend)
    if not tickets:
        return
    shell.progress(backend, tickets)
    for ticket in tickets:
        known = shell.known.get(ticket)
        if known is None or known.stage != "in-flight":
            continue
        fate = roll.random()
        if shell.state.tickets[ticket].generated >= 8:
            shell.finish(ticket, 8)
        elif fate < 0.005:
            shell.abandon(ticket)
        elif fate < 0.007:
            shell.fail(ticket, Fault.MIDSTREAM)
        elif fate < 0.01:
            shell.push_back(ticket, None, 429)


@pytest.mark.parametrize("seed", range(20))
def test_everything_holds_under_overload(seed):
    shell = overload(seed, 600)
    shell.come_to_rest()
    assert set(shell.outcomes.values()) >= {"completed", "refused"}


def test_an_overload_plays_the_same_again():
    shell = overload(77, 600)
    shell.come_to_rest()
    shell.check_replay()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000))
def test_everything_holds_under_a_long_overload(seed):
    shell = overload(seed, 10_000)
    shell.come_to_rest()
