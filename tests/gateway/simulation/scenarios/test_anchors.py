"""The figures that tie the model down."""

from gateway.simulation.scenarios import anchors
from gateway.simulation.scenarios.measuring import Book
from tests.gateway.simulation.scenarios.test_measuring import made


def book(factor):
    outcomes = {}
    for anchor in anchors.ANCHORS:
        part = (anchor.first_in_objective or 100.0) / 100.0
        for seed in anchors.SEEDS:
            outcomes[anchor.case.seeded(seed)] = made(
                goodput=anchor.goodput * factor, in_objective=(part, 1.0, 1.0)
            )
    for case in anchors.cases() - set(outcomes):
        outcomes[case] = made(ttft_p99_s=anchors.UNLOADED_MS[case.play] * factor / 1000)
    return Book(outcomes)


def test_figures_within_four_per_cent_are_close():
    assert all(finding.is_close for finding in anchors.findings(book(1.03)))


def test_figures_beyond_that_are_not():
    off = [finding for finding in anchors.findings(book(0.95)) if not finding.is_close]
    assert len(off) == len(anchors.ANCHORS) + len(anchors.UNLOADED_MS)


def test_seeds_that_differ_much_allow_more():
    assert anchors._finding("x", 100.0, [80.0, 90.0, 110.0, 120.0, 130.0], 4.0).is_close
    assert not anchors._finding("x", 100.0, [106.0, 105.9, 106.0, 106.1, 106.0], 4.0).is_close
    assert not anchors._finding("x", 100.0, [180.0, 190.0, 210.0, 220.0, 230.0], 4.0).is_close
