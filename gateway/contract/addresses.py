"""Which network addresses a configured URL may lead to: the same answer when it is saved and when it is connected.

Refused always: link-local (where clouds serve instance credentials), the metadata addresses outside of it, multicast,
unspecified and reserved ones. Loopback and private ranges are where engines usually live: allowed by a setting.
"""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

# Metadata services outside link-local: AWS over IPv6, Alibaba Cloud, Azure's wire server, Oracle Cloud.
_METADATA = frozenset(
    ip_address(text) for text in ("fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
)
_NAT64 = IPv6Network("64:ff9b::/96")


def refused_address(text: str, *, allow_private: bool) -> str | None:
    """Why nothing may be sent to this address, or None when it is allowed.

    Args:
        text: an IPv4 or IPv6 address; a zone (`%eth0`) is ignored.
        allow_private: whether loopback, private and shared ranges are allowed.

    Raises:
        ValueError: when it is not an address.
    """
    address = _plain(ip_address(text.partition("%")[0]))
    if address in _METADATA or address.is_link_local:
        return "link-local and metadata addresses are never allowed"
    is_reserved = address.is_reserved and (address.version == 4 or not address.is_private)  # IPv4
    if address.is_multicast or address.is_unspecified or is_reserved:
        return "multicast, unspecified and reserved addresses are never allowed"
    if not allow_private and not address.is_global:
        return "private addresses are not allowed by the settings"
    return None


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address inside an IPv6 one (mapped, 6to4, NAT64): routers deliver to that."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
