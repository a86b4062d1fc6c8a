"""Counting exchanges: each once, fallback apart, objectives minded."""

import pytest

from gateway.tally import Exchange, Histogram, Tally

OWNER = ("chat", 1, "acme")


def an_exchange(**facts) -> Exchange:
    return Exchange(at=1.0, request_id="r", pool="chat", tier=1, tenant="acme", **facts)


def served(tally: Tally, outcome: str = "completed", **facts) -> None:
    exchange = an_exchange(**facts)
    tally.arrived(exchange)
    tally.dispatched(exchange)
    tally.first_token(exchange)
    exchange.outcome, exchange.status = outcome, 200
    tally.ended(exchange)


def test_arrived_is_what_is_in_progress_plus_what_ended():
    tally = Tally()
    served(tally)
    tally.arrived(an_exchange())
    assert tally.tier("chat", 1).offered == tally.in_progress + sum(tally.traffic.values()) == 2


def test_a_second_attempt_is_not_a_second_admission():
    tally = Tally()
    exchange = an_exchange(wait_s=0.1)
    tally.arrived(exchange)
    tally.dispatched(exchange)
    tally.dispatched(exchange)
    assert (tally.tier("chat", 1).admitted, tally.in_flight[OWNER], exchange.attempts) == (1, 1, 2)
    exchange.outcome = "failed"
    tally.ended(exchange)
    assert tally.in_flight[OWNER] == 0


@pytest.mark.parametrize(
    ("ttft_s", "tpot_s", "goodput"), [(0.5, 0.05, 7), (1.5, 0.05, 0), (0.5, 0.5, 0), (None, None, 7)]
)
def test_goodput_counts_only_answers_within_both_objectives(ttft_s, tpot_s, goodput):
    tally = Tally()
    tally.objectives = {1: (1.0, 0.1)}
    served(tally, ttft_s=ttft_s, tpot_s=tpot_s, output_tokens=7)
    assert tally.tier("chat", 1).goodput_tokens == goodput


def test_what_was_generated_for_nobody_is_wasted():
    tally = Tally()
    served(tally, "abandoned", output_tokens=7)
    assert (tally.tier("chat", 1).wasted_tokens, tally.tier("chat", 1).goodput_tokens) == (7, 0)


def test_a_fallback_is_never_the_pools_work():
    tally = Tally()
    exchange = an_exchange(fallback=True, output_tokens=9)
    tally.arrived(exchange)
    exchange.outcome, exchange.reason, exchange.status = "refused", "breaker_open", 200
    tally.ended(exchange)
    tier = tally.tier("chat", 1)
    assert (tier.fallback, tier.output_tokens, tier.admitted) == (1, 0, 0)


def test_cost_counts_an_output_token_as_its_pool_says():
    tally = Tally()
    tally.output_costs = {"chat": 20.0}
    served(tally, prompt_tokens=100, output_tokens=5)
    assert tally.costs[OWNER] == 200.0


def test_a_request_without_a_ticket_counts_by_its_status_alone():
    tally = Tally()
    told: list[Exchange] = []
    tally.sinks.append(told.append)
    tally.ended(Exchange(at=1.0, request_id="r", status=401))
    assert (tally.responses, tally.traffic, tally.in_progress, len(told)) == ({401: 1}, {}, 0, 1)


def test_a_value_equal_to_a_bound_belongs_below_it():
    histogram = Histogram((0.1, 0.2))
    for value in (0.1, 0.15, 0.2, 5.0):
        histogram.observe(value)
    assert (histogram.counts, histogram.total) == ([1, 2, 1], 5.45)
