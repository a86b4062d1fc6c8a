"""SGLang, TensorRT-LLM, TGI and "none": assembled samples, since these engines could not be run."""

from pathlib import Path

from control.engines.base import Telemetry, Total
from control.engines.registry import DIALECTS, dialect
from control.engines.sglang import SGLang
from control.engines.tensorrt_llm import Triton, TrtllmServe
from control.engines.tgi import Tgi

FIXTURES = Path(__file__).parents[2] / "fixtures" / "telemetry"


def page(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


def test_sglang_is_understood() -> None:
    told = SGLang().read({"/metrics": page("sglang-0.5.23-assembled.txt")})
    assert (told.running, told.waiting, told.kv_ratio) == (48, 17, 0.93)
    assert told.kv_capacity_tokens == 131072
    assert told.preemptions_total == 3
    assert told.ttft == Total(100.0, 41.0)


def test_trtllm_serve_is_understood() -> None:
    told = TrtllmServe().read({"/prometheus/metrics": page("trtllm-serve-main2026-assembled.txt")})
    assert (told.running, told.waiting, told.kv_ratio) == (32, 9, 0.88)
    assert told.kv_capacity_tokens == 4096 * 32
    assert told.max_seqs == 2048


def test_triton_is_understood() -> None:
    told = Triton().read({"/metrics": page("triton-trtllm-assembled.txt")})
    assert (told.running, told.waiting, told.kv_ratio) == (4, 3, 0.6)
    assert told.kv_capacity_tokens == 6000 * 64
    assert told.max_seqs == 512


def test_tgi_is_understood() -> None:
    told = Tgi().read({"/metrics": page("tgi-3-assembled.txt")})
    assert (told.running, told.waiting, told.kv_ratio) == (24, 5, None)


def test_every_dialect_survives_missing_and_empty_pages() -> None:
    for each in DIALECTS.values():
        assert each.read({}).is_empty
        assert each.read(dict.fromkeys((*each.paths, *each.facts_paths), b"")).is_empty


def test_an_unknown_engine_tells_nothing() -> None:
    assert dialect("ollama").read({"/metrics": b"vllm:num_requests_running 3"}) == Telemetry()
    assert dialect("vllm").name == "vllm"
