import json
from typing import Any

import pytest

from gateway.contract.snapshot import TierSpec
from gateway.core.policy import default_tiers
from gateway.faults import CallerError, CallerFault
from gateway.requests import body, hints
from gateway.requests.endpoints import ENDPOINTS

CHAT = ENDPOINTS["/v1/chat/completions"]
TIERS = {t.rank: TierSpec(policy=t) for t in default_tiers()}


def ask(value: Any, path: str = "/v1/chat/completions") -> body.Ask:
    return body.read(ENDPOINTS[path], json.dumps(value).encode())


def rebuilt(value: Any, path: str = "/v1/chat/completions", model: str = "m") -> Any:
    raw = json.dumps(value).encode() if not isinstance(value, bytes) else value
    endpoint = ENDPOINTS[path]
    return json.loads(body.rebuild(endpoint, body.read(endpoint, raw), raw, model))


def chat(**members: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}], **members}


@pytest.mark.parametrize(
    ("path", "value", "size", "flat"),
    [
        ("/v1/chat/completions", chat(), 2, 4),
        ("/v1/chat/completions", chat(messages=[{"role": "user", "content": "你好"}]), 6, 4),
        (
            "/v1/chat/completions",
            chat(messages=[{"role": "user", "content": [{"type": "text", "text": "abc"}]}]),
            3,
            4,
        ),
        (
            "/v1/chat/completions",
            chat(
                messages=[
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x" * 9999}}]}
                ]
            ),
            0,
            1004,
        ),
        ("/v1/chat/completions", chat(messages=[{"role": "a", "content": None, "tool_calls": [1]}]), 3, 4),
        ("/v1/chat/completions", chat(tools=[{"a": 1}]), 2 + 10, 4),
        ("/v1/completions", {"model": "m", "prompt": "hello"}, 5, 0),
        ("/v1/completions", {"model": "m", "prompt": ["ab", "c"]}, 3, 2),
        ("/v1/completions", {"model": "m", "prompt": [1, 2, 3]}, 0, 3),
        ("/v1/completions", {"model": "m", "prompt": [[1, 2], [3]]}, 0, 3),
        ("/v1/embeddings", {"model": "m", "input": [[1, 2], [3, 4]]}, 0, 4),
        ("/v1/embeddings", {"model": "m", "input": [{"type": "image_url"}]}, 0, 1000),
        ("/v1/responses", {"model": "m", "input": "hello", "instructions": "be kind"}, 12, 4),
        (
            "/v1/responses",
            {"model": "m", "input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}]},
            1,
            4,
        ),
        (
            "/v1/messages",
            {"model": "m", "messages": [{"role": "user", "content": "x"}], "system": "abc"},
            4,
            4,
        ),
        (
            "/v1/messages",
            {"model": "m", "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            0,
            1004,
        ),
        ("/v1/rerank", {"model": "m", "query": "qq", "documents": ["abc", {"text": "d"}]}, 8, 2),
        ("/v1/embeddings", {"model": "m", "input": ["", ""]}, 0, 2),
        ("/tokenize", {"prompt": "abc"}, 3, 0),
    ],
)
def test_what_a_prompt_weighs(path: str, value: Any, size: int, flat: int):
    asked = ask(value, path)
    assert (asked.text_bytes, asked.flat_tokens) == (size, flat)


@pytest.mark.parametrize(
    ("members", "bound"),
    [
        ({}, None),
        ({"max_tokens": None}, None),
        ({"max_tokens": 16}, 16),
        ({"max_tokens": 16.0}, 16),
        ({"max_completion_tokens": 9, "max_tokens": 16}, 16),
        ({"max_completion_tokens": 16, "max_tokens": 9}, 16),
        ({"max_tokens": 1, "n_predict": 900}, 900),
        ({"max_tokens": 1, "max_new_tokens": 900}, 900),
        ({"max_tokens": 1, "n_predict": -1}, None),
        ({"max_tokens": 16, "n_cmpl": 3}, 48),
        ({"max_output_tokens": 7}, 7),
        ({"max_tokens": 16, "n": 3}, 48),
        ({"max_tokens": 16, "best_of": 4}, 64),
        ({"max_tokens": 10**12}, 10**12),
    ],
)
def test_the_callers_bound_on_output_counts_all_choices(members: Any, bound: int | None):
    assert ask(chat(**members)).max_output_tokens == bound


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of"])
@pytest.mark.parametrize("bad", [0, -1, 1.5, "16", True, [], {}])
def test_a_count_that_is_none_is_named(name: str, bad: Any):
    with pytest.raises(CallerError) as caught:
        ask(chat(**{name: bad}))
    assert (caught.value.fault, caught.value.param) == (CallerFault.INVALID, name)
    assert name in caught.value.message


def test_too_many_choices_are_refused():
    with pytest.raises(CallerError, match="at most 128"):
        ask(chat(n=129))


def test_each_prompt_of_a_list_is_an_answer_of_its_own():
    """One seat for a thousand sequences would be no limit at all."""
    for prompts in (["a", "b", "c"], [[1, 2], [3], [4]]):
        asked = ask({"model": "m", "prompt": prompts, "max_tokens": 10, "n": 2}, "/v1/completions")
        assert asked.max_output_tokens == 60
    assert (
        ask({"model": "m", "prompt": [1] * 900, "max_tokens": 10}, "/v1/completions").max_output_tokens == 10
    )
    with pytest.raises(CallerError, match="43 prompts ask for 3 each") as caught:
        ask({"model": "m", "prompt": ["a"] * 43, "n": 3}, "/v1/completions")
    assert caught.value.param == "prompt"


def test_a_chat_is_streamed_with_usage_and_keeps_everything_else():
    sent = rebuilt(chat(temperature=0.5, stream_options={"x": 1}, extra={"deep": [1, {"a": None}]}))
    assert sent == chat(
        temperature=0.5,
        extra={"deep": [1, {"a": None}]},
        stream=True,
        stream_options={"x": 1, "include_usage": True},
    )
    assert rebuilt(chat(stream_options=None))["stream_options"] == {"include_usage": True}
    assert rebuilt(chat(), model="real-name")["model"] == "real-name"


def test_a_repeated_member_counts_as_its_last_here_and_at_the_backend():
    raw = b'{"model":"a","model":"m","messages":[],"max_tokens":5,"max_tokens":6}'
    asked = body.read(CHAT, raw)
    assert (asked.model, asked.max_output_tokens) == ("m", 6)
    sent = body.rebuild(CHAT, asked, raw, "m")
    assert sent.count(b'"model"') == sent.count(b'"max_tokens"') == 1
    assert json.loads(sent)["max_tokens"] == 6


def test_members_that_would_steer_the_engine_are_left_out():
    steering = {
        "priority": -1,
        "api_base": "http://x",
        "base_url": "y",
        "api_key": "z",
        "kv_transfer_params": {"remote_host": "169.254.169.254"},
        "bootstrap_host": "x",
        "rid": "somebody else's",
        "request_id": "somebody else's",
        "custom_logit_processor": "pickle",
        "lora_path": "another model",
        "id_slot": 0,
        "nvext": {"backend_instance_id": 1},
    }
    assert rebuilt(chat(**steering)) == rebuilt(chat())


def test_numbers_and_text_reach_the_backend_as_they_came():
    raw = '{"model":"m","messages":[],"seed":12345678901234567890123,"p":1e-7,"s":"\\u0041é\\n"}'.encode()
    sent = body.rebuild(CHAT, body.read(CHAT, raw), raw, "m")
    for part in (b'"seed":12345678901234567890123', b'"p":1e-7', '"s":"\\u0041é\\n"'.encode()):
        assert part in sent


@pytest.mark.parametrize(
    ("path", "streams"), [("/v1/responses", True), ("/v1/messages", True), ("/v1/embeddings", False)]
)
def test_only_chat_and_completions_get_stream_options(path: str, streams: bool):
    value = {"model": "m", "input": "x", "messages": []}
    sent = rebuilt(value, path)
    assert sent.get("stream", False) is streams
    assert "stream_options" not in sent


@pytest.mark.parametrize("option", [{"prompt_logprobs": 1}, {"use_beam_search": True}, {"best_of": 3}])
def test_options_that_no_engine_can_stream_are_sent_as_asked(option: Any):
    assert not ask(chat(**option)).streamable
    assert "stream" not in rebuilt(chat(**option))
    assert ask(chat(**option, stream=True)).streamable  # the caller hears the engine's own refusal
    assert ask(chat(prompt_logprobs=None)).streamable


def test_a_stream_is_not_asked_of_endpoints_that_have_none():
    assert not ask({"model": "m", "input": "x", "stream": True}, "/v1/embeddings").stream


@pytest.mark.parametrize(
    ("headers", "timeout_s"),
    [
        ({}, None),
        ({b"x-request-timeout-ms": b"1500"}, 1.5),
        ({b"x-request-timeout-ms": b"999999999"}, hints.MAX_TIMEOUT_S),
        ({b"x-stainless-read-timeout": b"600"}, 600.0),
        ({b"x-stainless-timeout": b"0.25"}, 0.25),
        ({b"x-stainless-read-timeout": b"nan"}, None),
        ({b"x-stainless-read-timeout": b"-1"}, None),
        ({b"x-stainless-timeout": b"0"}, None),
        ({b"x-request-timeout-ms": b"200", b"x-stainless-read-timeout": b"600"}, 0.2),
    ],
)
def test_how_long_the_caller_waits(headers: dict[bytes, bytes], timeout_s: float | None):
    assert hints.read(headers).timeout_s == timeout_s


@pytest.mark.parametrize("bad", [b"", b"0", b"-5", b"1.5", b"soon", b"9" * 30])
def test_our_own_deadline_header_must_make_sense(bad: bytes):
    with pytest.raises(CallerError) as caught:
        hints.read({b"x-request-timeout-ms": bad})
    assert caught.value.param == "x-request-timeout-ms"


@pytest.mark.parametrize(
    ("count", "is_retry"),
    [(b"0", False), (b"1", True), (b"007", True), (b"-1", False), (b"x", False), (b"", False)],
)
def test_what_counts_as_a_retry(count: bytes, is_retry: bool):
    assert hints.read({b"x-stainless-retry-count": count}).is_retry is is_retry


@pytest.mark.parametrize(
    ("wish", "granted", "tier", "ignored"),
    [
        (b"2", 0, 2, False),
        (b"P2", 1, 2, False),
        (b"p1", 1, 1, False),
        (b"batch-extraction", 0, 2, False),
        (b"0", 1, 1, True),
        (b"9", 0, 0, True),
        (b"", 1, 1, True),
        (b"\xff", 1, 1, True),
        ("٢".encode(), 0, 0, True),  # a digit elsewhere
    ],
)
def test_a_tier_may_be_lowered_only(wish: bytes, granted: int, tier: int, ignored: bool):
    assert hints.lowered_tier(wish, granted, TIERS) == (tier, ignored)


@pytest.mark.parametrize(
    ("header", "language"),
    [
        (b"zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (b"en-US,en;q=0.9,zh;q=0.8", "en"),
        (b"fr,de", "en"),
        (b"fr, zh;q=0.1", "zh"),
        (b"zh;q=0,en;q=0.1", "en"),
        (b"zh;q=x", "en"),
        (b"\xff\xfe", "en"),
        (b"ZH", "zh"),
    ],
)
def test_the_language_of_refusals(header: bytes, language: str):
    assert hints.language(header) == language
