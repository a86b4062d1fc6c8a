"""SGLang: gauges are refreshed every `--decode-log-interval` decode steps; set it to 1..5 for a fast control."""

from collections.abc import Mapping

from control.engines.base import Source, Table, Telemetry, count, parse

TABLE = Table(
    running=Source(("sglang:num_running_reqs",)),
    waiting=Source(("sglang:num_queue_reqs",)),
    kv_ratio=Source(("sglang:token_usage",), worst=True),
    preemptions_total=Source(("sglang:num_retracted_requests_total",)),
    output_tokens_total=Source(("sglang:realtime_tokens_total", "sglang:generation_tokens_total")),
    ttft=("sglang:time_to_first_token_seconds",),
    tpot=("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
    extra=("sglang:max_total_num_tokens",),
)


class SGLang:
    """`/metrics` answers only where the engine runs with `--enable-metrics`."""

    name = "sglang"
    interval_s = 1.0
    paths: tuple[str, ...] = ("/metrics",)
    facts_paths: tuple[str, ...] = ()

    def read(self, pages: Mapping[str, bytes]) -> Telemetry:
        """Understand `/metrics`."""
        samples = parse(pages.get("/metrics", b""), TABLE.wanted)
        sizes = samples.get("sglang:max_total_num_tokens", {})
        return TABLE.read(samples, kv_capacity_tokens=count(min(sizes.values(), default=None)) or None)
