"""Fixtures of the control plane's tests."""

import pytest

from control import audit
from tests.fakes import installation
from tests.fakes.valkey import running_valkey


@pytest.fixture
def installed(db):
    """The small installation of `tests.fakes.installation`."""
    installation.install()


@pytest.fixture
def valkey(settings):
    """A Valkey of this test alone, named by REDIS_URL."""
    with running_valkey() as server:
        settings.REDIS_URL = server.url
        yield server


@pytest.fixture
def audited():
    """How many audit rows a block leaves: `with audited(1): ...`; the chain must be whole afterwards."""
    return _Audited


class _Audited:
    def __init__(self, expected: int) -> None:
        self._expected = expected

    def __enter__(self) -> None:
        self._before = audit.anchor().seq

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            assert audit.anchor().seq - self._before == self._expected
            assert audit.verify() is None
