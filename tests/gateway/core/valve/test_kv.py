"""The target of the KV account: falls at once, rises slowly, stays within its bounds."""

import pytest

from gateway.core.events import BackendBounds
from gateway.core.valve.kv import KvTarget


@pytest.mark.parametrize(
    ("policy", "start", "ceiling"), [(0.9, 0.9, 0.95), (0.5, 0.5, 0.55), (0.1, 0.3, 0.35), (1, 0.95, 0.95)]
)
def test_it_starts_at_the_policys_value_and_rises_a_twentieth_above_it(policy, start, ceiling):
    kv = KvTarget(1000, policy, 0.0)
    assert kv.target == pytest.approx(start)
    kv.rise(1000.0)
    assert kv.target == pytest.approx(ceiling)


def test_it_rises_by_three_thousandths_a_second():
    kv = KvTarget(1000, 0.8, 0.0)
    kv.rise(4.0)
    assert kv.target == pytest.approx(0.812)
    kv.rise(3.0)  # a clock that goes back raises nothing
    assert kv.target == pytest.approx(0.812)


def test_a_late_prefill_counts_every_quarter_of_a_second():
    kv = KvTarget(1000, 0.9, 0.0)
    assert kv.may_fall(1.0)
    kv.fall(1.0)
    assert kv.target == pytest.approx(0.873)
    assert not kv.may_fall(1.2)
    assert kv.may_fall(1.25)


def test_it_never_falls_below_three_tenths():
    kv = KvTarget(1000, 0.9, 0.0)
    for second in range(100):
        kv.fall(float(second))
    assert kv.target == 0.30


def test_without_a_capacity_it_never_falls():
    assert not KvTarget(None, 0.9, 0.0).may_fall(1.0)


def test_the_slow_loops_target_is_obeyed_at_once_downwards_and_slowly_upwards():
    kv = KvTarget(1000, 0.9, 0.0)
    kv.bound(BackendBounds(backend="b", kv_target=0.7))
    assert kv.target == 0.7
    kv.bound(BackendBounds(backend="b", kv_target=0.9))
    assert kv.target == 0.7
    kv.rise(10.0)
    assert kv.target == pytest.approx(0.73)
