import time

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from control import selectors
from control.audit import Actor
from control.services.overrides import SetOverride, set_override
from gateway.core.vocabulary import OverrideKind
from tests.fakes.frames import publish
from tests.fakes.scenes import backend, frame

PATH = "/backends/b1/override/"
GOOD = {"action": "open", "lifetime": "15m", "reason": "engine restarts now", "expected": "", "next": "/"}
DIALOG = {"HTTP_X_REQUESTED_WITH": "dialog"}


@pytest.fixture
def omar(signed_in, valkey):
    publish(valkey, frame(at=time.time(), backends=(backend("b1"), backend("b2"))))
    return signed_in("omar")


def in_force():
    return selectors.overrides_in_force()


def elsewhere(value="closed", target="b1"):
    wanted = SetOverride(
        kind=OverrideKind.BREAKER, target=target, value=value, reason="set by another", lifetime_s=600
    )
    return set_override(Actor("alice", "api"), wanted).key


def test_the_dialog_shows_the_effect_before_anything_is_set(omar):
    text = omar.get(PATH, **DIALOG).content.decode()
    assert "10, finish normally, nothing is aborted" in text
    assert "80 to 40 seats" in text
    assert "<html" not in text
    assert not in_force()


def test_without_the_script_it_is_a_page_of_its_own(omar):
    text = omar.get(PATH).content.decode()
    assert "<html" in text
    assert "Effect if set now" in text


def test_setting_it_names_actor_reason_and_end(omar):
    answer = omar.post(PATH, GOOD)
    assert (answer.status_code, answer["Location"]) == (302, "/")
    (row,) = in_force()
    assert (row.target, row.value, row.actor, row.reason) == ("b1", "open", "omar", "engine restarts now")
    assert (row.expires_at - row.created_at).total_seconds() == 900
    assert "Set: b1 forced open until" in omar.get("/").content.decode()


def test_it_is_in_the_audit_list(omar):
    omar.post(PATH, GOOD)
    (newest, *_) = selectors.audit_page(limit=1).rows
    assert (newest.actor, newest.origin, newest.action, newest.reason) == (
        "omar",
        "dashboard",
        "override set",
        "engine restarts now",
    )


def test_the_dialog_is_answered_with_words_and_the_address_of_undo(omar):
    told = omar.post(PATH, GOOD, **DIALOG).json()
    assert told["words"].startswith("Set: b1 forced open until")
    assert omar.post(told["undo"], {}, **DIALOG).json() == {"words": "Undone: b1 forced open.", "undo": ""}
    assert not in_force()


def test_undo_of_what_has_ended_is_no_fault(omar):
    key = elsewhere()
    omar.post(f"/overrides/{key}/release/")
    assert (
        omar.post(f"/overrides/{key}/release/", {}, **DIALOG).json()["words"]
        == "It had ended already: b1 forced closed."
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reason": ""}, "Say why, in at least 8 characters"),
        ({"lifetime": ""}, "Choose when it ends"),
        ({"lifetime": "other", "minutes": "1441"}, "no override lasts longer than a day"),
        ({"action": "explode"}, "There is no such action."),
    ],
)
@pytest.mark.parametrize("how", [{}, DIALOG], ids=["page", "dialog"])
def test_wrong_input_changes_nothing_and_says_what_to_do(omar, changes, words, how):
    answer = omar.post(PATH, GOOD | changes, **how)
    assert answer.status_code == 422
    assert words in answer.content.decode()
    assert not in_force()


def test_somebody_elses_change_meanwhile_is_a_conflict_that_shows_it(omar):
    key = elsewhere()
    answer = omar.post(PATH, GOOD, **DIALOG)
    text = answer.content.decode()
    assert answer.status_code == 409
    assert "Meanwhile alice set: b1 forced closed until" in text
    assert [row.key for row in in_force()] == [key]
    assert f'name="expected" value="{key}"' in text, "the next press is about what is in force now"
    assert omar.post(PATH, GOOD | {"expected": key}).status_code == 302
    assert [(row.actor, row.value) for row in in_force()] == [("omar", "open")]


def test_a_replayed_form_changes_nothing(omar):
    assert omar.post(PATH, GOOD).status_code == 302
    (first,) = in_force()
    assert omar.post(PATH, GOOD).status_code == 409
    assert in_force() == (first,)


def test_auto_gives_the_breaker_back(omar):
    key = elsewhere()
    answer = omar.post(PATH, {"action": "auto", "expected": key}, **DIALOG)
    assert answer.json()["words"] == "The breaker of b1 decides by itself again."
    assert not in_force()


def test_auto_about_another_override_than_was_seen_is_a_conflict(omar):
    elsewhere()
    assert omar.post(PATH, {"action": "auto", "expected": "ov_old"}, **DIALOG).status_code == 409
    assert in_force()


def test_auto_where_nothing_is_in_force_says_so(omar):
    words = omar.post(PATH, {"action": "auto"}, **DIALOG).json()["words"]
    assert words == "No override of b1 is in force: its breaker decides by itself."


def test_a_backend_that_is_gone_is_not_found(omar):
    assert omar.get("/backends/b9/override/").status_code == 404
    assert omar.post("/backends/b9/override/", GOOD).status_code == 404
    assert omar.post("/overrides/ov_never/release/").status_code == 404


def test_a_backend_that_no_frame_knows_can_be_overridden_without_a_preview(signed_in, valkey):
    text = signed_in("omar").get(PATH).content.decode()
    assert "No effect can be computed" in text


@pytest.mark.parametrize("path", [PATH, "/overrides/ov_1/release/"])
def test_a_viewer_changes_nothing(signed_in, valkey, path):
    answer = signed_in("vera").post(path, GOOD)
    assert answer.status_code == 403
    assert "vera is signed in as viewer; overrides need the operator role" in answer.content.decode()
    assert not in_force()


def test_a_forged_form_changes_nothing(installed, valkey):
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(
        get_user_model().objects.get(username="omar"), backend="django.contrib.auth.backends.ModelBackend"
    )
    key = elsewhere()
    assert strict.post(PATH, GOOD).status_code == 403
    assert strict.post(f"/overrides/{key}/release/").status_code == 403
    assert [row.key for row in in_force()] == [key]


def test_looking_never_undoes(omar):
    key = elsewhere()
    assert omar.get(f"/overrides/{key}/release/").status_code == 405
    assert in_force()


@pytest.mark.parametrize("evil", ["//evil.example/", "https://evil.example/", "javascript:alert(1)"])
def test_nobody_is_led_away_after_setting(omar, evil):
    assert omar.post(PATH, GOOD | {"next": evil})["Location"] == "/"
