import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.test import RequestFactory

from control import selectors
from control.models import AuditEvent
from control.services import Conflict, Invalid, NotFound, people
from tests.fakes.installation import ALICE, PASSWORD, hire

pytestmark = pytest.mark.django_db


def test_somebody_with_a_staff_role_can_sign_in_and_has_that_role(db, audited):
    with audited(2):  # the person, and the role
        hire("olga", "operator")
    user = authenticate(RequestFactory().post("/"), username="olga", password=PASSWORD)
    access = selectors.access_of(user)
    assert (access.staff, access.may_view, access.may_override, access.may_edit) == (
        "operator",
        True,
        True,
        False,
    )
    assert user.is_staff


def test_somebody_of_a_tenant_sees_that_tenant_alone(installed):
    hire("tina", "tenant-owner", "acme")
    user = User.objects.get(username="tina")
    access = selectors.access_of(user)
    assert (access.staff, dict(access.tenants)) == ("", {"acme": "tenant-owner"})
    assert not user.is_staff
    assert not access.may_view


@pytest.mark.parametrize(
    ("role", "tenant", "fault"),
    [
        ("operator", "acme", Invalid),
        ("tenant-owner", None, Invalid),
        ("king", None, Invalid),
        ("tenant-owner", "x", NotFound),
    ],
)
def test_a_role_that_does_not_fit_makes_nobody(installed, audited, role, tenant, fault):
    with audited(0), pytest.raises(fault):
        hire("eve", role, tenant)
    assert not User.objects.filter(username="eve").exists()


def test_a_name_is_taken_once(db, audited):
    hire("olga", "operator")
    with audited(0), pytest.raises((Invalid, Conflict)):
        hire("olga", "viewer")


def test_a_new_password_counts_and_is_written_down_nowhere(db, audited):
    hire("olga", "operator")
    with audited(1):
        people.set_password(ALICE, "olga", "another password for tests")
    request = RequestFactory().post("/")
    assert authenticate(request, username="olga", password="another password for tests") is not None
    assert "another" not in "".join(AuditEvent.objects.values_list("changes", flat=True))
    with pytest.raises(NotFound):
        people.set_password(ALICE, "nobody", "x")
