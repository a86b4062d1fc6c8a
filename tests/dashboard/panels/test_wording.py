import pytest

from dashboard.panels.wording import (
    NBSP,
    bound_s,
    clock,
    count,
    countdown,
    duration,
    known,
    listed,
    percent,
    rate,
    seconds,
    stamp,
    times,
)
from tests.fakes.scenes import NOW


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (count(1315.6), "1,316"),
        (rate(9.44), "9.4"),
        (rate(0.0), "0.0"),
        (rate(137.84), "137.8"),
        (rate(1378.4), "1,378"),
        (percent(0.971), "97 %"),
        (percent(0.6251, 1), "62.5 %"),
        (percent(0), "0 %"),
        (percent(1), "100 %"),
        (seconds(0.0), "0.00 s"),
        (seconds(0.004), "4 ms"),
        (seconds(0.71), "0.71 s"),
        (seconds(3.44), "3.4 s"),
        (seconds(20.4), "20 s"),
        (bound_s(1.0), "1 s"),
        (bound_s(0.15), "0.15 s"),
        (duration(89.9), "89 s"),
        (duration(119), "119 s"),
        (duration(120), "2 min"),
        (duration(3600), "1 h"),
        (duration(6 * 3600 + 41 * 60), "6 h 41 min"),
        (clock(NOW), "14:06:32"),
        (stamp(NOW), "14:06:32 UTC"),
        (countdown(1378), "22:58"),
        (countdown(16.9), "16 s"),
        (countdown(-3), "0 s"),
        (countdown(3905), "1 h 05 min"),
        (times(10.2), "10x"),
        (times(2.54), "2.5x"),
        (times(3.0), "3x"),
        (listed([]), ""),
        (listed(["b1"]), "b1"),
        (listed(["b1", "b2"]), "b1 and b2"),
        (listed(["b1", "b2", "b3"]), "b1, b2 and b3"),
        (listed(["b1", "b2", "b3", "b4", "b5"]), "b1, b2 and 3 more"),
        (known(None, "7"), "unknown"),
        (known(7, "7"), "7"),
    ],
)
def test_numbers_read_as_people_say_them(made, words):
    assert made.replace(NBSP, " ") == words


def test_a_number_and_its_unit_never_part():
    for made in (
        percent(0.5),
        seconds(0.71),
        duration(90),
        duration(24_060),
        countdown(3905),
        stamp(NOW),
        bound_s(2),
    ):
        assert " " not in made


@pytest.mark.parametrize(
    ("ratio", "words"), [(0.9999, "99 %"), (0.0001, "1 %"), (0.004, "1 %"), (0.9949, "99 %")]
)
def test_neither_all_nor_nothing_is_claimed_by_rounding(ratio, words):
    assert percent(ratio).replace(NBSP, " ") == words
