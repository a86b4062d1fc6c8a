import pytest

from dashboard.panels.valve import GATE_COLUMNS, lanes, retries_words, valve
from dashboard.panels.wording import NBSP
from tests.fakes.scenes import backend, breaker, frame, scene, tier

OUT = backend(
    "b4", breaker=breaker("open"), limit=0.0, in_flight=0, in_flight_by_tier=(0, 0, 0), reserved_seats=0
)


def of(*backends, before=(), tiers=None):
    changes = {} if tiers is None else {"tiers": tiers}
    return valve(scene(frame(backends=backends, **changes), before))


def test_seats_add_up_over_backends_that_take_traffic():
    found = of(backend("b1"), backend("b2"), OUT)
    assert (found.limit, found.in_flight, found.free, found.reserved) == ("80", "20", 60, 4)
    assert [(s.label, s.held) for s in found.seats] == [("P0", 8), ("P1", 8), ("P2", 4)]


def test_the_bar_holds_more_than_the_limit_where_a_limit_has_fallen_below_what_is_in_flight():
    found = of(backend("b1", limit=8.0, in_flight=10))
    assert found.free == 0
    assert sum(s.width for s in found.seats) <= 100.0
    assert found.reserved == 0


def test_a_backend_that_is_out_has_one_cell_over_all_gates():
    found = of(backend("b1"), OUT)
    assert [len(row.cells) for row in found.rows] == [2, 1, 1]
    assert found.rows[0].cells[1].out == "breaker open"


def test_an_unknown_gate_has_no_words_and_no_bar():
    kv = of(backend("b1", kv_ratio=None, kv_use_ratio=None)).rows[1]
    assert (kv.cells[0].words, kv.cells[0].share) == ("", 0.0)


def test_the_gate_that_binds_is_marked_and_no_other():
    rows = of(backend("b1", binding="kv")).rows
    assert [row.cells[0].binds for row in rows] == [False, True, False]


def test_how_often_a_gate_bound_counts_seconds_and_backends_of_the_last_minute():
    held = frame(backends=(backend("b1", binding="kv"), backend("b2")))
    found = of(backend("b1"), backend("b2"), before=[held] * 30 + [frame()] * 29)
    assert (found.gate, found.gate_words.replace(NBSP, " ")) == ("KV", "bound for 25 % of the last minute")


def test_where_nothing_bound_it_is_said():
    assert of(backend("b1")).gate == "No gate"


def test_many_backends_are_cut_and_counted():
    found = of(*(backend(f"b{i}") for i in range(9)))
    assert (len(found.columns), found.left_out) == (GATE_COLUMNS, 9 - GATE_COLUMNS)


def test_no_backend_at_all_divides_by_nothing():
    found = of()
    assert (found.limit, found.in_flight, found.free) == ("0", "0", 0)


@pytest.mark.parametrize(
    ("waiting", "dots", "per_dot"), [(0, 0, 1), (6, 6, 1), (40, 40, 1), (41, 21, 2), (1000, 40, 25)]
)
def test_a_lane_has_as_many_dots_as_tickets_up_to_forty(waiting, dots, per_dot):
    (lane,) = lanes(scene(frame(tiers=(tier(2, waiting=waiting, oldest_wait_s=0.2),))))
    assert (len(lane.dots), lane.per_dot) == (dots, per_dot)


def test_dots_reach_to_the_oldest_and_never_past_the_budget():
    (lane,) = lanes(scene(frame(tiers=(tier(0, waiting=4, oldest_wait_s=0.25, delay_budget_s=0.5),))))
    assert max(d.x for d in lane.dots) == 50.0
    (late,) = lanes(scene(frame(tiers=(tier(0, waiting=4, oldest_wait_s=9.0, delay_budget_s=0.5),))))
    assert max(d.x for d in late.dots) == 98.0
    assert late.is_late
    assert not lane.is_late


def test_retries_are_a_share_of_what_is_offered():
    found = scene(frame(tiers=(tier(0), tier(1, retries_per_s=5.0, shed_per_s={"retry_budget": 1.5}))))
    assert retries_words(found).replace(NBSP, " ") == "50 % of offered, 1.5/s of them shed without credit"
    assert retries_words(scene(frame())) == "none"
