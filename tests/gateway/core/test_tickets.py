"""What a ticket takes from its arrival."""

import pytest

from gateway.core.events import Arrived
from gateway.core.tickets import Stage, Ticket


def arrived(**fields) -> Arrived:
    return Arrived(ticket="a", pool="chat", tier=1, tenant="ada", **({"prompt_tokens": 5} | fields))


def test_a_ticket_starts_before_its_quota_and_holds_nothing():
    ticket = Ticket(arrived(is_retry=True), 3.0)
    assert (ticket.stage, ticket.arrived_at, ticket.charged, ticket.backend) == (Stage.QUOTA, 3.0, 0, "")
    assert not ticket.is_ordinary
    assert repr(ticket) == "<Ticket a ada tier=1 quota cost=0>"


@pytest.mark.parametrize("prompt_tokens", [-5, 0])
def test_a_prompt_has_no_less_than_no_tokens(prompt_tokens):
    assert Ticket(arrived(prompt_tokens=prompt_tokens), 0.0).prompt_tokens == 0


def test_a_lowered_ticket_asks_as_its_new_tier():
    ticket = Ticket(arrived(), 0.0)
    ask = ticket.ask
    ticket.lower_to(1)
    assert ticket.ask is ask
    ticket.lower_to(2)
    assert (ticket.tier, ticket.ask.tier) == (2, 2)
