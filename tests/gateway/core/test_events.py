"""Events are frozen values: the same ones replay to the same commands."""

from dataclasses import FrozenInstanceError, is_dataclass
from typing import get_args

import pytest

from gateway.core.events import Arrived, BackendBounds, Event, Progress, Ticked


@pytest.mark.parametrize("kind", get_args(Event), ids=lambda kind: kind.__name__)
def test_every_event_is_a_frozen_slotted_value(kind):
    assert is_dataclass(kind)
    assert kind.__dataclass_params__.frozen
    assert hasattr(kind, "__slots__")
    assert kind.__doc__


def test_equal_events_are_equal_values():
    assert Progress("b", (("t", 1),)) == Progress("b", (("t", 1),), lagged=False)
    assert hash(Ticked()) == hash(Ticked())


def test_an_arrival_cannot_be_changed():
    arrived = Arrived(ticket="t", pool="chat", tier=0, tenant="acme", prompt_tokens=3)
    with pytest.raises(FrozenInstanceError):
        arrived.tier = 2


def test_what_bounds_do_not_say_is_not_known():
    bounds = BackendBounds(backend="b")
    assert all(getattr(bounds, name) is None for name in BackendBounds.__slots__ if name != "backend")
