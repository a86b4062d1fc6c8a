"""A real llama.cpp server behind the gateway: the answer built of its stream is the answer that it gives by itself."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.fakes.caller import Received
from tests.fakes.gateway import a_pool, a_world, running
from tests.fakes.llama_cpp import LlamaServer, is_installed

pytestmark = [
    pytest.mark.loop,
    pytest.mark.skipif(not is_installed(), reason="llama-server-vulkan is not installed"),
]

VARIABLE = {
    "id",
    "created",
    "timings",
    "completion_id",
    "created_at",
    "completed_at",
}  # differ from answer to answer
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}},
    "required": ["a"],
    "additionalProperties": False,
}
FIXED = {"model": "tiny", "temperature": 0, "seed": 1, "cache_prompt": False}


@pytest.fixture(scope="module")
def engine() -> Iterator[LlamaServer]:
    with LlamaServer(slots=4) as server:
        yield server


def constant(value: Any) -> Any:
    """A JSON value without what differs between two answers to the same request."""
    if isinstance(value, dict):
        return {k: constant(v) for k, v in value.items() if k not in VARIABLE}
    return [constant(v) for v in value] if isinstance(value, list) else value


async def straight(engine: LlamaServer, path: str, body: Any) -> Any:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        return (await client.post(engine.url + path, json=body)).json()


def chat(**members: Any) -> dict[str, Any]:
    return {
        **FIXED,
        "max_tokens": 8,
        "messages": [{"role": "user", "content": "Tell me a story."}],
        **members,
    }


REQUESTS = {
    "plain": ("/v1/chat/completions", chat()),
    "conversation": (
        "/v1/chat/completions",
        chat(messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "你好 🌍"}]),
    ),
    "parts": (
        "/v1/chat/completions",
        chat(messages=[{"role": "user", "content": [{"type": "text", "text": "hello"}]}]),
    ),
    "logprobs": ("/v1/chat/completions", chat(logprobs=True, top_logprobs=2, max_tokens=4)),
    "schema": (
        "/v1/chat/completions",
        chat(
            max_tokens=60,
            response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}},
        ),
    ),
    "choices": ("/v1/chat/completions", chat(n=2, max_tokens=4)),
    "completion": ("/v1/completions", {**FIXED, "prompt": "Once upon a time", "max_tokens": 8}),
    "completion logprobs": ("/v1/completions", {**FIXED, "prompt": "Once", "max_tokens": 4, "logprobs": 2}),
}


@pytest.mark.parametrize("name", list(REQUESTS))
async def test_the_answer_built_of_the_stream_is_the_engines_own(engine: LlamaServer, name: str):
    path, body = REQUESTS[name]
    async with running(a_world(engine.url, pool=a_pool("pool", "tiny", limit=4))) as gateway:
        own = await straight(engine, path, body)
        through: Received = await gateway.caller().send(body, path=path)
        assert through.status == 200, through.body
        assert constant(through.json) == constant(own)
        await gateway.rest()
        assert gateway.told[0].prompt_tokens == own["usage"]["prompt_tokens"]


@pytest.mark.parametrize("name", ["plain", "completion"])
async def test_a_stream_passes_as_the_engine_sent_it(engine: LlamaServer, name: str):
    path, body = REQUESTS[name]
    async with running(a_world(engine.url, pool=a_pool("pool", "tiny", limit=4))) as gateway:
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            own = Received(200, [], (await client.post(engine.url + path, json=asked)).content)
        through = await gateway.caller().send(asked, path=path)
        assert [constant(e) for e in through.events] == [constant(e) for e in own.events]
        silent = await gateway.caller().send({**body, "stream": True}, path=path)
        assert [constant(e) for e in silent.events] == [
            constant(e) for e in own.events if e == "[DONE]" or e["choices"]
        ]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {**FIXED, "input": "Tell me a story.", "max_output_tokens": 8}),
        (
            "/v1/messages",
            {**FIXED, "max_tokens": 8, "messages": [{"role": "user", "content": "Tell me a story."}]},
        ),
    ],
)
async def test_responses_and_messages_say_the_same_through_the_gateway(
    engine: LlamaServer, path: str, body: Any
):
    def texts(answer: Any) -> list[str]:
        parts = answer.get("content") or [p for item in answer["output"] for p in item.get("content", ())]
        return [p["text"] for p in parts]

    async with running(a_world(engine.url, pool=a_pool("pool", "tiny", limit=4))) as gateway:
        own = await straight(engine, path, body)
        through = await gateway.caller().send(body, path=path)
        assert through.status == 200, through.body
        assert texts(through.json) == texts(own)
        assert set(constant(own)) - set(constant(through.json)) == set()
        assert through.json["usage"] == own["usage"]


async def test_an_engines_own_refusal_reaches_the_caller_in_its_words(engine: LlamaServer):
    async with running(a_world(engine.url, pool=a_pool("pool", "tiny", limit=4))) as gateway:
        body = chat(messages=[{"role": "user", "content": "word " * 5000}])
        own = await straight(engine, "/v1/chat/completions", body)
        for stream in (True, False):
            through = await gateway.caller().send({**body, "stream": stream})
            assert through.status == 400
            assert json.loads(through.body)["error"]["message"] == own["error"]["message"]


async def test_a_caller_that_leaves_frees_the_engines_slot(engine: LlamaServer):
    async with running(a_world(engine.url, pool=a_pool("pool", "tiny", limit=4))) as gateway:
        for stream in (True, False):
            leaving = await gateway.caller().open(chat(max_tokens=1500, stream=stream))
            await asyncio.sleep(0.1)
            assert any(slot["is_processing"] for slot in await slots(engine))
            await leaving.close()
            await gateway.rest()
            async with asyncio.timeout(2):
                while any(slot["is_processing"] for slot in await slots(engine)):  # noqa: ASYNC110  # another process
                    await asyncio.sleep(0.02)


async def slots(engine: LlamaServer) -> Any:
    async with httpx2.AsyncClient(trust_env=False, timeout=10) as client:
        return (await client.get(engine.url + "/slots")).json()
