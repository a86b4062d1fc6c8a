"""The simulated engine as a process, asked over real sockets."""

import concurrent.futures
import json
import time

import httpx2
import pytest

from tests.fakes.simulated_engine import SimulatedEngine

pytestmark = pytest.mark.loop
BODY = {"prompt": "hello", "max_tokens": 4}
FOREVER = {"prompt": "hello", "max_tokens": 8000, "stream": True}


@pytest.fixture(scope="module")
def vllm():
    with SimulatedEngine("--seats", "8") as engine:
        yield engine


@pytest.fixture(scope="module")
def llama():
    with SimulatedEngine(profile="llama4", engine="llama.cpp") as engine:
        yield engine


@pytest.fixture(params=["vllm", "llama"])
def engine(request):
    found = request.getfixturevalue(request.param)
    yield found
    found.fault("none")


@pytest.fixture
def client(engine):
    with httpx2.Client(base_url=engine.url, timeout=10) as made:
        yield made


def until(condition, seconds=5.0):
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it never came true"
        time.sleep(0.01)


def test_it_answers_whole_and_streamed_alike(client):
    whole = client.post("/v1/completions", json=BODY)
    streamed = client.post(
        "/v1/completions", json={**BODY, "stream": True, "stream_options": {"include_usage": True}}
    )
    assert whole.status_code == streamed.status_code == 200
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert streamed.text.endswith("data: [DONE]\n\n")
    usage = json.loads(streamed.text.split("\n\n")[-3].removeprefix("data: "))["usage"]
    assert usage == whole.json()["usage"]


def test_it_says_what_it_is(client, engine):
    assert client.get("/v1/models").json()["data"][0]["id"] == engine.model
    assert client.get("/health").status_code == 200
    assert client.get("/nothing").status_code == 404


def test_a_caller_that_hangs_up_frees_its_seat(client, engine):
    with client.stream("POST", "/v1/completions", json=FOREVER) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert engine.state()["running"] == 1
    until(lambda: engine.state()["running"] == 0)
    assert engine.state()["counters"]["aborted"] >= 1


def test_a_body_that_is_wrong_is_the_callers_fault(client):
    for body in (b"{", b'{"prompt": 3}', b'{"max_tokens": 4}'):
        assert client.post("/v1/completions", content=body).status_code == 400
    too_long = client.post("/v1/completions", json={"prompt": "hello", "max_tokens": 50_000})
    assert too_long.status_code == 400
    assert "maximum context length" in too_long.json()["error"]["message"]


def test_busy_is_a_503_that_may_say_when(client, engine):
    engine.fault("busy", retry_after=2)
    answer = client.post("/v1/completions", json=BODY)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")


def test_busy_may_come_in_the_stream(client, engine):
    engine.fault("busy-late")
    answer = client.post("/v1/completions", json={**BODY, "stream": True})
    assert answer.status_code == 200
    assert json.loads(answer.text.split("\n\n")[0].removeprefix("data: "))["error"]["code"] == 503


def test_a_crash_ends_streams_with_an_error_event(client, engine):
    with client.stream("POST", "/v1/completions", json=FOREVER) as answer:
        lines = answer.iter_lines()
        next(lines)
        engine.fault("crash", seconds=30)
        rest = [line for line in lines if line]
    assert json.loads(rest[-2].removeprefix("data: "))["error"]["code"] == 500
    assert rest[-1] == "data: [DONE]"
    assert client.post("/v1/completions", json=BODY).status_code == 500
    assert client.get("/health").status_code == 503


def test_a_cut_ends_streams_in_mid_air(client, engine):
    with client.stream("POST", "/v1/completions", json=FOREVER) as answer:
        lines = answer.iter_lines()
        next(lines)
        engine.fault("cut", seconds=0.2)
        with pytest.raises(httpx2.RemoteProtocolError):
            list(lines)


def test_garbage_and_errors_are_as_ordered(client, engine):
    engine.fault("garbage")
    assert b"\xff" in client.post("/v1/completions", json=BODY).content
    engine.fault("none")
    engine.fault("errors", status=502)
    assert client.post("/v1/completions", json=BODY).status_code == 502


def test_a_wrong_order_of_faults_is_refused(client):
    assert client.post("/sim/faults", json={"fault": "earthquake"}).status_code == 400
    assert client.get("/sim/faults").json() == {"faults": []}


def test_metrics_may_be_slow(client, engine):
    engine.fault("slow-metrics", delay_s=0.3)
    start = time.monotonic()
    assert client.get("/metrics").status_code == 200
    assert time.monotonic() - start >= 0.3


def test_more_requests_than_seats_are_answered_in_turns(client, engine):
    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda _: client.post("/v1/completions", json=BODY), range(16)))
    assert {answer.status_code for answer in answers} == {200}


def test_vllm_knows_only_its_own_model(vllm):
    answer = httpx2.post(f"{vllm.url}/v1/completions", json={**BODY, "model": "other"})
    assert answer.status_code == 404
    assert answer.json()["error"]["param"] == "model"


def test_vllm_aborts_unstreamed_requests_at_once_and_llama_cpp_late(vllm, llama):
    for engine, is_slow in ((vllm, False), (llama, True)):
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(f"{engine.url}/v1/completions", json={**FOREVER, "stream": False}, timeout=0.2)
        time.sleep(0.3)
        assert (engine.state()["running"] == 1) == is_slow
        until(lambda engine=engine: engine.state()["running"] == 0)


def test_an_engine_that_exits_is_gone():
    with SimulatedEngine() as engine:
        with pytest.raises(httpx2.HTTPError):
            httpx2.post(f"{engine.url}/sim/faults", json={"fault": "exit"})
        until(lambda: _is_refused(engine.url))


def _is_refused(url):
    try:
        httpx2.get(f"{url}/health")
    except httpx2.ConnectError:
        return True
    except httpx2.HTTPError:
        return False
    return False
