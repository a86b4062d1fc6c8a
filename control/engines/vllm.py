"""vLLM: V1 names first, then those of V0 and of the releases in between (docs/engines.md has the history)."""

from collections.abc import Mapping

from control.engines.base import Source, Table, Telemetry, count, label, parse, product

TABLE = Table(
    running=Source(("vllm:num_requests_running",)),
    waiting=Source(("vllm:num_requests_waiting",)),
    kv_ratio=Source(("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"), worst=True),
    preemptions_total=Source(("vllm:num_preemptions_total",)),
    output_tokens_total=Source(("vllm:generation_tokens_total",)),
    rejections_total=Source(("vllm:admission_rejections_total",)),
    ttft=("vllm:time_to_first_token_seconds",),
    tpot=("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    extra=("vllm:cache_config_info",),
)


class Vllm:
    """Counts preemptions 6 s late and freezes its gauges when it hangs: `waiting` is its leading signal."""

    name = "vllm"
    interval_s = 1.0
    paths: tuple[str, ...] = ("/metrics",)
    facts_paths: tuple[str, ...] = ()

    def read(self, pages: Mapping[str, bytes]) -> Telemetry:
        """Understand `/metrics`."""
        samples = parse(pages.get("/metrics", b""), TABLE.wanted)
        return TABLE.read(samples, kv_capacity_tokens=_capacity(samples.get("vllm:cache_config_info", {})))


def _capacity(info: Mapping[str, float]) -> int | None:
    """KV tokens of the smallest engine: each request lives in one of them."""
    sizes = [_size(labels) for labels in info]
    known = [size for size in sizes if size]
    return min(known) if known else None


def _size(labels: str) -> int | None:
    told = count(_number(label(labels, "kv_cache_size_tokens")))
    return told or product(_number(label(labels, "num_gpu_blocks")), _number(label(labels, "block_size")))


def _number(text: str | None) -> float | None:
    return float(text) if text and text.isdecimal() else None
