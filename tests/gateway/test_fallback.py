import json
from typing import Any

import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response

from gateway.fallback import text_answer
from gateway.requests.body import Ask
from gateway.requests.endpoints import Kind
from gateway.tally import Exchange

TEXT = "Back at 10:00. 稍后再试。"
RECORD = Exchange(at=1_800_000_000.0, request_id="req_1")


def ask(*, stream: bool, include_usage: bool = False) -> Ask:
    return Ask("m", stream, include_usage, True, None, 1, 1)


def events(body: bytes) -> list[Any]:
    blocks = [block.split("data: ", 1)[1] for block in body.decode().strip().split("\n\n")]
    return [block if block == "[DONE]" else json.loads(block) for block in blocks]


@pytest.mark.parametrize("kind", [Kind.CHAT, Kind.COMPLETIONS, Kind.RESPONSES, Kind.MESSAGES])
@pytest.mark.parametrize("stream", [True, False])
def test_a_text_is_answered_in_the_shape_of_each_api(kind: Kind, stream: bool):
    answer = text_answer(kind, ask(stream=stream), TEXT, RECORD)
    assert answer is not None
    assert answer.status == 200
    headers = dict(answer.headers)
    assert headers[b"x-sluicegate-fallback"] == b"text"
    assert headers[b"content-type"].startswith(b"text/event-stream" if stream else b"application/json")
    assert TEXT in answer.body.decode()


def test_clients_of_openai_can_read_a_streamed_text():
    streamed = text_answer(Kind.CHAT, ask(stream=True), TEXT, RECORD)
    whole = text_answer(Kind.CHAT, ask(stream=False), TEXT, RECORD)
    assert streamed is not None
    assert whole is not None
    *chunks, done = events(streamed.body)
    assert done == "[DONE]"
    parsed = [ChatCompletionChunk.model_validate(c) for c in chunks]
    assert "".join(c.choices[0].delta.content or "" for c in parsed) == TEXT
    assert parsed[-1].choices[0].finish_reason == "stop"
    assert ChatCompletion.model_validate_json(whole.body).choices[0].message.content == TEXT


def test_the_usage_of_a_text_is_zero_and_told_to_those_who_asked():
    with_usage = text_answer(Kind.CHAT, ask(stream=True, include_usage=True), TEXT, RECORD)
    without = text_answer(Kind.CHAT, ask(stream=True), TEXT, RECORD)
    assert with_usage is not None
    assert without is not None
    assert events(with_usage.body)[-2]["usage"]["total_tokens"] == 0
    assert b"usage" not in without.body


def test_clients_of_responses_and_messages_can_read_it():
    response = text_answer(Kind.RESPONSES, ask(stream=True), TEXT, RECORD)
    message = text_answer(Kind.MESSAGES, ask(stream=False), TEXT, RECORD)
    assert response is not None
    assert message is not None
    last = events(response.body)[-1]
    assert last["type"] == "response.completed"
    assert Response.model_validate(last["response"]).output_text == TEXT
    assert Message.model_validate_json(message.body).content[0].text == TEXT  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", [Kind.EMBEDDINGS, Kind.RERANK, Kind.TOKENIZE])
def test_endpoints_without_text_have_no_such_answer(kind: Kind):
    assert text_answer(kind, ask(stream=False), TEXT, RECORD) is None
