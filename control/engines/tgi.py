"""Text Generation Inference: queue and batch size; no KV figure."""

from collections.abc import Mapping

from control.engines.base import Source, Table, Telemetry, parse

TABLE = Table(
    running=Source(("tgi_batch_current_size",)),
    waiting=Source(("tgi_queue_size",)),
    tpot=("tgi_request_mean_time_per_token_duration",),
)


class Tgi:
    """Tells least of all engines with a metrics page."""

    name = "tgi"
    interval_s = 1.0
    paths: tuple[str, ...] = ("/metrics",)
    facts_paths: tuple[str, ...] = ()

    def read(self, pages: Mapping[str, bytes]) -> Telemetry:
        """Understand `/metrics`."""
        return TABLE.read(parse(pages.get("/metrics", b""), TABLE.wanted))
