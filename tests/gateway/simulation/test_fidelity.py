"""The llama-like profile against the real llama.cpp server: calibrated once, it must predict what was not measured."""

import asyncio
import time
from dataclasses import dataclass, replace
from statistics import mean, median

import httpx2
import pytest

from gateway.simulation.fidelity import Timings, fitted, predicted
from tests.fakes.llama_cpp import LlamaServer, is_installed

CLOSE = 0.25
TRIALS = 4  # the machine may be busy with something else
LONG_WORDS, SHORT_WORDS, OUTPUT = (
    48,
    12,
    48,
)  # a longer one would teach the cost of attention over its own length


@dataclass
class Answer:
    prompt_tokens: int
    first_s: float
    last_s: float


async def ask(client, url, words, number):
    """One streamed completion; times since its start. Every prompt is new, so that nothing is cached."""
    text = " ".join(f"w{number}x{index}" for index in range(words))
    body = {
        "prompt": text,
        "max_tokens": OUTPUT,
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_prompt": False,
    }
    start = time.monotonic()
    times, prompt = [], 0
    async with client.stream("POST", f"{url}/v1/completions", json=body) as answer:
        async for line in answer.aiter_lines():
            if '"text"' in line:
                times.append(time.monotonic() - start)
            if '"prompt_tokens":' in line:
                prompt = int(line.split('"prompt_tokens":')[1].split(",")[0])
    return Answer(prompt, times[0], times[-1])


async def ask_at_once(url, requests, words, salt):
    async with httpx2.AsyncClient(timeout=60) as client:
        return await asyncio.gather(*(ask(client, url, words, salt * 100 + n) for n in range(requests)))


def measured(url, requests, words, salt=0):
    return asyncio.run(ask_at_once(url, requests, words, salt))


def per_token(answers):
    return median((answer.last_s - answer.first_s) / (OUTPUT - 1) for answer in answers)


def throughput(answers):
    return len(answers) * OUTPUT / max(answer.last_s for answer in answers)


def calibrated(url, seats):
    """One live run: one stream, eight streams, one long prompt."""
    one = measured(url, 1, SHORT_WORDS, 1)
    many = measured(url, 8, SHORT_WORDS, 2)
    long = measured(url, 1, LONG_WORDS, 3)[0]
    return fitted(
        Timings(
            one_stream_s=per_token(one),
            many_streams_s=max(per_token(many), per_token(one)),
            streams=8,
            prompt_tokens=long.prompt_tokens,
            first_token_s=long.first_s,
        ),
        seats,
    )


def is_close(wanted, found):
    return abs(found / wanted - 1.0) <= CLOSE


def staircase(times):
    """Mean time to first token of each group of four."""
    ordered = sorted(times)
    return [mean(ordered[at : at + 4]) for at in range(0, len(ordered), 4)]


@pytest.mark.bench
@pytest.mark.skipif(not is_installed(), reason="the llama.cpp server is not installed")
def test_the_model_predicts_the_real_server_within_a_quarter():
    complaints = []
    with (
        LlamaServer(slots=8, width=512, layers=8) as eight,
        LlamaServer(slots=4, width=512, layers=8) as four,
    ):
        measured(eight.url, 8, SHORT_WORDS, 9)  # warm up
        measured(four.url, 4, SHORT_WORDS, 9)
        for _ in range(TRIALS):
            complaints = compare(eight.url, four.url)
            if not complaints:
                return
    pytest.fail("; ".join(complaints))


def compare(eight, four):
    complaints = []
    spec = calibrated(eight, 8)
    for streams in (1, 4, 8):
        answers = measured(eight, streams, SHORT_WORDS, 4)
        told = predicted(spec, streams, answers[0].prompt_tokens, OUTPUT).tokens_per_s
        found = throughput(answers)
        if not is_close(found, told):
            complaints.append(f"{streams} streams: {told:.0f} tokens/s predicted, {found:.0f} measured")
    answers = measured(four, 12, SHORT_WORDS, 5)
    prompt = answers[0].prompt_tokens
    told = staircase(predicted(replace(spec, seats=4), 12, prompt, OUTPUT).first_tokens_s)
    found = staircase([answer.first_s for answer in answers])
    for step, (wanted, seen) in enumerate(zip(told, found, strict=True)):
        if not is_close(seen, wanted):
            complaints.append(
                f"step {step} of the staircase: {wanted:.3f} s predicted, {seen:.3f} s measured"
            )
    return complaints


def test_a_fit_goes_through_its_timings():
    spec = fitted(
        Timings(one_stream_s=0.005, many_streams_s=0.012, streams=8, prompt_tokens=100, first_token_s=0.055),
        8,
    )
    assert spec.base_s + spec.per_seq_s == pytest.approx(0.005)
    assert spec.base_s + 8 * spec.per_seq_s == pytest.approx(0.012)
    assert spec.per_prefill_s == pytest.approx(0.0005)


def test_a_prediction_is_a_staircase_of_as_many_steps_as_the_seats_need():
    spec = fitted(
        Timings(one_stream_s=0.004, many_streams_s=0.008, streams=5, prompt_tokens=10, first_token_s=0.004), 4
    )
    told = predicted(spec, 8, 10, 20)
    assert told.first_tokens_s[:4] == pytest.approx([0.007] * 4)
    assert told.first_tokens_s[4:] == pytest.approx([21 * 0.007] * 4)
    assert told.tokens_per_s == pytest.approx(8 * 20 / (40 * 0.007))


@pytest.mark.parametrize(
    "wrong", [{"streams": 1}, {"prompt_tokens": 0}, {"one_stream_s": 0.0}, {"one_stream_s": 0.2}]
)
def test_timings_that_no_engine_has_are_refused(wrong):
    right = {
        "one_stream_s": 0.005,
        "many_streams_s": 0.01,
        "streams": 8,
        "prompt_tokens": 9,
        "first_token_s": 0.1,
    }
    with pytest.raises(ValueError, match="must be"):
        fitted(Timings(**{**right, **wrong}), 4)
