"""Which backend and metrics URLs are allowed: http and https, no credentials in them, never link-local or metadata.

Used where an address is saved (control) and again where it is connected to (gateway), because a name may resolve to
anything later. Pure: resolving is somebody else's work.
"""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address

MAX_URL_CHARS = 2048
_URL = re.compile(
    r"^(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?P<rest>[?#].*)?$"
)
_AUTHORITY = re.compile(
    r"^(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?$"
)
# Metadata services of the large clouds: one is IPv6, and some are known by name.
_METADATA_ADDRESSES = frozenset(
    {IPv6Address("fd00:ec2::254"), IPv4Address("100.100.100.200"), IPv4Address("192.0.0.192")}
)
_METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data"})


def address_problem(address: str, *, allow_private: bool) -> str | None:
    """Why a resolved IP address may not be connected to; None where it may."""
    try:
        ip: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    except ValueError:
        return "is not an IP address"
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if ip.is_link_local or ip in _METADATA_ADDRESSES:
        return "is link-local or a metadata service"
    if ip.is_multicast or ip.is_unspecified or ip == IPv4Address("255.255.255.255"):
        return "is not the address of one host"
    if not allow_private and not ip.is_global:
        return "is private, and private backends are not allowed"
    return None


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
        return address_problem(host, allow_private=allow_private)
    return None


def _looks_numeric(host: str) -> bool:
    """True for what a resolver may read as an IPv4 address, in every notation (169.254.169.254, 2852039166, 0xa9...)."""
    last = host.rstrip(".").rpartition(".")[2].lower()
    return last.isdigit() or last.startswith("0x")
