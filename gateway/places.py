"""REDIS_URL -> where Valkey is."""

from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct

DEFAULT_PORT = 6379


class Place(Struct, frozen=True, kw_only=True):
    """Where Valkey is, as REDIS_URL says it."""

    path: str = ""  # of a Unix socket
    host: str = ""
    port: int = DEFAULT_PORT
    is_tls: bool = False
    user: str = ""
    password: str = ""
    database: int = 0


def read_place(url: str) -> Place:
    """Read `redis://`, `rediss://` or `unix:///path`, with `user:password@` and a database number.

    Raises:
        ValueError: it is none of these. The text never contains the password.
    """
    parts = urlsplit(url)
    number = parse_qs(parts.query).get("db", [""])[0]
    if parts.scheme == "unix":
        if not parts.path:
            raise ValueError("is not unix:///path")
        where = Place(path=unquote(parts.path), database=_number(number))
    elif parts.scheme in {"redis", "rediss"} and parts.hostname:
        where = Place(
            host=parts.hostname,
            port=parts.port or DEFAULT_PORT,
            is_tls=parts.scheme == "rediss",
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=_number(number or parts.path.strip("/")),
        )
    else:
        raise ValueError("is not redis://host, rediss://host or unix:///path")
    return where


def _number(text: str) -> int:
    if not text:
        return 0
    if not text.isdigit():
        raise ValueError("has no number as its database")
    return int(text)
