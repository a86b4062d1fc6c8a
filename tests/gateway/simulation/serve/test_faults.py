"""Faults: in force until their time is over."""

import msgspec
import pytest

from gateway.simulation.serve.faults import FaultKind, FaultOrder, Faults


def order(**fields):
    return msgspec.convert(fields, FaultOrder)


def test_a_fault_ends_by_itself():
    faults = Faults()
    faults.set(order(fault="hang", seconds=5), 10.0)
    assert faults.get(FaultKind.HANG, 14.9) is not None
    assert faults.get(FaultKind.HANG, 15.0) is None
    assert faults.in_force(15.0) == ()


def test_a_fault_without_seconds_stays_until_none():
    faults = Faults()
    faults.set(order(fault="busy"), 0.0)
    faults.set(order(fault="hang"), 0.0)
    assert [found.fault for found in faults.in_force(1e9)] == [FaultKind.HANG, FaultKind.BUSY]
    faults.set(order(fault="none"), 0.0)
    assert faults.in_force(0.0) == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"fault": "earthquake"},
        {"fault": "hang", "seconds": 0},
        {"fault": "slow-down", "factor": -1},
        {"fault": "busy", "retry_after": float("inf")},
        {"fault": "slow-metrics", "delay_s": float("nan")},
        {"fault": "errors", "status": 200},
    ],
)
def test_nonsense_is_refused(fields):
    with pytest.raises(msgspec.ValidationError):
        order(**fields)
