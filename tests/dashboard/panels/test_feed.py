from dashboard.panels.feed import FLAGS, SHOWN, feed, marks
from gateway.contract.frame import EventFrame
from tests.fakes.scenes import NOW, backend, frame, scene


def event(ago, kind="breaker", text="breaker of b1: closed to open", target="b1"):
    return EventFrame(at=NOW - ago, kind=kind, text=text, target=target)


def of(*events, **changes):
    return scene(frame(events=events, **changes))


def test_the_newest_comes_first_and_the_list_ends():
    found = feed(of(*(event(i, text=f"number {i}") for i in range(30))))
    assert (len(found), found[0].text) == (SHOWN, "number 0")


def test_the_same_again_is_one_line_with_its_number():
    (line,) = feed(of(event(1), event(5), event(9)))
    assert (line.times, line.time) == (3, "14:06:31")


def test_what_ends_well_looks_well():
    lines = feed(of(event(1, text="breaker of b1: half-open to closed"), event(2)))
    assert [(e.icon, e.style) for e in lines] == [("closed", "is-good"), ("open", "is-bad")]


def test_a_kind_of_a_newer_loop_is_shown_plainly():
    (line,) = feed(of(event(1, kind="eclipse", text="the sun is gone", target=None)))
    assert (line.icon, line.style, line.target) == ("pulse", "", "")


def test_a_target_that_the_text_names_is_not_said_twice():
    lines = feed(of(event(1), event(2, kind="limit", text="KV target 0.90 to 0.89", target="b2")))
    assert [e.target for e in lines] == ["", "b2"]


def test_events_of_other_pools_stay_out():
    others = (backend("b1"), backend("e1", pool="embed"))
    found = feed(
        of(event(1, target="e1", text="x"), event(2, target="embed", text="y"), event(3), backends=others)
    )
    assert [e.time for e in found] == ["14:06:29"]


def test_flags_are_lettered_from_left_to_right_and_bounded():
    found = marks(of(*(event(i, text=f"number {i}") for i in range(30))))
    assert [m.letter for m in found] == list("ABCDEFGHIJKL")[:FLAGS]
    assert [m.at_ms for m in found] == sorted(m.at_ms for m in found)
    assert found[-1].text == "b1 number 0"


def test_limit_changes_are_told_but_not_flagged():
    scene_ = of(event(1, kind="limit", text="40 to 36"))
    assert feed(scene_)
    assert not marks(scene_)


def test_an_event_before_the_shown_past_has_no_flag():
    assert not marks(of(event(1000)))


def test_a_long_text_is_cut_on_the_axis_only():
    long = event(1, text="x" * 200)
    assert len(marks(of(long))[0].text) == 48
    assert feed(of(long))[0].text == "x" * 200
