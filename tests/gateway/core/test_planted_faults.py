"""Break the gate on purpose, one promise at a time: the checks of the other tests must notice each."""

from dataclasses import replace

import pytest

from gateway.core.gate import admission, dispatching, lifecycle, shedder
from gateway.core.gate.state import State
from gateway.core.queues import PoolQueues, TierQueue
from gateway.core.routing import Backend
from gateway.core.shedding import Shedding
from gateway.core.vocabulary import DropPolicy, LimitAlgorithm
from tests.gateway.core.test_gate_machine import default_drops, overload, some_policy


def notices(seeds: range = range(3), requests: int = 250, **policy) -> bool:
    """Whether an overload with all checks complains."""
    fields = {"algorithm": LimitAlgorithm.FIXED, "drops": default_drops(), "size": 6, "watermark": None}
    for seed in seeds:
        try:
            shell = overload(seed, requests, policy=some_policy(**(fields | policy)))
            shell.come_to_rest()
            shell.check_replay()
        except (AssertionError, KeyError, ValueError):
            return True
    return False


def test_nothing_is_noticed_while_nothing_is_broken():
    assert not notices()


def test_a_seat_that_is_kept_on_abandon_is_noticed(monkeypatch):
    def keeps_it(state, ticket, event, now):
        del state.tickets[ticket.id]
        state.pools[ticket.pool].in_flight -= 1

    monkeypatch.setattr(lifecycle, "_abandon_in_flight", keeps_it)
    assert notices(range(8), 600)


def test_a_seat_that_the_valve_keeps_is_noticed(monkeypatch):
    def forgets_the_valve(self, ticket, now):
        self.seats.give_back(ticket.tier, ticket.tenant)

    monkeypatch.setattr(Backend, "give_back", forgets_the_valve)
    assert notices()


def test_a_lower_tier_that_passes_rank_0_is_noticed(monkeypatch):
    monkeypatch.setattr(
        PoolQueues, "next_tier", lambda self: next((t for t in reversed(self.tiers) if t.waiting), None)
    )
    assert notices()


def test_a_dispatch_past_its_deadline_is_noticed(monkeypatch):
    monkeypatch.setattr(dispatching, "_is_too_late", lambda *_: False)
    monkeypatch.setattr(admission, "expire", lambda *_: None)
    monkeypatch.setattr(Shedding, "limit_wait", lambda self, ticket: setattr(ticket, "expires_at", 1e9))
    assert notices()


def test_a_charge_that_is_settled_twice_is_noticed(monkeypatch):
    real = lifecycle._end

    def twice(state, backend, ticket, used, now):
        pool, charged = state.pools[ticket.pool], ticket.charged
        real(state, backend, ticket, used, now)
        pool.charged -= charged

    monkeypatch.setattr(lifecycle, "_end", twice)
    assert notices()


def test_a_quota_that_is_settled_twice_is_noticed(monkeypatch):
    real = lifecycle.finished

    def twice(state, event, now):
        before = len(state.out)
        real(state, event, now)
        state.out.extend(state.out[before:][:1])

    monkeypatch.setattr(lifecycle, "finished", twice)
    assert notices()


def test_an_eviction_without_a_refund_is_noticed(monkeypatch):
    monkeypatch.setattr(shedder, "_forget", lambda state, ticket: state.tickets.pop(ticket.id, None))
    assert notices(range(6), 500)


def test_a_limit_that_nobody_keeps_is_noticed(monkeypatch):
    monkeypatch.setattr(Backend, "binds", lambda self, ask, now, is_lowest: None)
    assert notices()


def test_a_seat_that_stays_empty_is_noticed(monkeypatch):
    monkeypatch.setattr(lifecycle, "_freed", lambda *_: None)
    assert notices()


def test_a_queue_without_a_bound_is_noticed(monkeypatch):
    monkeypatch.setattr(Shedding, "_judge_size", lambda *_: None)
    monkeypatch.setattr(Shedding, "displaced", lambda *_: None)
    assert notices(drops=[DropPolicy.TAIL] * 3, size=2)


def test_dice_that_are_not_written_down_are_noticed(monkeypatch):
    real, gates = State.__init__, iter(range(10**9))

    def with_dice_of_its_own(self, policy, dice, recorder, now):
        count, start = iter(range(10**9)), next(gates) * 0.37
        real(self, policy, lambda: (start + next(count) * 0.618) % 1.0, recorder, now)

    monkeypatch.setattr(State, "__init__", with_dice_of_its_own)
    policy = some_policy(LimitAlgorithm.FIXED, default_drops(), 2, None)
    tiers = tuple(
        replace(tier, queue=replace(tier.queue, retry_after_max_s=1)) for tier in policy.tiers
    )  # every slot is beyond the cap: drawn
    shell = overload(1, 250, policy=replace(policy, tiers=tiers))
    with pytest.raises(AssertionError):
        shell.check_replay()


def test_a_lost_ticket_is_noticed(monkeypatch):
    real = TierQueue.remove

    def loses_one(self, ticket):
        real(self, ticket)
        if self.waiting > 2:
            real(self, next(self.tickets()))

    monkeypatch.setattr(TierQueue, "remove", loses_one)
    assert notices()
