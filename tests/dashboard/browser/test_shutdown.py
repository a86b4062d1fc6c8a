"""The web process ends at once, with live pages open."""

import time

import pytest

pytestmark = pytest.mark.browser


def test_sigterm_ends_the_process_within_a_second_with_streams_open(room, write, open_page):
    write(200.0)
    page = open_page("vera", expected_faults=("ERR_",))
    deadline = time.monotonic() + 10
    while not page.text_content("#live-words").startswith("Live"):
        assert time.monotonic() < deadline
        page.wait_for_timeout(50)
    took = room.stop()
    try:
        assert took < 2.0, "streams within a second, then the interpreter's own end"
        page.wait_for_timeout(3500)
        assert page.evaluate("document.querySelectorAll('[data-live].is-stale').length") > 5
        assert "does not answer" in page.text_content("#live-words")
    finally:
        room.start()
