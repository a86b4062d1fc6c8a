"""Fixtures of the dashboard's tests: people with roles, and a Valkey that holds frames."""

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from tests.fakes import installation
from tests.fakes.valkey import running_valkey


@pytest.fixture(scope="session")
def frames_server():
    """One Valkey for all tests of pages; each test gets it empty."""
    with running_valkey() as server:
        yield server


@pytest.fixture
def valkey(frames_server, settings):
    """Its client; REDIS_URL names it."""
    settings.REDIS_URL = frames_server.url
    with frames_server.client() as client:
        client.flushall()
        yield client


@pytest.fixture
def installed(db):
    """The small installation, a viewer, an operator and somebody of a tenant."""
    installation.install()
    installation.hire("vera", "viewer")
    installation.hire("omar", "operator")
    installation.hire("tina", "tenant-owner", "acme")


@pytest.fixture
def signed_in(installed):
    """`signed_in("omar")`: a client with that person's session."""

    def sign_in(username):
        client = Client()
        user = get_user_model().objects.get(username=username)
        client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
        return client

    return sign_in
