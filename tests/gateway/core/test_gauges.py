"""What a gate shows: frozen values, one per queue and backend."""

from dataclasses import fields, is_dataclass

import pytest

from gateway.core import gauges
from gateway.core.gauges import BackendGauge, GateView, QueueGauge
from gateway.core.valve import ValveGauge


@pytest.mark.parametrize("kind", [QueueGauge, BackendGauge, GateView], ids=lambda kind: kind.__name__)
def test_a_gauge_is_a_frozen_slotted_value(kind):
    assert is_dataclass(kind)
    assert kind.__dataclass_params__.frozen
    assert hasattr(kind, "__slots__")


def test_a_backend_shows_everything_that_its_valve_shows():
    shown = {field.name for field in fields(BackendGauge)}
    assert {field.name for field in fields(ValveGauge)} <= shown


def test_every_ratio_and_time_says_its_unit():
    named = {field.name for kind in (QueueGauge, BackendGauge) for field in fields(kind)}
    assert {"oldest_wait_s", "prefill_ratio", "kv_use_ratio", "sequences_ratio", "tpot_s"} <= named
    assert gauges.__doc__
