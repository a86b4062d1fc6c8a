import json
from typing import Any

import pytest

from gateway.aggregate import NoAnswerError, for_dialect
from gateway.sse import Dialect

BASE = {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "m", "system_fingerprint": "fp"}


def joined(dialect: Dialect, *payloads: Any) -> Any:
    answer = for_dialect(dialect)
    for payload in payloads:
        answer.take(payload if isinstance(payload, bytes) else json.dumps(payload).encode())
    return json.loads(answer.answer())


def chunk(delta: dict[str, Any], finish: str | None = None, index: int = 0, **choice: Any) -> dict[str, Any]:
    return {**BASE, "choices": [{"index": index, "delta": delta, "finish_reason": finish, **choice}]}


def chat(*chunks: Any) -> Any:
    return joined(Dialect.CHAT, *chunks)


def test_content_is_joined_and_usage_is_the_engines():
    usage = {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 1},
    }
    whole = chat(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk({}, "stop"),
        {**BASE, "choices": [], "usage": usage},
    )
    assert whole == {
        **BASE,
        "object": "chat.completion",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello"}}
        ],
        "usage": usage,
    }


def test_several_choices_are_kept_apart_and_in_order():
    whole = chat(
        chunk({"role": "assistant", "content": "b"}, index=1),
        chunk({"role": "assistant", "content": "a"}),
        chunk({"content": "B"}, "stop", index=1),
        chunk({"content": "A"}, "length"),
    )
    assert [(c["index"], c["message"]["content"], c["finish_reason"]) for c in whole["choices"]] == [
        (0, "aA", "length"),
        (1, "bB", "stop"),
    ]


def test_tool_calls_are_joined_by_index_and_lose_it():
    whole = chat(
        chunk({"role": "assistant", "content": ""}),
        chunk(
            {
                "tool_calls": [
                    {"index": 0, "id": "t1", "type": "function", "function": {"name": "add", "arguments": ""}}
                ]
            }
        ),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]}),
        chunk(
            {
                "tool_calls": [
                    {
                        "index": 1,
                        "id": "t2",
                        "type": "function",
                        "function": {"name": "sub", "arguments": "{}"},
                    }
                ]
            }
        ),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}),
        chunk({}, "tool_calls"),
    )
    message = whole["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"] == [
        {"id": "t1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}},
        {"id": "t2", "type": "function", "function": {"name": "sub", "arguments": "{}"}},
    ]


def test_two_parts_of_one_tool_call_in_one_chunk_are_joined():
    whole = chat(
        chunk(
            {
                "tool_calls": [
                    {"index": 0, "id": "t", "function": {"name": "f", "arguments": "{"}},
                    {"index": 0, "function": {"arguments": "}"}},
                ]
            },
            "tool_calls",
        ),
    )
    assert whole["choices"][0]["message"]["tool_calls"] == [
        {"id": "t", "function": {"name": "f", "arguments": "{}"}}
    ]


def test_repeated_ids_and_names_are_taken_once():
    part = {"index": 0, "id": "t", "type": "function", "function": {"name": "f", "arguments": "x"}}
    whole = chat(
        chunk({"role": "assistant", "tool_calls": [part]}),
        chunk({"role": "assistant", "tool_calls": [part]}, "stop"),
    )
    assert whole["choices"][0]["message"]["tool_calls"][0] == {
        "id": "t",
        "type": "function",
        "function": {"name": "f", "arguments": "xx"},
    }


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "refusal"])
def test_other_texts_are_joined_too(name: str):
    whole = chat(chunk({"role": "assistant", name: "a"}), chunk({name: "b"}), chunk({"content": "c"}, "stop"))
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": "c", name: "ab"}


def test_logprobs_are_joined():
    def logprobs(token: str) -> dict[str, Any]:
        return {
            "content": [{"token": token, "logprob": -0.5, "bytes": None, "top_logprobs": []}],
            "refusal": None,
        }

    whole = chat(
        chunk({"content": "a"}, logprobs=logprobs("a")),
        chunk({"content": "b"}, logprobs=logprobs("b")),
        chunk({}, "stop", logprobs=None),
    )
    assert [t["token"] for t in whole["choices"][0]["logprobs"]["content"]] == ["a", "b"]


