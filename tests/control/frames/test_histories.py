import msgspec
import pytest

from control.frames.histories import (
    Histories,
    add_buckets,
    per_s,
    percentile,
    subtract_buckets,
)
from tests.fakes.reports import a_report


def test_a_report_seen_before_changes_nothing() -> None:
    histories = Histories()
    histories.add([a_report(seq=1, sent_at=10.0)], 100.0)
    histories.add([a_report(seq=1, sent_at=10.0)], 101.0)
    assert len(histories.all()["g1"].reports) == 1
    assert histories.all()["g1"].seen_at == 100.0


def test_a_new_boot_starts_a_new_history() -> None:
    histories = Histories()
    histories.add([a_report(seq=9, sent_at=10.0)], 100.0)
    histories.add([a_report(seq=1, sent_at=11.0, boot="second")], 101.0)
    assert [r.seq for r in histories.all()["g1"].reports] == [1]


def test_age_is_measured_on_our_clock_whatever_the_gateways_clock_says() -> None:
    histories = Histories()
    histories.add([a_report(seq=1, sent_at=10.0 + 3600)], 100.0)
    assert set(histories.live(102.9, 3.0)) == {"g1"}
    assert histories.live(103.1, 3.0) == {}
    assert set(histories.all()) == {"g1"}


def test_a_gateway_that_was_silent_for_a_minute_is_forgotten() -> None:
    histories = Histories()
    histories.add([a_report(seq=1)], 100.0)
    histories.add([], 160.1)
    assert histories.all() == {}


def test_reports_older_than_the_window_are_dropped() -> None:
    histories = Histories()
    for second in range(30):
        histories.add([a_report(seq=second, sent_at=float(second))], 100.0 + second)
    reports = histories.all()["g1"].reports
    assert [reports[0].sent_at, reports[-1].sent_at] == [19.0, 29.0]
    assert histories.all()["g1"].before(1.25).sent_at == 28.0


@pytest.mark.parametrize(("new", "old", "elapsed", "rate"), [(10, 4, 2, 3), (4, 10, 2, 0), (1, 0, 0, 0)])
def test_a_rate_is_never_negative(new: float, old: float, elapsed: float, rate: float) -> None:
    assert per_s(new, old, elapsed) == rate


def test_histograms_add_up_and_subtract() -> None:
    assert add_buckets([[1, 2], [3, 4], [9]], 2) == [4, 6]
    assert subtract_buckets([3, 4], [1, 5]) == [2, 0]
    assert subtract_buckets([3, 4], []) == [3, 4]


@pytest.mark.parametrize(
    ("buckets", "part", "expected"),
    [
        ([0, 0, 0], 0.5, None),
        ([1, 1, 0], 0.5, None),
        ([4, 0, 0], 0.5, 0.5),
        ([0, 4, 0], 0.5, 1.5),
        ([2, 2, 0], 0.95, 1.9),
        ([0, 0, 4], 0.5, 2.0),
    ],
)
def test_percentiles_are_interpolated_inside_a_bucket(
    buckets: list[int], part: float, expected: float | None
) -> None:
    assert percentile(buckets, (1.0, 2.0), part) == (
        expected if expected is None else pytest.approx(expected)
    )


def test_a_report_is_the_contracts_own() -> None:
    assert msgspec.json.decode(msgspec.json.encode(a_report()), type=type(a_report())) == a_report()
