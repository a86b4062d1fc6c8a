"""Telemetry, read by the very dialects that control uses."""

import json
import random
from dataclasses import replace

import pytest

from control.engines.registry import dialect
from gateway.simulation.profiles import CPU8, LLAMA4
from gateway.simulation.serve import exposition, wire
from gateway.simulation.serve.driver import Driver

DICE = random.Random


def busy(spec, requests=10, steps=12):
    driver = Driver(replace(spec, jitter_sigma=0.0), seed=1)
    for number in range(requests):
        body = json.dumps({"prompt": "x" * 400, "max_tokens": 50}).encode()
        driver.submit(str(number), wire.read(body, is_chat=False, dice=DICE(1)))
    for _ in range(steps):
        driver.engine.start_step()
        driver._seat()
        driver._deliver()
    return driver


def samples(text):
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


async def test_vllm_tells_running_waiting_kv_and_its_configuration():
    driver = busy(CPU8.engine)
    told = samples(exposition.vllm_metrics(driver, "tiny"))
    labels = '{engine="0",model_name="tiny"}'
    assert told[f"vllm:num_requests_running{labels}"] == 8
    assert told[f"vllm:num_requests_waiting{labels}"] == 2
    assert told[f"vllm:kv_cache_usage_perc{labels}"] == driver.engine.kv_ratio > 0
    assert told[f"vllm:generation_tokens_total{labels}"] == driver.engine.counters.generated_tokens
    assert any('num_gpu_blocks="96"' in name and 'block_size="32"' in name for name in told)


async def test_vllm_histograms_are_cumulative_and_end_in_their_count():
    told = samples(exposition.vllm_metrics(busy(CPU8.engine), "tiny"))
    name = "vllm:time_to_first_token_seconds"
    buckets = [value for key, value in told.items() if key.startswith(f"{name}_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == told[name + '_count{engine="0",model_name="tiny"}'] == 8


async def test_llama_cpp_tells_tokens_only_when_a_slot_is_released():
    driver = busy(LLAMA4.engine)
    before = samples(exposition.llama_cpp_metrics(driver))
    assert before["llamacpp:requests_processing"] == 4
    assert before["llamacpp:requests_deferred"] == 6
    assert before["llamacpp:tokens_predicted_total"] == 0
    for _ in range(60):
        driver.engine.start_step()
        driver._deliver()
    assert samples(exposition.llama_cpp_metrics(driver))["llamacpp:tokens_predicted_total"] == 200


async def test_llama_cpp_slots_grow_while_decoding_and_idle_ones_say_nothing():
    slots = exposition.llama_cpp_slots(busy(LLAMA4.engine, requests=2))
    assert [slot["is_processing"] for slot in slots] == [True, True, False, False]
    assert slots[0]["n_prompt_tokens"] == 100 + slots[0]["next_token"][0]["n_decoded"]
    assert "n_prompt_tokens" not in slots[3]
    assert {slot["n_ctx"] for slot in slots} == {8192}


async def test_llama_cpp_props_tell_the_slots():
    props = exposition.llama_cpp_props(busy(LLAMA4.engine), "tiny")
    assert props["total_slots"] == 4
    assert props["model_alias"] == "tiny"
    assert props["default_generation_settings"]["n_ctx"] == 8192


async def test_controls_dialects_understand_both():
    vllm, llama = busy(CPU8.engine), busy(LLAMA4.engine)
    told = dialect("vllm").read({"/metrics": exposition.vllm_metrics(vllm, "tiny").encode()})
    assert (told.running, told.waiting, told.kv_capacity_tokens) == (8, 2, 3072)
    assert told.kv_ratio == pytest.approx(vllm.engine.kv_ratio)
    told = dialect("llama_cpp").read(
        {
            "/metrics": exposition.llama_cpp_metrics(llama).encode(),
            "/slots": json.dumps(exposition.llama_cpp_slots(llama)).encode(),
            "/props": json.dumps(exposition.llama_cpp_props(llama, "tiny")).encode(),
        }
    )
    assert (told.running, told.waiting, told.max_seqs) == (4, 6, 4)
