"""What every test gets: settings that need no environment, a database of this run alone, one async backend."""

import shutil
import tempfile
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

# The same examples each time, and no verdict on speed: a busy machine must not fail a property.
hypothesis_settings.register_profile(
    "calm", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("calm")

_STATE = pytest.StashKey[Path]()


def pytest_configure(config):
    """Secrets, state folder and database of this run; nothing of the caller's environment is used or touched."""
    state = Path(tempfile.mkdtemp(prefix="sluicegate-tests-"))
    config.stash[_STATE] = state
    settings.STATE_DIR = state
    settings.SECRET_KEY = "of no value: the secret key of tests, long enough for every check"
    settings.KEY_PEPPER = "a key pepper for tests only"
    settings.SIGNING_KEY = "a signing key for tests only"
    settings.SIGNING_KEY_PREVIOUS = ""
    settings.REDIS_URL = f"unix://{state}/nobody-listens-here.sock"
    settings.PASSWORD_HASHERS = [
        "django.contrib.auth.hashers.MD5PasswordHasher"
    ]  # quick: hashing is not under test
    database = settings.DATABASES["default"]
    if database["ENGINE"].endswith("sqlite3"):
        database["TEST"] = {**database.get("TEST", {}), "NAME": str(state / "test.sqlite3")}


def pytest_unconfigure(config):
    """Leave nothing behind."""
    shutil.rmtree(config.stash[_STATE], ignore_errors=True)


@pytest.fixture(params=["asyncio"])
def anyio_backend():
    """Async tests run on asyncio with uvloop, as the gateway does."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_blocker):
    """Emptying tables after a test that commits is a DELETE on SQLite, which append-only tables refuse."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            for table in ("control_auditevent", "control_policyrevision"):
                cursor.execute(f"DROP TRIGGER IF EXISTS {table}_no_delete")
