import pytest

from control.audit import Actor
from control.services.overrides import SetOverride, release_override, set_override
from gateway.core.vocabulary import OverrideKind

ALICE = Actor("alice", "dashboard")


def put(reason="drain and restart", value="open"):
    wanted = SetOverride(kind=OverrideKind.BREAKER, target="b1", value=value, reason=reason, lifetime_s=600)
    return set_override(ALICE, wanted).key


def text(client, query=""):
    answer = client.get(f"/audit/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def test_overrides_and_the_log_are_listed_with_reason_and_end(signed_in, valkey):
    put("drain and restart")
    found = text(signed_in("vera"))
    assert "b1 forced open" in found
    assert "in force" in found
    assert found.count("drain and restart") == 2  # on top, and in the log
    assert "override set" in found


def test_an_undone_one_says_by_whom(signed_in, valkey):
    release_override(Actor("bob", "dashboard"), put())
    assert "by bob" in text(signed_in("vera"))


def test_it_can_be_narrowed(signed_in, valkey):
    put("needle in the hay")
    vera = signed_in("vera")
    assert "needle in the hay" in text(vera, "?q=needle")
    assert "needle in the hay" not in text(vera, "?q=nothing-like-it")
    assert "Nothing matches" in text(vera, "?actor=nobody")


def test_older_rows_are_a_page_away(signed_in, valkey):
    for n in range(60):
        put(f"reason number {n}")
    vera = signed_in("vera")
    first = text(vera)
    assert "Older" in first
    before = first.split("?before=")[1].split('"')[0].split("&")[0]
    assert "Newest" in text(vera, f"?before={before}")


@pytest.mark.parametrize(
    "query", ["?before=x", "?before=-1", "?before=" + "9" * 40, "?before=0", "?q=%00", "?q=" + "x" * 3000]
)
def test_nonsense_in_the_url_is_no_error(signed_in, valkey, query):
    text(signed_in("vera"), query)
