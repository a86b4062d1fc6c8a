import re
from pathlib import Path

from control.engines import llama_cpp, sglang, tensorrt_llm, tgi, vllm
from control.engines.registry import DIALECTS
from control.models.policy import ENGINES

DOCUMENT = (Path(__file__).parents[3] / "docs" / "engines.md").read_text()


def test_an_operator_can_choose_each_engine_that_is_understood() -> None:
    assert {name for name, _ in ENGINES} == set(DIALECTS)


def test_the_document_has_each_engine_with_its_pages_and_its_pace() -> None:
    for name, dialect in DIALECTS.items():
        if dialect.paths:
            (row,) = re.findall(rf"^\| `{name}` \|.*$", DOCUMENT, re.MULTILINE)
            assert all(f"`{path}`" in row for path in (*dialect.paths, *dialect.facts_paths))
            assert f"| {dialect.interval_s:.0f} s |" in row


def test_the_document_names_what_is_read_and_nothing_else() -> None:
    told = set(re.findall(r"`((?:vllm|sglang|llamacpp):\w+|(?:trtllm|tgi|nv_trt_llm)_\w+)`", DOCUMENT))
    tables = (vllm.TABLE, sglang.TABLE, tensorrt_llm.SERVE, tensorrt_llm.TRITON, tgi.TABLE, llama_cpp.TABLE)
    read = (set(table.wanted) | {*table.ttft, *table.tpot} for table in tables)
    assert told <= set().union(*read)
    kinds = ("running", "waiting", "kv_ratio", "preemptions_total", "output_tokens_total")
    for table in tables:
        for kind in kinds:
            source = getattr(table, kind)
            assert source is None or set(source.names) <= told, (kind, source)
        assert {*table.ttft, *table.tpot} <= told
