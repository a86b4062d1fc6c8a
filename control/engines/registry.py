"""Which dialect an engine's name means."""

from collections.abc import Mapping
from typing import Final

from control.engines.base import Dialect, Telemetry
from control.engines.llama_cpp import LlamaCpp
from control.engines.sglang import SGLang
from control.engines.tensorrt_llm import Triton, TrtllmServe
from control.engines.tgi import Tgi
from control.engines.vllm import Vllm


class Silent:
    """An engine that tells nothing (Ollama, unknown ones): the gateway's own signals must do, and do."""

    name = "none"
    interval_s = 1.0
    paths: tuple[str, ...] = ()
    facts_paths: tuple[str, ...] = ()

    def read(self, pages: Mapping[str, bytes]) -> Telemetry:  # noqa: ARG002  # the protocol's
        """Nothing is known."""
        return Telemetry()


DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.name: dialect
    for dialect in (Vllm(), SGLang(), TrtllmServe(), Triton(), Tgi(), LlamaCpp(), Silent())
}


def dialect(engine: str) -> Dialect:
    """The dialect of that name; an unknown name tells nothing."""
    return DIALECTS.get(engine, DIALECTS["none"])
