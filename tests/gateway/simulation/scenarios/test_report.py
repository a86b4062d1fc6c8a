"""Lines of the table: what is right, what is missed, and what proves nothing."""

from gateway.simulation.scenarios import report
from gateway.simulation.scenarios.anchors import Finding
from gateway.simulation.scenarios.cases import Case
from gateway.simulation.scenarios.measuring import Book, ratio
from gateway.simulation.scenarios.targets import Target, jump_control_target
from tests.gateway.simulation.scenarios.test_measuring import made

SEEDS = (1, 2)
CASE = Case("gpu", "x10")


def line(value, control=None, **changes):
    given = {"case": CASE, "title": "goodput", "measure": ratio, "must": 0.9, "aim": 0.95}
    target = Target(**{**given, **changes}, is_controlled=control is not None)
    outcomes = {target.case.seeded(seed): made(ratio=value) for seed in SEEDS}
    if control is not None:
        outcomes |= {Case("gpu", "x10", "none", seed=seed): made(ratio=control) for seed in SEEDS}
    return report.line(target, Book(outcomes), SEEDS)


def test_a_value_at_its_aim_is_fine():
    found = line(0.96, control=0.2)
    assert found.complaint is None
    assert not found.is_short_of_aim
    assert found.cells == ("gpu x10", "goodput", ">= 0.9", "0.95", "0.96", "0.96", "-", "0.2", "ok")


def test_a_value_between_must_and_aim_is_short_of_its_aim():
    found = line(0.92)
    assert found.is_short_of_aim
    assert found.cells[-1] == "short of aim"


def test_a_missed_must_is_a_complaint():
    assert line(0.89).complaint == "must is missed"


def test_a_control_that_passes_is_a_complaint():
    assert line(0.96, control=0.91).complaint == "the negative control passes"


def test_a_line_says_how_it_was_run():
    late = Case("gpu", "x10", gateways=3, outer="late")
    assert line(0.96, case=late).cells[0] == "gpu x10, 3 gateways, gauges 4 s late"


def test_the_static_limit_must_fail_the_jump():
    target = jump_control_target()
    for value, complaint in ((0.4, None), (0.9, "the negative control passes")):
        book = Book({target.case.seeded(seed): made(ratio=value) for seed in SEEDS})
        assert report.jump_control(target, book, SEEDS).complaint == complaint


def test_an_anchor_that_is_off_is_a_complaint():
    assert report.anchor_line(Finding("x", 100.0, 103.0, allowed=4.0)).complaint is None
    off = report.anchor_line(Finding("x", 100.0, 110.0, allowed=4.0))
    assert off.complaint == "the anchor is off"
    assert off.cells[5] == "+10.0 %"


def test_the_table_is_aligned_markdown():
    drawn = report.text([line(0.96), line(0.92)]).splitlines()
    assert len({len(row) for row in drawn}) == 1
    assert set(drawn[1]) == {"|", "-"}
