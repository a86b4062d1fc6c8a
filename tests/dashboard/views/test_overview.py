import time

import pytest

from dashboard.stream.history import History
from dashboard.views.overview import chosen_pool, live_part, live_shell
from tests.fakes.frames import backfill, frame_at, publish
from tests.fakes.scenes import NOW, backend, frame, shedding, tenant, tier


def page(client, path="/"):
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_page_shows_the_newest_frame(signed_in, valkey):
    now = time.time()
    backfill(valkey, 120, 540.0, now)
    publish(valkey, frame_at(540.0, now))
    text = page(signed_in("vera"))
    assert "Shedding P2 for" in text
    assert "b4 is out. P0 healthy." in text
    assert "northwind-extract" in text
    assert 'data-chart="queue"' in text
    assert "is-stale" not in text


def test_before_the_first_frame_the_page_loads_and_says_what_is_missing(signed_in, valkey):
    text = page(signed_in("vera"))
    assert "Waiting for the first frame." in text
    assert "No frame yet" in text


def test_without_valkey_the_page_loads_and_says_since_when(signed_in):
    text = page(signed_in("vera"))
    assert "No live data since" in text
    assert "The gateways go on with their last snapshot" in text


def test_an_old_frame_is_never_shown_as_live(signed_in, valkey):
    publish(valkey, frame(at=time.time() - 60))
    text = page(signed_in("vera"))
    assert "is-stale" in text
    assert "Last known:" in text
    assert "No frame for 60" in text
    assert "Live " not in text.split('id="live-words"')[1].split("</span>")[0]


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("", "Overview of chat-70b"),
        ("?pool=embed-large", "Overview of embed-large"),
        ("?pool=gone", "Overview of chat-70b"),
        ("?pool=all", "Overview ·"),
    ],
)
def test_the_pool_is_chosen_in_the_url(signed_in, valkey, query, title):
    publish(valkey, frame_at(100.0, time.time()))
    assert f"<title>{title}" in page(signed_in("vera"), f"/{query}")


@pytest.mark.parametrize("query", ["?pool=&by=&range=", "?by=x&range=9y", "?pool=%00", "?pool=" + "x" * 3000])
def test_nonsense_in_the_url_shows_the_plain_page(signed_in, valkey, query):
    publish(valkey, frame_at(100.0, time.time()))
    assert "Overview of chat-70b" in page(signed_in("vera"), f"/{query}")


def test_only_those_who_may_override_get_the_levers(signed_in, valkey):
    publish(valkey, frame_at(100.0, time.time()))
    assert 'class="may-override"' in page(signed_in("omar"))
    assert 'class="may-override"' not in page(signed_in("vera"))


def test_names_render_as_text(signed_in, valkey):
    evil = '<img src=x onerror="alert(1)">'
    publish(
        valkey,
        frame(
            at=time.time(),
            tiers=(tier(0, name=evil),),
            backends=(backend(evil),),
            tenants=(tenant(evil), tenant("\u202eright to left", pool="chat"), tenant("emoji \U0001f525")),
        ),
    )
    text = page(signed_in("vera"))
    assert "<img" not in text
    assert "&lt;img" in text
    assert "\U0001f525" in text


def test_history_has_one_value_per_time_for_each_line_of_each_figure(signed_in, valkey):
    now = time.time()
    backfill(valkey, 90, 540.0, now, skip=range(40, 50))
    told = signed_in("vera").get("/live/history/?pool=chat-70b").json()
    keys = {rule["key"] for figure in told["figures"] for rule in figure["meta"]["series"]}
    assert keys == set(told["values"])
    assert {len(column) for column in told["values"].values()} == {len(told["at"])}
    assert None in told["values"]["P0.waiting"]
    assert [f["meta"]["name"] for f in told["figures"]] == ["queue", "drops", "rate429", "seats", "kv"]


def test_history_of_five_minutes_is_shorter(signed_in, valkey):
    backfill(valkey, 600, 540.0, time.time())
    told = signed_in("vera").get("/live/history/?range=5m").json()
    assert 295 <= len(told["at"]) <= 302


def test_history_without_a_frame_is_empty_and_no_error(signed_in, valkey):
    assert signed_in("vera").get("/live/history/").json() == {"figures": [], "at": [], "values": {}}


def recent(*frames):
    history = History()
    for each in frames:
        history.add(each, b"{}", "1-0")
    return history.recent()


def test_the_part_that_a_frame_renews_has_every_panel_once():
    markup = live_part(recent(frame(at=NOW)), "chat", "shed").decode()
    for name in (
        "overrides",
        "foot",
        "notices",
        "verdict",
        "tiles",
        "valve",
        "queues",
        "marks",
        "backends",
        "tenants",
        "events",
    ):
        assert markup.count(f' id="{name}"') == 1, name


def test_unknown_is_a_word_on_every_panel_and_never_zero():
    silent = backend(
        "b1", kv_ratio=None, kv_use_ratio=None, kv_source=None, engine_waiting=None, preemptions_per_s=None
    )
    markup = live_part(recent(frame(backends=(silent,))), "chat", "shed").decode()
    assert markup.count("unknown") == 5  # gate, legend, and three of the card
    assert (
        "no answers" in live_part(recent(frame(tiers=(tier(0, ttft_p95_s=None),))), "chat", "shed").decode()
    )


@pytest.mark.parametrize(
    "whole",
    [
        frame(tiers=(), backends=(), tenants=(), gateways=()),
        frame(backends=()),
        frame(tiers=()),
        frame(backends=tuple(backend(f"b{i}") for i in range(50)), backends_left_out=7),
        frame(
            tiers=tuple(shedding(r, 9.0) for r in (0, 1, 2)),
            tenants=tuple(tenant(f"t{i}") for i in range(20)),
        ),
    ],
    ids=["nothing", "no backends", "no tiers", "fifty backends", "all shed"],
)
@pytest.mark.parametrize("pool", ["chat", ""])
def test_every_shape_of_frame_renders(whole, pool):
    assert b'id="verdict"' in live_part(recent(whole), pool, "use")


def test_other_pages_renew_header_foot_and_notices_only():
    markup = live_shell(recent(frame())).decode()
    assert 'id="overrides"' in markup
    assert 'id="verdict"' not in markup


def test_without_any_pool_all_are_shown():
    assert chosen_pool("x", ()) == ""
