"""Reading Retry-After: every form that servers send, and none that makes it raise."""

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.client.retryafter import named_wait_s

WALL_S = 784_111_777.0  # Sun, 06 Nov 1994 08:49:37 GMT
IN_2_S = "Sun, 06 Nov 1994 08:49:39 GMT"
AN_HOUR_AGO = "Sun, 06 Nov 1994 07:49:37 GMT"


def named(*fields: tuple[str, str]) -> float | None:
    return named_wait_s(httpx2.Headers(list(fields)), WALL_S)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2", 2.0),
        (" 2 ", 2.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("999999", 999_999.0),
        (IN_2_S, 2.0),
        ("Sunday, 06-Nov-94 08:49:39 GMT", 2.0),
        ("Sun Nov  6 08:49:39 1994", 2.0),
        (AN_HOUR_AGO, 0.0),
        ("2, 5", 5.0),
        ("-5", None),
        ("+5", None),
        ("120junk", None),
        ("", None),
        ("nan", None),
        ("inf", None),
        ("1e3", None),
        ("0x10", None),
        ("9" * 400, None),
        ("Sun, 06 Nov 99999999 08:49:37 GMT", None),
        ("Sun, 06 Nov 1994 08:49:37 +9999999999", None),
        ("99:99:99", None),
    ],
)
def test_each_form_of_retry_after(value, seconds):
    """A21: every form."""
    assert named(("Retry-After", value)) == seconds


def test_without_any_header_nothing_is_named():
    assert named() is None


def test_of_two_lines_the_later_counts_and_a_bad_one_does_not_hide_a_good_one():
    """A21: two header lines."""
    assert named(("Retry-After", "2"), ("Retry-After", "7")) == 7.0
    assert named(("Retry-After", "junk"), ("Retry-After", "3")) == 3.0
    assert named(("Retry-After", "1"), ("Retry-After", IN_2_S)) == 2.0


def test_a_date_is_held_against_the_answers_own_date():
    """A caller whose clock is an hour behind must not wait an hour."""
    assert named(("Date", AN_HOUR_AGO), ("Retry-After", "Sun, 06 Nov 1994 07:49:40 GMT")) == 3.0
    assert named(("Date", "yesterday"), ("Retry-After", IN_2_S)) == 2.0


@pytest.mark.parametrize(
    ("milliseconds", "seconds", "expected"),
    [
        ("1500", None, 1.5),
        ("1500", "2", 1.5),  # the same slot, told more exactly
        ("10", "30", 30.0),  # another one: never earlier than either says
        ("5000", "2", 5.0),
        ("junk", "2", 2.0),
        ("-1", None, None),
    ],
)
def test_milliseconds_refine_seconds_but_never_undercut_them(milliseconds, seconds, expected):
    fields = [("retry-after-ms", milliseconds)] + ([("Retry-After", seconds)] if seconds else [])
    assert named(*fields) == expected


@given(st.lists(st.tuples(st.sampled_from(["retry-after", "retry-after-ms", "date"]), st.text(max_size=80))))
def test_whatever_the_headers_say_the_wait_is_none_or_finite_and_not_negative(fields):
    encoded = [(name, value.encode("utf-8", "replace")) for name, value in fields]
    wait_s = named_wait_s(httpx2.Headers(encoded), WALL_S)  # type: ignore[arg-type]
    assert wait_s is None or 0 <= wait_s < 1e16
