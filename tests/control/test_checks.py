import json
import time

import pytest
from django.core.checks import run_checks
from django.db import connection
from django.db.utils import OperationalError

from control import checks
from gateway.contract import keys
from tests.fakes.published import sealed_bytes

pytestmark = pytest.mark.django_db


@pytest.fixture
def broken_database(monkeypatch):
    """Every query fails, as it does while the database is away."""

    def fail(*args, **options):
        raise OperationalError("could not connect to server: Connection refused at 10.1.2.3")

    def break_it():
        monkeypatch.setattr(connection, "cursor", fail)

    return break_it


def test_livez_needs_nothing(client, broken_database):
    broken_database()
    assert client.get("/livez").content == b"ok\n"


def test_readyz_tells_what_is_there(client, installed, valkey):
    with valkey.client() as store:
        store.set(keys.FRAME, sealed_bytes("frame", b"{}", (1, 1, 1), sent_at=time.time() - 1))
    answer = client.get("/readyz")
    body = json.loads(answer.content)
    assert answer.status_code == 200
    assert body["database"] is True
    assert body["revision"] > 0
    assert body["degraded"] is False
    assert 0.9 < body["frame_age_s"] < 10


def test_readyz_is_ready_but_degraded_without_valkey_and_with_an_old_frame(client, installed, valkey):
    valkey.kill()
    assert json.loads(client.get("/readyz").content)["degraded"] is True
    valkey.start()
    with valkey.client() as store:
        store.set(keys.FRAME, sealed_bytes("frame", b"{}", (1, 1, 1), sent_at=time.time() - 60))
    answer = client.get("/readyz")
    assert (answer.status_code, json.loads(answer.content)["degraded"]) == (200, True)


def test_readyz_is_not_ready_without_the_database(client, broken_database):
    broken_database()
    answer = client.get("/readyz")
    assert (answer.status_code, json.loads(answer.content)["database"]) == (503, False)


def test_a_page_answers_503_in_words_while_the_database_is_away(client, broken_database):
    broken_database()
    client.raise_request_exception = False
    answer = client.post("/admin/login/", {"username": "a", "password": "b"})
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert b"10.1.2.3" not in answer.content
    assert b"Traceback" not in answer.content


def test_another_fault_is_a_500_without_a_trace(client, installed, monkeypatch):
    def fail(*args):
        raise RuntimeError("an internal name")

    monkeypatch.setattr(checks.selectors, "current_revision_number", fail)
    client.raise_request_exception = False
    answer = client.get("/readyz")
    assert answer.status_code == 500
    assert b"internal" not in answer.content


def test_every_answer_carries_the_strict_policy(client, installed):
    policy = client.get("/admin/login/")["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    ("name", "value", "identifier"),
    [
        ("KEY_PEPPER", "", "sluicegate.E001"),
        ("SIGNING_KEY", "changeme", "sluicegate.E001"),
        ("REDIS_URL", "http://x", "sluicegate.E003"),
    ],
)
def test_checks_for_deployment_find_what_is_missing(settings, name, value, identifier):
    setattr(settings, name, value)
    assert identifier in {message.id for message in run_checks(include_deployment_checks=True)}


@pytest.mark.parametrize(
    ("url", "is_bad"), [("http://gate.example.org", True), ("http://127.0.0.1:8000", False)]
)
def test_debug_is_for_this_machine_alone(settings, url, is_bad):
    settings.DEBUG, settings.PUBLIC_URL = True, url
    assert bool(checks.debug_stays_at_home()) is is_bad
