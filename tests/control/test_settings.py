"""Start-up as a person sees it: real processes, one clear line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(__file__).parents[2]
GOOD = {
    "SLUICEGATE_SECRET_KEY": "kq" * 30,
    "SLUICEGATE_KEY_PEPPER": "pq" * 20,
    "SLUICEGATE_SIGNING_KEY": "sq" * 20,
}


def run(*words, state, **variables):
    environment = {"PATH": os.environ["PATH"], "SLUICEGATE_STATE_DIR": str(state), **GOOD, **variables}
    return subprocess.run(  # noqa: S603  # our own command
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


SERVE = ("-c", "import control.asgi")


@pytest.mark.parametrize("variable", ["SLUICEGATE_SECRET_KEY", "SLUICEGATE_KEY_PEPPER"])
def test_the_server_refuses_to_start_without_a_secret(tmp_path, variable):
    done = run(*SERVE, state=tmp_path, **{variable: ""})
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"sluicegate: {variable} is not set")


WRONG = {
    "DATABASE_URL of an unknown kind": {"DATABASE_URL": "oracle://x/y"},
    "DATABASE_URL where nobody answers": {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"},
    "REDIS_URL": {"REDIS_URL": "http://x"},
    "SLUICEGATE_PUBLIC_URL": {"SLUICEGATE_PUBLIC_URL": "example.org"},
    "SLUICEGATE_DEBUG in public": {
        "SLUICEGATE_DEBUG": "1",
        "SLUICEGATE_PUBLIC_URL": "http://gate.example.org",
    },
}


@pytest.mark.parametrize(("said", "variables"), WRONG.items(), ids=WRONG)
def test_the_server_names_the_variable_that_is_wrong(tmp_path, said, variables):
    done = run(*SERVE, state=tmp_path, **variables)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"sluicegate: {said.split()[0]}")


@pytest.mark.parametrize("words", [SERVE, ("manage.py", "migrate")], ids=["server", "command"])
def test_a_file_that_is_no_database_is_said_in_one_line(tmp_path, words):
    (tmp_path / "notes.txt").write_text("some words, more than a header's length of them " * 3)
    done = run(*words, state=tmp_path, DATABASE_URL=f"sqlite:///{tmp_path}/notes.txt")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr == "sluicegate: DATABASE_URL: the database can't be used: file is not a database\n"


@pytest.mark.parametrize("what", ["worker", "beat"])
def test_workers_and_beat_name_the_variable_that_is_wrong(tmp_path, what):
    done = run("-m", "celery", "-A", "control.celery", what, state=tmp_path, DATABASE_URL="oracle://x/y")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("sluicegate: DATABASE_URL: expected sqlite:///path or postgresql://")


def test_the_server_refuses_a_database_that_lacks_migrations(tmp_path):
    done = run(*SERVE, state=tmp_path)
    assert done.returncode == 2
    assert "manage.py migrate" in done.stderr


def test_a_command_says_in_one_line_that_the_database_is_away(tmp_path):
    done = run("manage.py", "migrate", state=tmp_path, DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("sluicegate: DATABASE_URL")


def test_checks_for_deployment_find_nothing_behind_https(tmp_path):
    secret = "".join(chr(97 + i % 26) for i in range(60))
    done = run(
        "manage.py", "check", "--deploy", "--fail-level", "WARNING", state=tmp_path,
        SLUICEGATE_PUBLIC_URL="https://gate.example.org", SLUICEGATE_SECRET_KEY=secret,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_cookies_are_bound_to_the_host_behind_https(tmp_path):
    script = (
        "import os; os.environ['DJANGO_SETTINGS_MODULE']='control.settings'\n"
        "from django.conf import settings as s\n"
        "print(s.SESSION_COOKIE_NAME, s.CSRF_COOKIE_NAME, s.SESSION_COOKIE_SECURE, s.SECURE_HSTS_SECONDS > 0)"
    )
    done = run("-c", script, state=tmp_path, SLUICEGATE_PUBLIC_URL="https://gate.example.org")
    assert done.stdout.split() == ["__Host-sluicegate-session", "__Host-sluicegate-csrf", "True", "True"]


def test_no_migration_is_missing(tmp_path):
    done = run("manage.py", "makemigrations", "--check", "--dry-run", state=tmp_path)
    assert done.returncode == 0, done.stdout


def test_the_content_policy_has_no_unsafe_word():
    words = [word for values in settings.CONTENT_SECURITY_POLICY["DIRECTIVES"].values() for word in values]
    assert not [word for word in words if "unsafe" in word or "*" in word or word.startswith("http")]


def test_logs_are_one_json_object_a_line(tmp_path):
    script = (
        "import os; os.environ['DJANGO_SETTINGS_MODULE']='control.settings'\n"
        "import django; django.setup()\n"
        "import logging; logging.getLogger('django.request').error('two\\nlines %s', 'x')"
    )
    done = run("-c", script, state=tmp_path)
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["event"] == "two\nlines x"


def test_the_documentation_lists_exactly_the_variables_that_are_read():
    source = (ROOT / "control" / "settings.py").read_text()
    read = set(re.findall(r'(?:_setting|_flag|environ\.get)\(\s*"(\w+)"', source))
    told = set(
        re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "settings-control.md").read_text(), re.MULTILINE)
    )
    assert told == read
