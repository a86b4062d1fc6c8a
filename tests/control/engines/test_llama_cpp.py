from pathlib import Path

import pytest

from control.engines.llama_cpp import LlamaCpp

FIXTURES = Path(__file__).parents[2] / "fixtures" / "telemetry"
SLOTS = (FIXTURES / "llamacpp-b10434-slots-overload.json.txt").read_bytes()


@pytest.mark.parametrize(
    ("name", "running", "waiting"), [("idle", 0, 0), ("after-load", 1, 0), ("overload-4slots-12req", 4, 4)]
)
def test_real_captures_read_as_what_they_show(name: str, running: int, waiting: int) -> None:
    told = LlamaCpp().read({"/metrics": (FIXTURES / f"llamacpp-b10434-{name}.txt").read_bytes()})
    assert (told.running, told.waiting) == (running, waiting)
    assert told.kv_ratio is None
    assert told.max_seqs is None


def test_kv_is_derived_from_the_slots_and_the_capacity_account_stays_off() -> None:
    told = LlamaCpp().read(
        {"/slots": SLOTS, "/props": b'{"total_slots":4,"default_generation_settings":{"n_ctx":2048}}'}
    )
    assert told.kv_ratio == pytest.approx(4 * 72 / (4 * 2048))
    assert told.kv_source == "slots"
    assert told.kv_capacity_tokens is None
    assert (told.max_seqs, told.context_tokens) == (4, 2048)


def test_slots_alone_tell_seats_and_context() -> None:
    told = LlamaCpp().read({"/slots": SLOTS})
    assert (told.max_seqs, told.context_tokens) == (4, 2048)


def test_idle_slots_without_prompt_tokens_count_as_empty() -> None:
    told = LlamaCpp().read(
        {"/slots": b'[{"n_ctx":100,"is_processing":false},{"n_ctx":100,"is_processing":true}]'}
    )
    assert told.kv_ratio == 0.0


@pytest.mark.parametrize(
    "page",
    [
        b"{}",
        b"[",
        b'[{"n_ctx":"x","is_processing":true}]',
        b'[{"n_ctx":-5,"is_processing":true}]',
        b"null",
        b"[" * 200_000,
        b'[{"n_ctx":1,"is_processing":true,"n_prompt_tokens":' + b"9" * 400 + b"}]",
        b'[{"n_ctx":' + b"9" * 400 + b',"is_processing":true}]',
    ],
)
def test_nonsense_slots_are_unknown(page: bytes) -> None:
    told = LlamaCpp().read({"/slots": page, "/props": page})
    assert told.kv_ratio is None
    assert told.max_seqs is None
