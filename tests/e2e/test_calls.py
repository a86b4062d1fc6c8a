"""The official SDK, unchanged but for base_url and key, against a real llama.cpp server behind the real gateway."""

import time
from collections.abc import Iterator

import httpx2
import openai
import pytest

from tests.fakes.llama_cpp import LlamaServer
from tests.fakes.system import System, until

pytestmark = [pytest.mark.e2e, pytest.mark.loop]

MESSAGES = [{"role": "user", "content": "say something about rivers"}]


@pytest.fixture
def client(system: System) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=system.base_url, api_key=system.key("P0"), max_retries=0) as made:
        yield made


def test_a_chat_completion_comes_back_whole_with_usage(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=12)
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12
    assert answer.usage.prompt_tokens > 5


def test_a_stream_comes_back_piece_by_piece_and_usage_only_when_asked(client: openai.OpenAI) -> None:
    plain = list(client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=12, stream=True))
    asked = list(
        client.chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            max_tokens=12,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert sum(bool(c.choices and c.choices[0].delta.content) for c in plain) >= 12
    assert all(chunk.usage is None and chunk.choices for chunk in plain)
    assert asked[-1].usage is not None
    assert (asked[-1].choices, asked[-1].usage.completion_tokens) == ([], 12)


def test_streamed_and_whole_answers_are_the_same_text(client: openai.OpenAI) -> None:
    fixed = {"model": "tiny", "messages": MESSAGES, "max_tokens": 16, "temperature": 0.0, "seed": 7}
    whole = client.chat.completions.create(**fixed).choices[0].message.content
    parts = client.chat.completions.create(**fixed, stream=True)
    assert "".join(p.choices[0].delta.content or "" for p in parts if p.choices) == whole


def test_only_the_models_that_a_tenant_may_use_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]


def test_an_unknown_key_is_401_in_the_openai_shape(system: System) -> None:
    with (
        openai.OpenAI(base_url=system.base_url, api_key="sk-nobody", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError) as caught,
    ):
        stranger.chat.completions.create(model="tiny", messages=MESSAGES)
    assert caught.value.response.headers["www-authenticate"] == "Bearer"
    assert {"message", "type", "code", "param"} <= set(caught.value.response.json()["error"])


def test_an_unknown_model_is_404_in_the_openai_shape(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="nobody", messages=MESSAGES)
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b"{", None),
        (b"[]", None),
        (b"{}", "model"),
        (b'{"model":"tiny"}', "messages"),
        (b'{"model":5,"messages":[]}', "model"),
        (b'{"model":"tiny","messages":"hello"}', "messages"),
        (b'{"model":"tiny","messages":[{"role":"user","content":"x"}],"max_tokens":"many"}', "max_tokens"),
        (b'{"model":"tiny","messages":[{"role":"user","content":"x"}],"stream":"yes"}', "stream"),
        (b"\xff\xfe\x00", None),
        (b"[" * 100_000, None),
    ],
)
def test_a_malformed_body_is_400_and_names_what_is_wrong(
    system: System, body: bytes, names: str | None
) -> None:
    answer = post(system, body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert names is None or names in error["message"]


def test_a_body_over_8_mib_is_413(system: System) -> None:
    assert post(system, b'{"model":"tiny","x":"' + b"x" * (8 << 20) + b'"}').status_code == 413


def test_an_unknown_path_is_404_and_never_reaches_the_engine(system: System) -> None:
    for path in ("/v1/nothing", "/slots", "/metrics", "/v1/../slots", "/"):
        headers = {"Authorization": f"Bearer {system.key('P0')}"}
        answer = httpx2.get(system.base_url.removesuffix("/v1") + path, headers=headers)
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, "invalid_request_error"), path


def test_a_caller_that_leaves_frees_the_engines_slot_and_its_seat_once(
    system: System, engine: LlamaServer, client: openai.OpenAI
) -> None:
    stream = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=1500, stream=True)
    for _, _ in zip(range(3), stream, strict=False):
        pass
    assert busy_slots(engine) == 1
    left_at = time.monotonic()
    stream.close()
    until(lambda: busy_slots(engine) == 0, 5.0, "the slot's release")
    assert time.monotonic() - left_at < 0.5
    until(lambda: system.metric("sluicegate_in_flight_tickets") == 0, 5.0, "the seat's release")
    assert system.metric("sluicegate_ledger_imbalance") == 0


def busy_slots(engine: LlamaServer) -> int:
    return sum(slot["is_processing"] for slot in httpx2.get(f"{engine.url}/slots", timeout=5).json())


def post(system: System, body: bytes) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {system.key('P0')}", "Content-Type": "application/json"}
    return httpx2.post(f"{system.base_url}/chat/completions", content=body, headers=headers, timeout=30)
