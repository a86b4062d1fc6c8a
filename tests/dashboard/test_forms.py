import pytest

from dashboard.forms import BreakerOverrideForm

GOOD = {"action": "open", "lifetime": "15m", "reason": "engine restarts now"}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"action": ""}, "action"),
        ({"action": "explode"}, "action"),
        ({"reason": ""}, "reason"),
        ({"reason": "      why     "}, "reason"),
        ({"reason": "x" * 201}, "reason"),
        ({"lifetime": ""}, "lifetime"),
        ({"lifetime": "for ever"}, "lifetime"),
        ({"lifetime": "other"}, "minutes"),
        ({"lifetime": "other", "minutes": "0"}, "minutes"),
        ({"lifetime": "other", "minutes": "-5"}, "minutes"),
        ({"lifetime": "other", "minutes": "1441"}, "minutes"),
        ({"lifetime": "other", "minutes": "ten"}, "minutes"),
        ({"lifetime": "other", "minutes": "1e3"}, "minutes"),
        ({"lifetime": "other", "minutes": "9" * 400}, "minutes"),
        ({"expected": "x" * 25}, "expected"),
    ],
)
def test_what_is_wrong_is_named_at_its_field(changes, field):
    form = BreakerOverrideForm(GOOD | changes)
    assert not form.is_valid()
    assert list(form.errors) == [field]


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({}, 900),
        ({"lifetime": "1h"}, 3600),
        ({"lifetime": "4h"}, 14_400),
        ({"lifetime": "other", "minutes": "1440"}, 86_400),
    ],
)
def test_it_lasts_as_long_as_chosen(changes, seconds):
    form = BreakerOverrideForm(GOOD | changes)
    assert form.is_valid()
    assert form.lifetime_s == seconds


def test_auto_needs_neither_reason_nor_end():
    assert BreakerOverrideForm({"action": "auto"}).is_valid()
