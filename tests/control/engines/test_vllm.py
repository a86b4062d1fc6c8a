from pathlib import Path

import pytest

from control.engines.base import Telemetry, Total
from control.engines.vllm import Vllm

FIXTURES = Path(__file__).parents[2] / "fixtures" / "telemetry"


def read(page: bytes) -> Telemetry:
    return Vllm().read({"/metrics": page})


@pytest.mark.parametrize(
    ("name", "running", "waiting", "kv_ratio", "preemptions", "capacity"),
    [
        ("idle-fresh", 0, 0, 0.0, 0, 1_048_576),
        ("idle-after-load", 0, 0, 0.0, 0, 1_048_576),
        ("running-8of8-nowait", 8, 0, 0.0009766817238432424, 0, 1_048_576),
        ("running8-waiting12-rejections8", 8, 12, 0.2947368421052632, 0, 3072),
        ("kv-near-full-preempted-waiting", 7, 1, 0.9578947368421052, 0, 3072),
        ("preemptions-counted-late", 2, 2, 0.368421052631579, 2, 3072),
        ("after-preemptions", 0, 0, 0.0, 4, 3072),
    ],
)
def test_real_captures_read_as_what_they_show(
    name: str, running: int, waiting: int, kv_ratio: float, preemptions: int, capacity: int
) -> None:
    told = read((FIXTURES / f"vllm-0.32.0-{name}.txt").read_bytes())
    assert (told.running, told.waiting, told.kv_ratio) == (running, waiting, kv_ratio)
    assert (told.preemptions_total, told.kv_capacity_tokens) == (preemptions, capacity)
    assert told.kv_source == "gauge"
    assert told.started_at is not None


def test_old_names_are_understood() -> None:
    told = read((FIXTURES / "vllm-v0-0.6-assembled.txt").read_bytes())
    assert (told.running, told.waiting, told.kv_ratio) == (12, 4, 0.71)
    assert told.tpot == Total(1000.0, 31.0)
    assert told.kv_capacity_tokens is None


def test_the_new_name_wins_where_both_are_there() -> None:
    """A27 (c)."""
    assert read(b"vllm:gpu_cache_usage_perc 0.1\nvllm:kv_cache_usage_perc 0.7").kv_ratio == 0.7


def test_several_engines_are_added_up_and_the_worst_kv_counts() -> None:
    """A27 (d)."""
    told = read(
        b'vllm:kv_cache_usage_perc{engine="0"} 0.2\nvllm:kv_cache_usage_perc{engine="1"} 0.9\n'
        b'vllm:num_requests_waiting{engine="0"} 3\nvllm:num_requests_waiting{engine="1"} 4\n'
    )
    assert (told.kv_ratio, told.waiting) == (0.9, 7)


def test_a_page_without_a_kv_name_is_unknown_never_zero() -> None:
    """A27 (e)."""
    told = read(b"vllm:num_requests_running 3\n")
    assert told.kv_ratio is None
    assert told.kv_source is None


def test_capacity_is_blocks_times_block_size_unless_told_in_tokens() -> None:
    assert read(b'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1').kv_capacity_tokens == 1600
    assert (
        read(b'vllm:cache_config_info{kv_cache_size_tokens="777",block_size="16"} 1').kv_capacity_tokens
        == 777
    )
    assert (
        read(b'vllm:cache_config_info{block_size="None",num_gpu_blocks="100"} 1').kv_capacity_tokens is None
    )


@pytest.mark.parametrize("page", [b"", b"<html>", b"\x00" * 1000, b"vllm:num_requests_running{ 3"])
def test_nonsense_is_nothing(page: bytes) -> None:
    assert read(page).is_empty
