"""Telemetry as the engines expose it: vLLM's and llama.cpp's `/metrics`, llama.cpp's `/slots` and `/props`."""

from typing import Any

from gateway.simulation.serve.driver import Driver, Histogram


def vllm_metrics(driver: Driver, model: str) -> str:
    """The part of vLLM's exposition that says how loaded it is. The preemption counter is late, as in vLLM."""
    labels = f'engine="0",model_name="{model}"'
    spec, gauges, counters, statistics = (
        driver.engine.spec,
        driver.gauges,
        driver.engine.counters,
        driver.statistics,
    )
    blocks = spec.kv_tokens // spec.block_tokens
    lines = [f"process_start_time_seconds {statistics.started_at}"]
    for name, value in (
        ("num_requests_running", gauges.running),
        ("num_requests_waiting", gauges.waiting),
        ("kv_cache_usage_perc", gauges.kv_ratio),
    ):
        lines += [f"# TYPE vllm:{name} gauge", f"vllm:{name}{{{labels}}} {float(value)}"]
    lines.append(f'vllm:num_requests_waiting_by_reason{{{labels},reason="capacity"}} {float(gauges.waiting)}')
    lines.append(f'vllm:num_requests_waiting_by_reason{{{labels},reason="deferred"}} 0.0')
    for name, value in (
        ("num_preemptions_total", driver.preemptions()),
        ("prompt_tokens_total", counters.prompt_tokens),
        ("generation_tokens_total", counters.generated_tokens),
    ):
        lines += [f"# TYPE vllm:{name} counter", f"vllm:{name}{{{labels}}} {float(value)}"]
    lines.append("# TYPE vllm:request_success_total counter")
    for reason, value in (("stop", statistics.stopped), ("length", statistics.cut), ("abort", 0)):
        lines.append(f'vllm:request_success_total{{finished_reason="{reason}",{labels}}} {float(value)}')
    rejections = f'model_name="{model}",reason="max_num_queued_reqs"'
    lines.append(f"vllm:admission_rejections_total{{{rejections}}} {float(counters.rejected)}")
    for name, histogram in (
        ("time_to_first_token_seconds", statistics.ttft),
        ("inter_token_latency_seconds", statistics.inter_token),
        ("request_time_per_output_token_seconds", statistics.per_token),
        ("e2e_request_latency_seconds", statistics.end_to_end),
        ("request_queue_time_seconds", statistics.queue),
    ):
        lines += _histogram_lines(f"vllm:{name}", labels, histogram)
    cache = f'block_size="{spec.block_tokens}",engine="0",kv_cache_size_tokens="{spec.kv_tokens}"'
    cache += f',num_gpu_blocks="{blocks}"'
    lines += ["# TYPE vllm:cache_config_info gauge", f"vllm:cache_config_info{{{cache}}} 1.0"]
    return "\n".join(lines) + "\n"


def llama_cpp_metrics(driver: Driver) -> str:
    """llama.cpp's exposition: no labels, no histograms; token counters move when a slot is released."""
    counters, statistics, gauges = driver.engine.counters, driver.statistics, driver.gauges
    decode_s = max(counters.decode_s, 1e-9)
    prompt_s = max(counters.prompt_s, 1e-9)
    series = (
        ("prompt_tokens_total", "counter", counters.prompt_tokens),
        ("prompt_tokens_cached_total", "counter", 0),
        ("prompt_seconds_total", "counter", round(counters.prompt_s, 5)),
        ("tokens_predicted_total", "counter", statistics.released_tokens),
        ("tokens_predicted_seconds_total", "counter", round(counters.decode_s, 5)),
        ("n_decode_total", "counter", counters.steps),
        ("n_tokens_max", "counter", statistics.longest),
        ("prompt_tokens_seconds", "gauge", round(counters.prompt_tokens / prompt_s, 3)),
        ("predicted_tokens_seconds", "gauge", round(counters.generated_tokens / decode_s, 3)),
        ("requests_processing", "gauge", gauges.running),
        ("requests_deferred", "gauge", gauges.waiting),
        ("n_busy_slots_per_decode", "gauge", round(counters.busy_seqs / max(1, counters.steps), 5)),
    )
    lines: list[str] = []
    for name, kind, value in series:
        lines += [f"# TYPE llamacpp:{name} {kind}", f"llamacpp:{name} {value}"]
    return "\n".join(lines) + "\n"


def llama_cpp_slots(driver: Driver) -> list[dict[str, Any]]:
    """One entry per slot; `n_prompt_tokens` grows while decoding, idle slots lack it."""
    spec = driver.engine.spec
    holders = driver.slots()
    slots: list[dict[str, Any]] = []
    for index in range(spec.seats):
        slot: dict[str, Any] = {
            "id": index,
            "n_ctx": spec.context_tokens,
            "speculative": False,
            "is_processing": False,
        }
        sequence = driver.engine.sequence(holders[index]) if index in holders else None
        if sequence is not None:
            left = sequence.output_tokens - sequence.generated
            slot |= {
                "is_processing": True,
                "n_prompt_tokens": sequence.prompt_tokens + sequence.generated,
                "n_prompt_tokens_processed": min(sequence.context, sequence.prompt_tokens),
                "n_prompt_tokens_cache": 0,
                "next_token": [{"has_next_token": True, "n_remain": left, "n_decoded": sequence.generated}],
            }
        slots.append(slot)
    return slots


def llama_cpp_props(driver: Driver, model: str) -> dict[str, Any]:
    """What llama.cpp says of its configuration."""
    spec = driver.engine.spec
    return {
        "default_generation_settings": {"n_ctx": spec.context_tokens},
        "total_slots": spec.seats,
        "model_alias": model,
        "build_info": "b1-simulated",
        "is_sleeping": False,
    }


def _histogram_lines(name: str, labels: str, histogram: Histogram) -> list[str]:
    lines = [f"# TYPE {name} histogram"]
    cumulative = 0
    for bound, count in zip([*map(str, histogram.bounds), "+Inf"], histogram.counts, strict=True):
        cumulative += count
        lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {float(cumulative)}')
    lines.append(f"{name}_count{{{labels}}} {float(cumulative)}")
    lines.append(f"{name}_sum{{{labels}}} {histogram.total_s}")
    return lines
