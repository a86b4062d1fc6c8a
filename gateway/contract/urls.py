"""Which backend and metrics URLs are allowed: http and https, no credentials in them, never link-local or metadata.

A name may still resolve to a refused address later: that is checked where it is connected to (`addresses`).
"""

import re

from gateway.contract.addresses import refused_address

MAX_URL_CHARS = 2048
_URL = re.compile(
    r"^(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?P<rest>[?#].*)?$"
)
_AUTHORITY = re.compile(
    r"^(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?$"
)
# Metadata services that are known by name.
_METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data"})


def url_problem(url: str, *, allow_private: bool = True) -> str | None:
    """Why a backend's URL is refused; None where it is good. `unix:///path` is a backend on this host's socket."""
    if len(url) > MAX_URL_CHARS or not url.isascii() or any(c <= " " for c in url):
        return "is too long or has spaces, control or non-ASCII characters"
    match = _URL.match(url)
    if match is None:
        return "is not scheme://host"
    if match["scheme"] == "unix":
        is_path = not match["authority"] and len(match["path"]) > 1 and not match["rest"]
        return None if is_path else "is not unix:///path"
    if match["scheme"] not in {"http", "https"}:
        return "must begin with http:// or https://"
    return _authority_problem(match["authority"], match["rest"], allow_private=allow_private)


def _authority_problem(authority: str, rest: str | None, *, allow_private: bool) -> str | None:
    if "@" in authority:
        return "may not contain credentials: name them in the credential reference"
    match = _AUTHORITY.match(authority)
    if match is None or int(match["port"] or 1) not in range(1, 65_536):
        return "has no valid host and port"
    if rest is not None:
        return "may not have a query or a fragment"
    return _host_problem(match["v6"] or match["host"], allow_private=allow_private)


def _host_problem(host: str, *, allow_private: bool) -> str | None:
    if host.lower().rstrip(".") in _METADATA_NAMES:
        return "is link-local or a metadata service"
    if ":" in host or _looks_numeric(host):
        return _literal_problem(host, allow_private=allow_private)
    return None


def _literal_problem(host: str, *, allow_private: bool) -> str | None:
    try:
        return refused_address(host, allow_private=allow_private)
    except ValueError:
        return "is neither a name nor an IP address in its usual form"


def _looks_numeric(host: str) -> bool:
    """True for what a resolver may read as an IPv4 address, in every notation (169.254.169.254, 2852039166, 0xa9...)."""
    last = host.rstrip(".").rpartition(".")[2].lower()
    return last.isdigit() or last.startswith("0x")
