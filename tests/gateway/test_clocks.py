"""The calendar month, in UTC."""

from gateway.clocks import Clocks


def test_a_month_begins_at_midnight_utc():
    ends = 1_796_083_200.0  # 2026-12-01T00:00:00Z
    assert Clocks(lambda: 0.0, lambda: ends - 1).month() == "2026-11"
    assert Clocks(lambda: 0.0, lambda: ends).month() == "2026-12"
