import pytest

from dashboard.panels.tiles import spark, tiles
from dashboard.panels.wording import NBSP
from tests.fakes.scenes import frame, scene, shedding, tier


def only(row, before=(), **more):
    return tiles(scene(frame(tiers=(row,)), before, **more))[0]


@pytest.mark.parametrize(
    ("row", "style", "words"),
    [
        (tier(0), "good", "Inside objective"),
        (tier(0, ttft_p95_s=1.1), "bad", "Outside objective"),
        (tier(0, tpot_p95_s=0.2), "bad", "Outside objective"),
        (shedding(2, 9.0), "bad", "Shedding 1 s"),
        (shedding(2, 9.0, "quota_exhausted"), "outline", "Over own limits"),
        (tier(0, offered_per_s=0.0, ttft_p95_s=None, tpot_p95_s=None), "outline", "No traffic"),
        (tier(0, ttft_p95_s=None, tpot_p95_s=None), "outline", "No answer yet"),
    ],
)
def test_the_chip_says_the_gravest_first(row, style, words):
    chip = only(row).chip
    assert (chip.style, chip.text.replace(NBSP, " ")) == (style, words)


def test_numbers_of_a_tile():
    tile = only(
        shedding(
            1, 10.5, offered=16.8, waiting=14, oldest_wait_s=2.3, ttft_p95_s=3.4, goodput_tokens_per_s=1909.0
        )
    )
    words = [
        w.replace(NBSP, " ") for w in (tile.shed, tile.offered, tile.admitted, tile.ttft, tile.ttft_objective)
    ]
    assert words == ["62.5 %", "16.8", "6.3", "3.4 s", "4 s"]
    assert (tile.waiting, tile.oldest.replace(NBSP, " "), tile.goodput, tile.ttft_share) == (
        "14",
        "2.3 s",
        "1,909",
        85.0,
    )


def test_without_answers_ttft_is_empty_and_never_zero():
    assert only(tier(0, ttft_p95_s=None)).ttft == ""


def test_nobody_waiting_has_no_oldest():
    assert only(tier(0, waiting=0, oldest_wait_s=3.0)).oldest == ""


def test_a_single_frame_has_no_line():
    assert only(tier(0)).spark is None


def test_the_line_ends_at_the_newest_frame_and_at_the_edge():
    line = only(tier(0), [frame()] * 600).spark
    assert line.note.replace(NBSP, " ") == "7 min to 14:06:32 UTC"
    assert line.line.split("L")[-1].startswith("100.0 ")
    assert line.line.count("M") == 1


def test_a_hole_in_the_frames_is_a_hole_in_the_line():
    whole = scene(frame(), [frame()] * 300)
    holey = tuple(s for i, s in enumerate(whole.samples) if not 100 <= i < 160)
    cut = type(whole)(whole.frame, holey, whole.events, whole.now, whole.pool)
    assert spark(cut, 0).line.count("M") == 2
    assert spark(cut, 0).area.count("Z") == 2


def test_the_line_has_a_bounded_number_of_points():
    assert only(tier(0), [frame()] * 900).spark.line.count("L") <= 90
