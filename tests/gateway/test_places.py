"""REDIS_URL -> where Valkey is."""

import pytest

from gateway.places import Place, read_place


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://valkey", Place(host="valkey")),
        (
            "rediss://u%40:p%3A@valkey:1/2",
            Place(host="valkey", port=1, is_tls=True, user="u@", password="p:", database=2),
        ),
        ("redis://:word@valkey/?db=3", Place(host="valkey", password="word", database=3)),
        ("unix:///run/v.sock?db=1", Place(path="/run/v.sock", database=1)),
    ],
)
def test_these_are_places(url, place):
    assert read_place(url) == place


@pytest.mark.parametrize(
    "url", ["", "valkey:6379", "http://valkey", "redis:///0", "unix:", "redis://v/x", "redis://v:x"]
)
def test_these_are_not(url):
    with pytest.raises(ValueError, match=r".+"):
        read_place(url)
