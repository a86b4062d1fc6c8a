from dashboard.panels.effects import AUTO, CLOSED, OPEN, effects
from dashboard.panels.wording import NBSP
from tests.fakes.scenes import backend, breaker, frame, scene, shedding, tier


def preview(backends, name, action, tiers=None):
    whole = frame(backends=backends, **({"tiers": tiers} if tiers else {}))
    return next(e for e in effects(scene(whole, pool=""), name) if e.action == action)


def words(effect):
    return {what: text.replace(NBSP, " ") for what, text in effect.rows}


def test_force_open_says_what_becomes_of_each_request():
    waiting = (tier(0, waiting=2), tier(2, waiting=20))
    found = preview((backend("b1"), backend("b2", in_flight=36, limit=40.0)), "b2", OPEN, waiting)
    assert words(found) == {
        "In flight here": "36, finish normally, nothing is aborted",
        "Waiting": "22 stay queued, go to b1",
        "Pool limit": "80 to 40 seats",
        "Breaker": "no new requests here until it ends or is undone",
    }


def test_force_open_of_the_last_backend_warns():
    found = preview(
        (backend("b1"), backend("b2", breaker=breaker("open"))), "b1", OPEN, (tier(0, waiting=3),)
    )
    assert found.warning == "No backend of chat would be left."
    assert "would find no backend" in words(found)["Waiting"]


def test_force_open_beside_one_that_is_out_says_how_many_are_left():
    out = backend("b4", breaker=breaker("open"))
    found = preview((backend("b1"), backend("b2"), backend("b3"), out), "b2", OPEN)
    assert found.warning == "b4 is out already. 2 of 4 backends would be left."


def test_the_estimate_serves_tiers_in_their_order():
    tiers = (
        tier(0, offered_per_s=9.0, admitted_per_s=9.0),
        shedding(1, 8.0, offered=16.0),
        shedding(2, 99.0, offered=100.0),
    )
    busy = [backend(n, limit=40.0, in_flight=40) for n in ("b1", "b2")]
    found = preview(tuple(busy), "b2", OPEN, tiers)
    assert [(x.label, x.words.replace(NBSP, " ")) for x in found.expected] == [
        ("P0", "shed stays 0 %"),
        ("P1", "shed 50 % to about 100 %"),
        ("P2", "shed 99 % to about 100 %"),
    ]  # 18/s over 80 seats leave 9/s over 40, all of it for P0


def test_force_closed_of_a_broken_backend_warns_and_counts_its_peers_seats():
    found = preview(
        (backend("b1", limit=40.0), backend("b2", breaker=breaker("open"), limit=0.0)), "b2", CLOSED
    )
    assert found.warning.startswith("The breaker opened because calls failed.")
    assert words(found)["Pool limit"] == "40 to 80 seats"


def test_auto_without_an_override_changes_nothing_and_says_so():
    found = preview((backend("b1"), backend("b2")), "b2", AUTO)
    assert words(found)["Breaker"] == "no override is in force; nothing changes"
    assert words(found)["Pool limit"] == "80 seats, unchanged"
    assert found.expected == ()


def test_auto_gives_the_seats_of_a_forced_open_backend_back():
    found = preview(
        (backend("b1"), backend("b2", breaker=breaker("forced-open"), limit=40.0, in_flight=0)), "b2", AUTO
    )
    assert words(found)["Pool limit"] == "40 to 80 seats"
    assert words(found)["In flight here"] == "none"


def test_other_pools_do_not_count():
    found = preview((backend("b1"), backend("b2"), backend("e1", pool="embed")), "b2", OPEN)
    assert words(found)["Pool limit"] == "80 to 40 seats"


def test_a_backend_that_no_frame_knows_has_no_preview():
    assert effects(scene(frame()), "b9") == ()


def test_without_traffic_nothing_is_estimated():
    idle = tuple(tier(r, offered_per_s=0.0, admitted_per_s=0.0) for r in (0, 1, 2))
    assert preview((backend("b1"), backend("b2")), "b2", OPEN, idle).expected == ()
