from dashboard.panels.plots import plots, shape
from dashboard.panels.wording import NBSP
from tests.fakes.scenes import backend, frame, scene, shedding, tier


def named(scene_):
    return {plot.name: plot for plot in plots(scene_)}


def test_the_label_column_says_the_newest_values():
    found = named(
        scene(frame(tiers=(tier(0, waiting=2), shedding(2, 9.0)), backends=(backend("b1", kv_ratio=0.414),)))
    )
    assert [(line.label, line.value) for line in found["queue"].lines] == [("P0", "2"), ("P2", "0")]
    assert [(line.label, line.value) for line in found["drops"].lines] == [("fast_reject", "9.0")]
    assert [(line.label, line.value) for line in found["seats"].lines] == [
        ("limit", "40"),
        ("in flight", "10"),
    ]
    assert [(line.label, line.value) for line in found["kv"].lines] == [("b1", f"41{NBSP}%")]


def test_unknown_kv_has_no_value_and_full_kv_is_marked():
    found = named(scene(frame(backends=(backend("b1", kv_ratio=None), backend("b2", kv_ratio=0.97)))))
    assert [(line.value, "bad" in line.style) for line in found["kv"].lines] == [
        ("", False),
        (f"97{NBSP}%", True),
    ]


def test_the_shape_changes_with_the_lines_and_not_with_their_values():
    calm, storm, more = (
        shape(plots(scene(frame(tiers=t)))) for t in ((tier(2),), (shedding(2, 9.0),), (shedding(2, 4.0),))
    )
    assert calm != storm
    assert storm == more
