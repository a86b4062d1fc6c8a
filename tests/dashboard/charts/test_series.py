import pytest

from dashboard.charts.samples import sample_of
from dashboard.charts.series import columns, drops, per_backend, per_tier, seats, tier_name, tier_style
from tests.fakes.scenes import NOW, backend, frame, shedding, tier

WHOLE = frame(
    tiers=(tier(0, waiting=2), tier(0, pool="embed", waiting=5), shedding(2, 9.0)),
    backends=(backend("b1"), backend("b2", kv_ratio=None), backend("e1", pool="embed", in_flight=3)),
)


@pytest.mark.parametrize(
    ("pool", "values"), [("chat", {"P0": 2, "P2": 0}), ("embed", {"P0": 5}), ("", {"P0": 7, "P2": 0})]
)
def test_a_line_sums_the_rows_of_its_pool(pool, values):
    assert {s.label: s.value(sample_of(WHOLE)) for s in per_tier(WHOLE, pool, "waiting")} == values


def test_unknown_is_none_and_scales_apply():
    assert [s.value(sample_of(WHOLE)) for s in per_backend(WHOLE, "chat")] == [40.0, None]


def test_a_row_that_is_not_there_is_none_and_not_zero():
    (line, _other) = per_backend(WHOLE, "chat")
    assert line.value(sample_of(frame(backends=()))) is None


def test_reasons_keep_one_order_and_only_those_that_occurred_are_lines():
    past = [
        sample_of(frame(tiers=(shedding(2, 9.0, r),))) for r in ("fast_reject", "rate_limited", "new_word")
    ]
    assert [s.label for s in drops("chat", past)] == ["rate_limited", "fast_reject", "new_word"]
    assert drops("embed", past) == ()


def test_an_entry_that_is_missing_in_a_second_is_zero_there():
    (line,) = drops("chat", [sample_of(WHOLE)])
    assert line.value(sample_of(frame())) == 0.0


def test_seats_count_limit_and_in_flight_of_the_pool():
    assert [s.value(sample_of(WHOLE)) for s in seats("chat")] == [80.0, 20.0]


def test_columns_have_one_time_axis_and_a_none_where_frames_are_missing():
    samples = [sample_of(frame(at=NOW + t)) for t in (0, 1, 2, 9, 10)]
    found = columns(samples, seats("chat"))
    at = [round((ms / 1000) - NOW) for ms in found["at"]]
    assert at == [0, 1, 2, 3, 9, 10]
    assert found["values"]["seats.limit"] == [80.0, 80.0, 80.0, None, 80.0, 80.0]


def test_a_late_frame_is_no_hole():
    samples = [sample_of(frame(at=NOW + t)) for t in (0, 1.4, 3.6)]
    assert None not in columns(samples, seats("chat"))["values"]["seats.limit"]


def test_tiers_below_p2_share_its_colour_but_not_its_name():
    assert (tier_name(4), tier_style(4)) == ("P4", "p2")
