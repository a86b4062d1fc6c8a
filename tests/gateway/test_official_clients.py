"""The official Python clients, unchanged but for their base URL and key, through the gateway."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anthropic
import openai
import pytest

from tests.fakes.backend import FakeBackend, Hold, Raw, Rst, Sse, Status, event
from tests.fakes.gateway import RunningGateway, a_pool, a_world, key_of, running
from tests.fakes.llama_cpp import LlamaServer, is_installed

pytestmark = pytest.mark.loop
needs_engine = pytest.mark.skipif(not is_installed(), reason="llama-server-vulkan is not installed")
COLD = {"temperature": 0}
SAY = [{"role": "user", "content": "Tell me a story."}]


@pytest.fixture(scope="module")
def engine() -> Iterator[LlamaServer]:
    with LlamaServer(slots=4) as server:
        yield server


@asynccontextmanager
async def openai_client(
    gateway: RunningGateway, tenant: str = "t0", **how: object
) -> AsyncIterator[openai.AsyncOpenAI]:
    base = f"http://127.0.0.1:{gateway.port}/v1"
    async with openai.AsyncOpenAI(api_key=key_of(tenant).key, base_url=base, **how) as client:  # type: ignore[arg-type]
        yield client


@asynccontextmanager
async def anthropic_client(gateway: RunningGateway, **how: object) -> AsyncIterator[anthropic.AsyncAnthropic]:
    base = f"http://127.0.0.1:{gateway.port}"
    async with anthropic.AsyncAnthropic(api_key=key_of("t1").key, base_url=base, **how) as client:  # type: ignore[arg-type]
        yield client


@needs_engine
async def test_openais_client_talks_to_a_real_engine(engine: LlamaServer):
    world = a_world(engine.url, pool=a_pool("pool", "tiny", limit=4))
    async with running(world) as gateway, openai_client(gateway) as client:
        whole = await client.chat.completions.create(model="tiny", messages=SAY, max_tokens=8, temperature=0)  # type: ignore[arg-type]
        assert whole.usage is not None
        assert whole.usage.completion_tokens == 8
        stream = await client.chat.completions.create(
            model="tiny",
            messages=SAY,  # type: ignore[arg-type]
            max_tokens=8,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        assert (
            "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
            == whole.choices[0].message.content
        )
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
        response = await client.responses.create(model="tiny", input="Tell me a story.", max_output_tokens=8)
        assert response.output_text
        old = await client.completions.create(model="tiny", prompt="Once", max_tokens=4)
        assert old.choices[0].text
        assert [m.id async for m in client.models.list()] == ["tiny"]
        await gateway.rest()


@needs_engine
async def test_anthropics_client_talks_to_a_real_engine(engine: LlamaServer):
    world = a_world(engine.url, pool=a_pool("pool", "tiny", limit=4))
    async with running(world) as gateway, anthropic_client(gateway) as client:
        whole = await client.messages.create(model="tiny", max_tokens=8, messages=SAY, extra_body=COLD)  # type: ignore[arg-type]
        assert whole.usage.output_tokens == 8
        async with client.messages.stream(
            model="tiny", max_tokens=8, messages=SAY, extra_body=COLD
        ) as stream:  # type: ignore[arg-type]
            text = "".join([piece async for piece in stream.text_stream])
        assert text == "".join(block.text for block in whole.content if block.type == "text")
        assert gateway.told[-1].tenant == "t1"
        with pytest.raises(anthropic.NotFoundError) as missing:
            await client.messages.create(model="nope", max_tokens=8, messages=SAY)  # type: ignore[arg-type]
        assert missing.value.body["error"]["type"] == "not_found_error"  # type: ignore[index, call-overload]
        await gateway.rest()


async def test_tool_calls_are_read_as_openais_client_reads_them():
    def delta(part: dict[str, object], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": part, "finish_reason": finish}
        return event(
            {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        )

    call = {"index": 0, "id": "t1", "type": "function", "function": {"name": "add", "arguments": ""}}
    events = (
        delta({"role": "assistant", "content": None, "tool_calls": [call]})
        + delta({"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]})
        + delta({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]})
        + delta({}, "tool_calls")
        + b"data: [DONE]\n\n"
    )
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    async with (
        FakeBackend(Raw((head, events), "fin")) as backend,
        running(a_world(backend)) as gateway,
        openai_client(gateway) as client,
    ):
        whole = await client.chat.completions.create(model="m", messages=SAY, tools=tools)  # type: ignore[call-overload]
        [made] = whole.choices[0].message.tool_calls
        assert (made.id, made.function.name, made.function.arguments) == ("t1", "add", '{"a":1}')
        async with client.chat.completions.stream(model="m", messages=SAY, tools=tools) as stream:  # type: ignore[arg-type]
            final = await stream.get_final_completion()
        assert final.choices[0].message.tool_calls is not None
        assert final.choices[0].message.tool_calls[0].function.arguments == '{"a":1}'
        assert backend.requests[0].json["tools"] == tools


async def test_openais_client_raises_what_it_should():
    async with FakeBackend() as backend, running(a_world(backend)) as gateway:
        async with openai_client(gateway, max_retries=0) as client:

            async def ask(**members: object) -> object:
                return await client.chat.completions.create(**{"model": "m", "messages": SAY, **members})  # type: ignore[call-overload]

            with pytest.raises(openai.NotFoundError) as missing:
                await ask(model="nope")
            assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
            with pytest.raises(openai.BadRequestError) as bad:
                await ask(max_tokens=0)
            assert bad.value.param == "max_tokens"
            backend.then(Status(500))
            with pytest.raises(openai.InternalServerError) as broken:
                await ask()
            assert broken.value.status_code == 502
            assert broken.value.request_id
            backend.default = Rst(2)
            with pytest.raises(openai.APIError, match="failed while it was answering"):
                async for _ in await ask(stream=True):  # type: ignore[attr-defined]
                    pass
        async with openai_client(gateway) as stranger:
            stranger.api_key = "sk-wrong"
            with pytest.raises(openai.AuthenticationError):
                await stranger.models.list()


async def test_openais_client_waits_as_long_as_it_is_told_and_then_succeeds():
    async with FakeBackend() as backend, running(a_world(backend, pool=a_pool(limit=1))) as gateway:
        backend.then(Hold(then=Sse(2)))
        slow = asyncio.create_task(gateway.caller().send())
        await backend.until(lambda: backend.in_flight == 1)
        waiting = [asyncio.create_task(gateway.caller().send()) for _ in range(4)]
        async with openai_client(gateway, max_retries=3) as client:
            call = asyncio.create_task(client.chat.completions.create(model="m", messages=SAY))  # type: ignore[call-overload]
            await backend.until(lambda: any(e.outcome == "refused" for e in gateway.told))
            backend.release()
            answer = await call
        assert answer.choices[0].message.content
        refused, *_, last = [
            e for e in gateway.told if e.tenant == "t0" and (e.is_retry or e.outcome == "refused")
        ]
        assert (refused.reason, last.is_retry, last.outcome) == ("queue_full", True, "completed")
        await asyncio.gather(slow, *waiting)
        await gateway.rest()
