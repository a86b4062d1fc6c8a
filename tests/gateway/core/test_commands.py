"""Commands are frozen values: what is to be done, and why."""

from dataclasses import FrozenInstanceError, is_dataclass
from typing import get_args

import pytest

from gateway.core import commands
from gateway.core.commands import Command, Decision, Refuse, RetryAfter
from gateway.core.vocabulary import ShedReason


@pytest.mark.parametrize("kind", get_args(Command), ids=lambda kind: kind.__name__)
def test_every_command_is_a_frozen_slotted_value(kind):
    assert is_dataclass(kind)
    assert kind.__dataclass_params__.frozen
    assert hasattr(kind, "__slots__")
    assert kind.__doc__


def test_every_command_of_the_module_is_in_the_union():
    parts = {RetryAfter, Decision}
    found = {value for value in vars(commands).values() if is_dataclass(value)} - parts
    assert found == set(get_args(Command))


def test_a_refusal_says_why_and_when_to_come_back():
    why = Decision("early_drop", 3.0, 2.0, 4, 3.0)
    refuse = Refuse("t", ShedReason.EARLY_DROP, RetryAfter(12.5, 3), why)
    assert (refuse.retry_after.after_s, refuse.decision.value > refuse.decision.bound) == (3, True)
    with pytest.raises(FrozenInstanceError):
        refuse.reason = ShedReason.DRAINING
