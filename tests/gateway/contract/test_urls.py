"""Which backend URLs are allowed (A39)."""

import pytest

from gateway.contract.urls import url_problem


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9101",
        "https://engine.example/v1",
        "http://engine_1:8000/",
        "http://[::1]:80",
        "http://8.8.8.8",
        "unix:///run/engine.sock",
    ],
)
def test_a_good_url_has_no_problem(url):
    assert url_problem(url) is None


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "scheme://host"),
        ("engine:8000", "scheme://host"),
        ("http://" + "a" * 2048, "too long"),
        ("http://a b", "spaces"),
        ("http://ü", "non-ASCII"),
        ("file:///etc/passwd", "http:// or https://"),
        ("gopher://x", "http:// or https://"),
        ("http://", "no valid host"),
        ("http://user:password@engine", "credentials"),
        ("http://engine:0", "no valid host and port"),
        ("http://engine:70000", "no valid host and port"),
        ("http://engine?x=1", "query"),
        ("http://engine#x", "query or a fragment"),
        ("http://169.254.169.254/", "metadata"),
        ("http://[fe80::1]/", "metadata"),
        ("http://[::ffff:169.254.169.254]", "metadata"),
        ("http://metadata.google.internal.", "metadata"),
        ("http://2852039166", "usual form"),
        ("http://0xa9fea9fe", "usual form"),
        ("unix://host/path", "unix:///path"),
        ("unix:///", "unix:///path"),
        ("unix:///a?b", "unix:///path"),
    ],
)
def test_every_other_url_is_refused_with_the_reason(url, why):
    problem = url_problem(url)
    assert problem is not None
    assert why in problem


def test_private_addresses_are_refused_where_they_are_not_allowed():
    assert url_problem("http://10.0.0.1", allow_private=False) is not None
    assert url_problem("http://8.8.8.8", allow_private=False) is None
    assert url_problem("http://engine", allow_private=False) is None  # resolved where it is connected to
