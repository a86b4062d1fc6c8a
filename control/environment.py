"""What the environment says, turned into what Django and Celery want; and which secrets a process can't start without.

Reading is lenient (a command that needs no secret runs without one), starting is not: `demand_secrets`.
"""

import contextlib
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

UNSET = "not set"  # Django refuses to be loaded with an empty SECRET_KEY
MIN_SECRET_CHARS = 16
FAMILIAR = (
    "changeme",
    "change-me",
    "secret",
    "insecure",
    "default",
    "example",
    "password",
    "django-insecure",
)
BUSY_TIMEOUT_S = 5
# A server that vanished without a word is noticed within some seconds, never waited for as long as TCP would.
_POSTGRES_OPTIONS = {
    "connect_timeout": 3,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds
}
_POSTGRES_SCHEMES = ("postgres", "postgresql")


def read_env_file(path: Path) -> dict[str, str]:
    """NAME=value lines of a file; empty where there is no such file or it can't be read."""
    values: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            name, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                values[name.strip()] = value.strip()
    return values


def read_setting(name: str, kept: dict[str, str], default: str = "") -> str:
    """A variable, or the content of the file that NAME_FILE names, or what `make up` keeps, or the default.

    Raises:
        ImproperlyConfigured: the file can't be read, or both are set.
    """
    path = os.environ.get(f"{name}_FILE", "")
    if path and os.environ.get(name):
        raise ImproperlyConfigured(f"{name}: set it or {name}_FILE, not both")
    if path:
        try:
            return Path(path).read_text().strip()
        except OSError as fault:
            raise ImproperlyConfigured(f"{name}_FILE: can't be read ({type(fault).__name__})") from None
    return os.environ.get(name) or kept.get(name) or default


def secret_problems(secrets: dict[str, str]) -> tuple[str, ...]:
    """One line per secret that is missing, too short or well known; the values are never in it."""
    found = []
    for variable, value in secrets.items():
        if value in ("", UNSET):
            found.append(f"{variable} is not set: give it {MIN_SECRET_CHARS} random characters or more")
        elif len(value.encode()) < MIN_SECRET_CHARS or _is_familiar(value):
            found.append(
                f"{variable} is too short or well known: {MIN_SECRET_CHARS} random characters are needed"
            )
    return tuple(found)


def _is_familiar(value: str) -> bool:
    """As the gateway judges it: both planes share the pepper and the signing key."""
    return value.lower().startswith(FAMILIAR) or len(set(value)) == 1


def demand_secrets() -> None:
    """End the process with one line on stderr where a secret is missing or no secret.

    Raises:
        SystemExit: with code 2.
    """
    problems = secret_problems(own_secrets())
    if problems:
        sys.stderr.write(f"sluicegate: {problems[0]}\n")
        raise SystemExit(2)


def own_secrets() -> dict[str, str]:
    """The secrets that are configured, by variable."""
    return {
        "SLUICEGATE_SECRET_KEY": settings.SECRET_KEY,
        "SLUICEGATE_KEY_PEPPER": settings.KEY_PEPPER,
        "SLUICEGATE_SIGNING_KEY": settings.SIGNING_KEY,
    }


def database(url: str) -> dict[str, Any]:
    """Django's database settings for `sqlite:///path` or `postgresql://user:password@host:port/name?option=value`.

    Raises:
        ImproperlyConfigured: the URL is of another kind, or incomplete. The message never contains the password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ImproperlyConfigured(f"DATABASE_URL: {error}") from None
    name = unquote(parts.path[1:])
    if parts.scheme not in ("sqlite", *_POSTGRES_SCHEMES):
        raise ImproperlyConfigured(
            f"DATABASE_URL: expected sqlite:///path or postgresql://..., not {parts.scheme or url!r}"
        )
    if not name:
        raise ImproperlyConfigured("DATABASE_URL: the path or the name of the database is missing")
    if parts.scheme == "sqlite":
        return _sqlite(name)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or ""),
        "PORT": port or "",
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {**_POSTGRES_OPTIONS, **dict(parse_qsl(parts.query))},
    }


def _sqlite(path: str) -> dict[str, Any]:
    """Write-ahead log (readers never wait for the writer) and writing transactions that take their lock at once."""
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": BUSY_TIMEOUT_S,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;",
        },
    }


def broker(redis_url: str) -> str:
    """Celery's broker URL for `redis://`, `rediss://` or `unix:///path`.

    Raises:
        ImproperlyConfigured: the URL is of another kind.
    """
    parts = urlsplit(redis_url)
    if parts.scheme in ("redis", "rediss") and parts.hostname:
        return redis_url
    if parts.scheme == "unix" and parts.path:
        database_number = dict(parse_qsl(parts.query)).get("db", "0")
        return f"redis+socket://{parts.path}?virtual_host={database_number}"
    raise ImproperlyConfigured(
        f"REDIS_URL: expected redis://host or unix:///path, not {parts.scheme or redis_url!r}"
    )
