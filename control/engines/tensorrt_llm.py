"""TensorRT-LLM behind `trtllm-serve`, and behind Triton."""

from collections.abc import Mapping

from control.engines.base import Source, Table, Telemetry, parse, product

SERVE = Table(
    running=Source(("trtllm_num_requests_running",)),
    waiting=Source(("trtllm_num_requests_waiting",)),
    kv_ratio=Source(("trtllm_kv_cache_utilization",), worst=True),
    max_seqs=Source(("trtllm_max_num_active_requests",), worst=True),
    output_tokens_total=Source(("trtllm_generation_tokens_total",)),
    ttft=("trtllm_time_to_first_token_seconds",),
    tpot=("trtllm_time_per_output_token_seconds",),
    extra=("trtllm_kv_cache_max_blocks", "trtllm_kv_cache_tokens_per_block"),
)
_REQUESTS, _BLOCKS = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"
TRITON = Table(
    running=Source((_REQUESTS,), (("request_type", "scheduled"),)),
    waiting=Source((_REQUESTS,), (("request_type", "waiting"),)),
    kv_ratio=Source((_BLOCKS,), (("kv_cache_block_type", "fraction"),), worst=True),
    max_seqs=Source((_REQUESTS,), (("request_type", "max"),), worst=True),
)


class TrtllmServe:
    """Its Prometheus page is `/prometheus/metrics`; `/metrics` is a JSON list that a reader drains for everybody."""

    name = "tensorrt_llm"
    interval_s = 1.0
    paths: tuple[str, ...] = ("/prometheus/metrics",)
    facts_paths: tuple[str, ...] = ()

    def read(self, pages: Mapping[str, bytes]) -> Telemetry:
        """Understand `/prometheus/metrics`."""
        samples = parse(pages.get("/prometheus/metrics", b""), SERVE.wanted)
        blocks = Source(("trtllm_kv_cache_max_blocks",)).read(samples)
        per_block = Source(("trtllm_kv_cache_tokens_per_block",), worst=True).read(samples)
        return SERVE.read(samples, kv_capacity_tokens=product(blocks, per_block))


class Triton:
    """Its metrics listen on a port of their own (8002): set the backend's metrics URL."""

    name = "triton"
    interval_s = 1.0
    paths: tuple[str, ...] = ("/metrics",)
    facts_paths: tuple[str, ...] = ()

    def read(self, pages: Mapping[str, bytes]) -> Telemetry:
        """Understand `/metrics`."""
        samples = parse(pages.get("/metrics", b""), TRITON.wanted)
        blocks = Source((_BLOCKS,), (("kv_cache_block_type", "max"),)).read(samples)
        per_block = Source((_BLOCKS,), (("kv_cache_block_type", "tokens_per"),), worst=True).read(samples)
        return TRITON.read(samples, kv_capacity_tokens=product(blocks, per_block))
