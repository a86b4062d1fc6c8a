# ruff: noqa: E501  # tables read better in one line
import msgspec
import pytest

from dashboard.panels.chrome import chrome, override_title
from dashboard.panels.wording import NBSP
from gateway.core.vocabulary import OverrideKind
from tests.fakes.scenes import NOW, frame, gateway, override


def test_overrides_stand_in_the_order_of_their_ends_with_the_time_left():
    found = chrome(frame(overrides=(override("b1"), override("b2", "closed", expires_at=NOW + 60))), NOW)
    assert [(o.title, o.left) for o in found.overrides] == [
        ("b2 forced closed", "1:00"),
        ("b1 forced open", "15:00"),
    ]
    assert (found.count_words, found.next_left, found.next_expiry) == ("2 overrides", "1:00", NOW + 60)


def test_an_override_that_ended_since_the_frame_is_not_shown_as_in_force():
    assert chrome(frame(overrides=(override(expires_at=NOW + 1),)), NOW + 2).overrides == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gateways": (gateway(snapshot_refused="tiers: 2 share rank 0"),)}, "gw-1 refuses the newest snapshot: tiers: 2 share rank 0. It goes on with revision 7."),
        ({"gateways": (gateway(report_age_s=4.2),)}, "No report from gw-1 for 4.2 s."),
        ({"gateways": (gateway(degraded=True),)}, "gw-1 serves without Valkey: quotas are bounded locally."),
        ({"gateways": (gateway(ledger_imbalance=2),)}, "gw-1 holds 2 seats, tokens or charges for nobody: report this as a bug."),
        ({"gateways": ()}, "No gateway reports."),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_system_itself_is_a_notice(changes, words):
    (notice,) = chrome(frame(**changes), NOW).notices
    assert notice.text.replace(NBSP, " ") == words


def test_a_slow_loop_that_missed_its_turn_is_a_notice():
    late = msgspec.structs.replace(frame().control, tick_age_s=5.0)
    (notice,) = chrome(frame(control=late), NOW).notices
    assert notice.text.startswith("The slow loop missed its turn for 5.0")


def test_a_healthy_system_needs_no_notice():
    assert chrome(frame(), NOW).notices == ()


def test_the_foot_counts_only_gateways_that_report():
    found = chrome(frame(gateways=(gateway("a"), gateway("b"), gateway("c", report_age_s=9.0))), NOW)
    assert found.foot[0] == "2 gateways, snapshot 7"


def test_every_kind_of_override_has_words():
    titles = {override_title(kind, "x", "1") for kind in OverrideKind}
    assert len(titles) == len(OverrideKind)
    assert override_title("teleport", "x", "1") == "teleport x 1"
