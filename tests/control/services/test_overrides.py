from datetime import timedelta

import pytest

from control import selectors
from control.audit import Actor
from control.models import AuditEvent, Override, PublishedState, writing
from control.services import Conflict, Invalid, NotFound
from control.services.overrides import SetOverride, release_override, set_override
from gateway.core.vocabulary import OverrideKind
from tests.fakes.installation import ALICE

pytestmark = pytest.mark.django_db
OLGA = Actor("olga", "dashboard")


def put(**changes):
    values = {
        "kind": OverrideKind.BREAKER, "target": "b1", "value": "open", "reason": "engine is sick", "lifetime_s": 900,
    }  # fmt: skip
    return set_override(OLGA, SetOverride(**{**values, **changes}))


def version():
    return PublishedState.objects.get().overrides_version


GOOD = [
    (OverrideKind.BREAKER, "b1", "open"),
    (OverrideKind.BREAKER, "b1", "closed"),
    (OverrideKind.LIMIT_PIN, "b1", "12"),
    (OverrideKind.LIMIT_PIN, "b1", "0"),
    (OverrideKind.BACKEND_DRAIN, "b1", "on"),
    (OverrideKind.BACKEND_DISABLE, "b1", "on"),
    (OverrideKind.TENANT_WEIGHT, "acme", "0.25"),
    (OverrideKind.TIER_THROTTLE, "2", "0.5"),
    (OverrideKind.POOL_FALLBACK, "chat", "on"),
]


@pytest.mark.parametrize(("kind", "target", "value"), GOOD)
def test_each_kind_can_be_set_is_audited_once_and_seen(installed, audited, kind, target, value):
    with audited(1):
        made = put(kind=kind, target=target, value=value)
    (row,) = selectors.overrides_in_force()
    assert (row.key, row.kind, row.target, row.value) == (made.key, kind, target, value)
    assert (row.actor, row.reason, row.is_in_force) == ("olga", "engine is sick", True)
    assert row.expires_at - row.created_at == timedelta(seconds=900)


def test_every_kind_is_covered():
    assert {kind for kind, _, _ in GOOD} == set(OverrideKind)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"reason": ""}, "reason"),
        ({"reason": "  x "}, "reason"),
        ({"reason": "x" * 501}, "reason"),
        ({"lifetime_s": 0}, "lifetime_s"),
        ({"lifetime_s": 86_401}, "lifetime_s"),
        ({"target": "gone"}, "target"),
        ({"value": "auto"}, "value"),
        ({"value": ""}, "value"),
        ({"kind": OverrideKind.LIMIT_PIN, "value": "-1"}, "value"),
        ({"kind": OverrideKind.LIMIT_PIN, "value": "1.5"}, "value"),
        ({"kind": OverrideKind.LIMIT_PIN, "value": "1e9"}, "value"),
        ({"kind": OverrideKind.LIMIT_PIN, "value": "\u0661"}, "value"),
        ({"kind": OverrideKind.BACKEND_DRAIN, "value": "off"}, "value"),
        ({"kind": OverrideKind.TENANT_WEIGHT, "target": "acme", "value": "nan"}, "value"),
        ({"kind": OverrideKind.TENANT_WEIGHT, "target": "acme", "value": "inf"}, "value"),
        ({"kind": OverrideKind.TENANT_WEIGHT, "target": "acme", "value": "0"}, "value"),
        ({"kind": OverrideKind.TENANT_WEIGHT, "value": "1"}, "target"),
        ({"kind": OverrideKind.TIER_THROTTLE, "target": "9", "value": "0.5"}, "target"),
        ({"kind": OverrideKind.TIER_THROTTLE, "target": "P0", "value": "0.5"}, "target"),
        ({"kind": OverrideKind.TIER_THROTTLE, "target": "0", "value": "1.1"}, "value"),
        ({"kind": OverrideKind.POOL_FALLBACK, "target": "b1", "value": "on"}, "target"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(installed, audited, changes, field):
    with audited(0), pytest.raises(Invalid) as refused:
        put(**changes)
    assert [problem.field for problem in refused.value.problems] == [field]
    assert not Override.objects.exists()


def test_a_new_one_takes_the_place_of_the_old_one(installed, audited):
    first = put()
    with audited(1):
        second = put(value="closed")
    assert [row.key for row in selectors.overrides_in_force()] == [second.key]
    old = selectors.override(first.key)
    assert (old.released_by, old.is_in_force) == ("olga", False)
    assert '"value":["open","closed"]' in AuditEvent.objects.order_by("-seq").first().changes


def test_who_saw_another_state_changes_nothing_and_learns_what_is_in_force(installed, audited):
    first = put()
    with audited(0), pytest.raises(Conflict) as conflict:
        put(value="closed", expected=None)
    assert conflict.value.current == first.key
    with audited(0), pytest.raises(Conflict):
        put(value="closed", expected="ov_somebody-elses")
    assert [row.value for row in selectors.overrides_in_force()] == ["open"]
    put(value="closed", expected=first.key)
    assert [row.value for row in selectors.overrides_in_force()] == ["closed"]


def test_an_expired_one_is_no_obstacle_and_keeps_its_own_end(installed):
    first = put()
    ended = _expire(first.key)
    put(value="closed", expected=None)
    old = selectors.override(first.key)
    assert (old.released_at, old.released_by) == (ended, "")


def test_a_release_ends_it_once(installed, audited):
    made = put()
    before = version()
    with audited(1):
        assert release_override(ALICE, made.key) is True
    assert version() == before + 1
    with audited(0):
        assert release_override(ALICE, made.key) is False
    assert version() == before + 1
    assert selectors.overrides_in_force() == ()
    assert selectors.override(made.key).released_by == "alice"


def test_what_expired_by_itself_is_not_released_again(installed, audited):
    made = put()
    _expire(made.key)
    with audited(0):
        assert release_override(ALICE, made.key) is False


def test_what_never_was_is_not_found(installed):
    with pytest.raises(NotFound):
        release_override(ALICE, "ov_nothing")


def test_each_change_is_a_new_version_of_the_set(installed):
    put()
    first = version()
    put(kind=OverrideKind.LIMIT_PIN, value="3")
    assert version() == first + 1


def test_the_latest_come_first_in_force_or_not(installed):
    first = put()
    second = put(kind=OverrideKind.LIMIT_PIN, value="3")
    release_override(ALICE, first.key)
    assert [(row.key, row.is_in_force) for row in selectors.latest_overrides()] == [
        (second.key, True),
        (first.key, False),
    ]


def _expire(key):
    """As if a quarter of an hour had gone by."""
    row = Override.objects.get(key=key)
    row.created_at -= timedelta(seconds=1000)
    row.expires_at -= timedelta(seconds=1000)
    with writing():
        row.save()
    return row.expires_at
