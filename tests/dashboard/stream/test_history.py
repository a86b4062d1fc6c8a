from dashboard.stream.history import EVENTS_KEPT, History
from gateway.contract.frame import EventFrame
from tests.fakes.scenes import NOW, frame


def test_before_the_first_frame_there_is_nothing():
    assert History().recent() is None


def test_the_newest_frame_keeps_its_bytes_and_its_id():
    history = History()
    history.add(frame(at=NOW), b"one", "1-0")
    history.add(frame(at=NOW + 1), b"two", "2-0")
    recent = history.recent()
    assert (recent.frame.at, recent.body, recent.frame_id, len(recent.samples)) == (NOW + 1, b"two", "2-0", 2)


def test_a_frame_that_is_not_newer_is_left_out():
    history = History()
    assert history.add(frame(at=NOW), b"", "1-0")
    assert not history.add(frame(at=NOW), b"", "2-0")
    assert not history.add(frame(at=NOW - 5), b"", "3-0")
    assert len(history.recent().samples) == 1


def test_a_clock_set_back_by_minutes_starts_the_past_again():
    history = History()
    history.add(frame(at=NOW), b"", "1-0")
    assert history.add(frame(at=NOW - 600), b"new", "2-0")
    assert [s.at for s in history.recent().samples] == [NOW - 600]


def test_fifteen_minutes_are_kept():
    history = History()
    for t in range(1000):
        history.add(frame(at=NOW + t), b"", f"{t}-0")
    samples = history.recent().samples
    assert (samples[0].at, samples[-1].at) == (NOW + 99, NOW + 999)


def test_an_event_told_in_every_frame_is_kept_once_and_the_oldest_go_first():
    history = History()
    again = EventFrame(at=NOW, kind="breaker", text="b1 opens")
    for t in range(EVENTS_KEPT + 50):
        mine = EventFrame(at=NOW + t, kind="policy", text=f"revision {t}", target=None if t % 2 else "x")
        history.add(frame(at=NOW + t, events=(again, mine)), b"", f"{t}-0")
    events = history.recent().events
    assert len(events) == EVENTS_KEPT
    assert events[-1].text == f"revision {EVENTS_KEPT + 49}"
    assert sum(e.text == "b1 opens" for e in events) <= 1
