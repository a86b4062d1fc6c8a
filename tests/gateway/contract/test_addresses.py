"""Which addresses nothing may be sent to (A39)."""

import pytest

from gateway.contract.addresses import refused_address


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "::1", "fd12::1", "8.8.8.8", "2606:4700::1111"])
def test_engines_may_live_here(address):
    assert refused_address(address, allow_private=True) is None


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "::1", "fd12::1", "100.64.0.1"])
def test_private_addresses_need_the_setting(address):
    assert refused_address(address, allow_private=False) is not None


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "100.100.100.200",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::",
        "0.0.0.0",  # noqa: S104  # refused, not bound
        "224.0.0.1",
        "240.0.0.1",
    ],
)
def test_these_are_never_allowed(address):
    assert refused_address(address, allow_private=True) is not None


def test_what_is_no_address_is_an_error():
    with pytest.raises(ValueError, match="appear"):
        refused_address("engine", allow_private=True)
