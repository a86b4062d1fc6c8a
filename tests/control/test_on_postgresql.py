"""The tests of tables, services, audit and publishing once more, on a real PostgreSQL, in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.postgresql import NoPostgresql, running_postgresql

ROOT = Path(__file__).parents[2]
PARTS = ("test_models.py", "test_audit.py", "publishing", "services", "selectors", "test_commands.py")


def test_everything_that_touches_tables_holds_on_postgresql_too():
    try:
        with running_postgresql() as url:
            done = subprocess.run(  # noqa: S603  # our own command
                [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *_paths()],
                cwd=ROOT,
                env={**os.environ, "DATABASE_URL": url},
                capture_output=True,
                text=True,
                timeout=540,
                check=False,
            )
    except NoPostgresql as reason:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"NOT TESTED ON POSTGRESQL: {reason}")
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout


def test_the_other_process_really_is_on_postgresql():
    """Guards the test above: a DATABASE_URL that is ignored would make it pass on SQLite."""
    script = (
        "import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'control.settings'\n"
        "from django.db import connection; print(connection.vendor)"
    )
    done = subprocess.run(  # noqa: S603  # our own command
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "postgresql"


def _paths() -> list[str]:
    return [str(path) for part in PARTS if (path := Path(__file__).parent / part).exists()]
