import pytest

from dashboard.panels.backends import cards, engine_name
from dashboard.panels.wording import NBSP
from tests.fakes.scenes import backend, breaker, frame, override, scene


def card(row, **changes):
    return cards(scene(frame(backends=(row,), **changes)))[0]


@pytest.mark.parametrize(
    ("row", "word", "ring"),
    [
        (backend(), "healthy", ""),
        (backend(sequences_ratio=0.6), "busy", ""),
        (backend(in_flight=0), "idle", ""),
        (backend(binding="kv", kv_use_ratio=0.97), "saturated", "warn"),
        (backend(preemptions_per_s=0.4), "saturated", "warn"),
        (backend(slow=3.0), "slow", "warn"),
        (backend(telemetry_age_s=9.0), "no signal", "warn"),
        (backend(breaker=breaker("half-open")), "probing", "warn"),
        (backend(breaker=breaker("open"), telemetry_age_s=90.0), "out", "bad"),
        (backend(breaker=breaker("forced-open")), "out", "bad"),
        (backend(breaker=breaker("forced-closed")), "healthy", ""),
    ],
)
def test_the_word_is_the_gravest_that_is_true(row, word, ring):
    found = card(row)
    assert (found.word, found.orb_style) == (word, ring)


@pytest.mark.parametrize(
    ("state", "icon", "words"),
    [
        ("closed", "closed", "Closed"),
        ("open", "open", "Open, probe in"),
        ("half-open", "half", "Half-open, probing"),
        ("forced-open", "hand", "Forced open"),
        ("forced-closed", "hand", "Forced closed"),
    ],
)
def test_a_breaker_is_icon_and_word(state, icon, words):
    chip = card(backend(breaker=breaker(state, until=1.0))).breaker.chip
    assert (chip.icon, chip.text) == (icon, words)


def test_what_an_engine_does_not_tell_is_empty_and_never_zero():
    found = card(
        backend(
            kv_ratio=None, kv_source=None, engine_waiting=None, preemptions_per_s=None, telemetry_age_s=None
        )
    )
    assert (found.kv, found.engine_waiting, found.preemptions, found.signal_age) == ("", "", "", "")


def test_zero_is_told_as_zero():
    found = card(backend(kv_ratio=0.0, engine_waiting=0, preemptions_per_s=0.0, telemetry_age_s=0.0))
    assert [found.kv, found.engine_waiting, found.preemptions, found.signal_age] == [
        f"0{NBSP}%", "0", "0.0", f"0.0{NBSP}s",
    ]  # fmt: skip


def test_kv_from_slots_says_where_it_comes_from():
    assert card(backend(kv_source="slots")).kv_note == "from slots"


def test_the_circle_grows_with_the_part_of_its_seats_in_use():
    half, full = card(backend(limit=40.0, in_flight=10)), card(backend(limit=40.0, in_flight=40))
    assert (half.orb_radius, full.orb_radius) == (10.5, 21.0)
    assert card(backend(limit=0.0, in_flight=0)).orb_radius == 0.0


def test_an_override_is_on_the_card_of_its_target_only():
    found = cards(scene(frame(overrides=(override("b2"),))))
    assert [c.override is not None for c in found] == [False, True]


def test_an_engine_we_do_not_know_keeps_its_own_name():
    assert (engine_name("llama_cpp"), engine_name("hal9000")) == ("llama.cpp", "hal9000")