def test_members_of_engines_survive():
    whole = chat(
        {**chunk({"content": "a"}), "service_tier": None, "prompt_token_ids": [1, 2]},
        {**chunk({}, "stop", stop_reason=7), "service_tier": "x", "timings": {"n": 1}, "usage": None},
    )
    assert whole["timings"] == {"n": 1}
    assert whole["service_tier"] == "x"
    assert whole["prompt_token_ids"] == [1, 2]
    assert whole["choices"][0]["stop_reason"] == 7
    assert "usage" not in whole


def test_completions_join_text_and_logprobs():
    def piece(text: str, finish: str | None = None) -> dict[str, Any]:
        logprobs = {
            "tokens": [text],
            "token_logprobs": [-1.0],
            "top_logprobs": [{text: -1.0}],
            "text_offset": [0],
        }
        choice = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}
        return {"id": "x", "object": "text_completion", "choices": [choice]}

    whole = joined(Dialect.COMPLETIONS, piece("a"), piece("b", "length"))
    choice = whole["choices"][0]
    assert (whole["object"], choice["text"], choice["finish_reason"]) == ("text_completion", "ab", "length")
    assert choice["logprobs"]["tokens"] == ["a", "b"]
    assert choice["logprobs"]["token_logprobs"] == [-1.0, -1.0]


def test_messages_join_text_tool_input_and_thinking():
    whole = joined(
        Dialect.MESSAGES,
        {
            "type": "message_start",
            "message": {
                "id": "m",
                "content": [],
                "stop_reason": None,
                "usage": {"input_tokens": 5, "output_tokens": 1},
            },
        },
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": '{"a"'},
        },
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": ":1}"},
        },
        {"type": "content_block_delta", "index": 1, "delta": {"type": "a_new_one"}},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "x"}},
        {
            "type": "content_block_delta",
            "index": 2,
            "delta": {"type": "citations_delta", "citation": {"n": 1}},
        },
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 9},
        },
        {"type": "message_stop"},
    )
    assert whole["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
        {"type": "text", "text": "x", "citations": [{"n": 1}]},
    ]
    assert whole["stop_reason"] == "tool_use"
    assert whole["usage"] == {"input_tokens": 5, "output_tokens": 9}


@pytest.mark.parametrize("kind", ["response.completed", "response.incomplete", "response.failed"])
def test_responses_are_the_object_of_their_last_event(kind: str):
    assert joined(
        Dialect.RESPONSES, {"type": "response.created"}, {"type": kind, "response": {"id": "r"}}
    ) == {"id": "r"}


@pytest.mark.parametrize(
    ("dialect", "payloads"),
    [
        (Dialect.CHAT, ()),
        (Dialect.CHAT, (chunk({"content": "a"}),)),
        (Dialect.CHAT, (chunk({"content": "a"}, "stop"), chunk({"content": "b"}, index=1))),
        (Dialect.CHAT, (b"nonsense",)),
        (Dialect.CHAT, (b"[]",)),
        (Dialect.CHAT, ({"choices": [7]},)),
        (Dialect.CHAT, (b'{"choices":' + b"[" * 100_000,)),
        (Dialect.RESPONSES, ({"type": "response.output_text.delta", "delta": "x"},)),
        (Dialect.RESPONSES, ({"type": "response.completed", "response": None},)),
        (Dialect.MESSAGES, ({"type": "message_start", "message": {"id": "m"}},)),
        (Dialect.MESSAGES, ({"type": "message_stop"},)),
    ],
)
def test_what_did_not_come_to_its_end_has_no_answer(dialect: Dialect, payloads: Any):
    with pytest.raises(NoAnswerError):
        joined(dialect, *payloads)


@pytest.mark.parametrize("index", [None, [], {}, "0"])
def test_a_choice_needs_an_index(index: Any):
    with pytest.raises(NoAnswerError):
        chat(chunk({"content": "a"}, "stop", index=index))


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": None},
        {"choices": 7},
        {"choices": [{"delta": None}]},
        {"choices": [{"delta": {"tool_calls": 3}, "text": 7}]},
    ],
)
def test_odd_chunks_neither_crash_nor_invent_an_answer(odd: Any):
    answer = for_dialect(Dialect.CHAT)
    answer.take(json.dumps(odd).encode())
    with pytest.raises(NoAnswerError):
        answer.answer()
