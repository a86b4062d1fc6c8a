import pytest

from control.models import AuditEvent
from tests.fakes.installation import PASSWORD, hire

pytestmark = pytest.mark.django_db


def sign_in(client, password=PASSWORD):
    return client.post("/admin/login/?next=/admin/", {"username": "olga", "password": password})


def test_a_sign_in_leaves_a_row(client, audited):
    hire("olga", "viewer")
    with audited(1):
        assert sign_in(client).status_code == 302
    assert AuditEvent.objects.order_by("-seq").first().action == "signed in"


def test_wrong_passwords_leave_no_row_until_they_lock_the_door(client, audited):
    hire("olga", "viewer")
    with audited(0):
        for _ in range(4):
            assert sign_in(client, "wrong").status_code == 200
    with audited(1):
        assert sign_in(client, "wrong").status_code == 429
    row = AuditEvent.objects.order_by("-seq").first()
    assert (row.action, row.actor, row.object_name) == ("locked out", "anonymous", "olga")
    assert sign_in(client).status_code == 429, "locked out, even with the right password"
