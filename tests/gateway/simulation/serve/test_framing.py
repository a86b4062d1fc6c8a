"""Frames, byte for byte as the real engines send them."""

import json
import random

import pytest

from gateway.simulation.serve import wire
from gateway.simulation.serve.framing import DONE, Dialect, Framing, error_fields, event

DICE = random.Random


def framing(dialect=Dialect.VLLM, *, is_chat=True, **body):
    base = {"messages": [{"role": "user", "content": "hi"}]} if is_chat else {"prompt": "hi"}
    asked = wire.read(json.dumps({**base, **body}).encode(), is_chat=is_chat, dice=DICE(1))
    return Framing(dialect=dialect, asked=asked, answer_id="chatcmpl-sim0", created=7, model="tiny")


def frames(made):
    raw = (
        made.opening()
        + b"".join(made.token(index) for index in range(len(made.asked.pieces)))
        + made.closing()
    )
    assert raw.endswith(DONE)
    return [
        json.loads(part.removeprefix(b"data: ")) for part in raw.removesuffix(DONE).split(b"\n\n") if part
    ]


def test_vllm_finishes_in_the_last_content_chunk():
    found = frames(framing(max_tokens=2))
    assert [frame["choices"][0]["finish_reason"] for frame in found] == [None, None, "length"]
    assert found[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all(frame["choices"][0]["delta"]["content"] for frame in found[1:])


def test_llama_cpp_finishes_in_a_chunk_of_its_own():
    found = frames(framing(Dialect.LLAMA_CPP, max_tokens=2))
    assert [frame["choices"][0]["finish_reason"] for frame in found] == [None, None, None, "length"]
    assert found[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert found[-1]["choices"][0]["delta"] == {}


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("is_chat", [True, False])
def test_usage_comes_last_with_empty_choices_and_only_if_asked(dialect, is_chat):
    asked = frames(framing(dialect, is_chat=is_chat, max_tokens=3, stream_options={"include_usage": True}))
    assert asked[-1]["choices"] == []
    assert asked[-1]["usage"]["completion_tokens"] == 3
    assert all("usage" not in frame for frame in asked[:-1])
    assert all("usage" not in frame for frame in frames(framing(dialect, is_chat=is_chat, max_tokens=3)))


def test_usage_may_be_told_in_every_chunk():
    found = frames(framing(max_tokens=2, stream_options={"continuous_usage_stats": True}))
    assert [frame["usage"]["completion_tokens"] for frame in found] == [0, 1, 2]


def test_a_completion_has_text_and_no_role_chunk():
    found = frames(framing(is_chat=False, max_tokens=2))
    assert len(found) == 2
    assert {frame["object"] for frame in found} == {"text_completion"}
    assert all(frame["choices"][0]["text"] for frame in found)


def test_a_tool_call_names_itself_once_and_its_arguments_join_to_json():
    tool = {"function": {"name": "weather", "parameters": {"properties": {"city": {"type": "string"}}}}}
    found = frames(framing(tools=[tool]))
    calls = [frame["choices"][0]["delta"]["tool_calls"][0] for frame in found[1:]]
    assert calls[0]["function"]["name"] == "weather"
    assert calls[0]["id"].startswith("call_")
    assert all("name" not in call["function"] for call in calls[1:])
    assert set(json.loads("".join(call["function"]["arguments"] for call in calls))) == {"city"}
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("dialect", Dialect)
def test_the_whole_answer_says_what_the_stream_says(dialect):
    made = framing(dialect, max_tokens=5)
    whole = json.loads(made.whole())
    text = "".join(frame["choices"][0]["delta"].get("content") or "" for frame in frames(made))
    assert whole["choices"][0]["message"]["content"] == text
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["usage"] == made.usage(5)


def test_the_whole_answer_of_a_tool_call_has_no_content():
    tool = {"function": {"name": "weather", "parameters": {}}}
    message = json.loads(framing(tools=[tool]).whole())["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"][0]["function"] == {"name": "weather", "arguments": "{}"}


def test_an_answer_that_ends_by_itself_says_stop():
    assert framing().finish_reason() == "stop"


def test_several_choices_are_counted_as_one():
    made = framing(max_tokens=2, n=3)
    assert [choice["index"] for choice in frames(made)[0]["choices"]] == [0, 1, 2]
    assert json.loads(made.whole())["usage"]["completion_tokens"] == 2


def test_errors_have_the_engines_own_shape():
    assert error_fields(Dialect.VLLM, 503, "busy")["error"]["type"] == "Service Unavailable"
    assert error_fields(Dialect.LLAMA_CPP, 503, "busy") == {
        "error": {"code": 503, "message": "busy", "type": "unavailable_error"}
    }
    assert event({"a": 1}) == b'data: {"a":1}\n\n'
