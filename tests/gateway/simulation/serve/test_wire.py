"""What callers ask of a simulated engine, and what they may not ask."""

import json
import random

import pytest

from gateway.simulation.serve import wire

DICE = random.Random
CHAT = {"messages": [{"role": "user", "content": "x" * 40}]}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "now": {"type": "boolean"},
                "tags": {"type": "array"},
                "more": {"type": "object"},
                "odd": 7,
            },
        },
    },
}


def read(body, *, is_chat=True):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return wire.read(raw, is_chat=is_chat, dice=DICE(1))


def test_an_answer_has_exactly_max_tokens():
    assert read({**CHAT, "max_tokens": 7}).output_tokens == 7
    assert read({**CHAT, "max_completion_tokens": 5, "max_tokens": 7}).output_tokens == 5
    assert read({**CHAT, "max_tokens": 7}).is_cut


def test_an_answer_without_a_bound_ends_by_itself():
    asked = read(CHAT)
    assert asked.output_tokens == len(asked.pieces) > 0
    assert not asked.is_cut


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("x" * 40, 14),
        (None, 4),
        ([{"type": "text", "text": "x" * 8}, {"type": "image_url", "image_url": {"url": "data:"}}], 1006),
    ],
)
def test_prompts_of_a_chat_are_counted(content, tokens):
    assert read({"messages": [{"role": "user", "content": content}]}).prompt_tokens == tokens


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [("x" * 40, 10), ("", 1), ([1, 2, 3], 3), ([[1, 2], [3]], 3), (["x" * 8, "y" * 8], 4), ([], 1)],
)
def test_prompts_of_a_completion_are_counted(prompt, tokens):
    assert read({"prompt": prompt}, is_chat=False).prompt_tokens == tokens


def test_a_tool_call_is_json_in_pieces():
    asked = read({**CHAT, "tools": [TOOL]})
    assert asked.tool == "weather"
    arguments = json.loads("".join(asked.pieces))
    assert set(arguments) == {"city", "days", "now", "tags", "more", "odd"}


def test_tools_are_called_as_chosen():
    other = {"type": "function", "function": {"name": "time", "parameters": {"properties": []}}}
    assert read({**CHAT, "tools": [TOOL, other], "tool_choice": "none"}).tool is None
    chosen = read(
        {**CHAT, "tools": [TOOL, other], "tool_choice": {"type": "function", "function": {"name": "time"}}}
    )
    assert chosen.tool == "time"
    assert chosen.pieces == ("{}",)


@pytest.mark.parametrize(
    ("body", "is_chat", "param"),
    [
        (b"{", True, None),
        (b"[]", True, None),
        ({"messages": []}, True, "messages"),
        ({"messages": "hello"}, True, None),
        ({}, True, "messages"),
        ({}, False, "prompt"),
        ({**CHAT, "max_tokens": 0}, True, "max_tokens"),
        ({**CHAT, "max_tokens": "many"}, True, None),
        ({**CHAT, "n": 0}, True, "n"),
        ({**CHAT, "n": 99}, True, "n"),
        ({**CHAT, "tools": [TOOL], "tool_choice": {"function": {"name": "nobody"}}}, True, "tool_choice"),
        ({**CHAT, "tools": [TOOL], "tool_choice": {"function": 3}}, True, "tool_choice"),
    ],
)
def test_bad_input_is_the_callers_fault(body, is_chat, param):
    with pytest.raises(wire.WrongRequest) as caught:
        read(body, is_chat=is_chat)
    assert caught.value.status == 400
    assert caught.value.param == param
