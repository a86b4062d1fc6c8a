"""One real system for all end-to-end tests: llama.cpp, Valkey, Django, Celery, gateway, each a process of its own."""

from collections.abc import Iterator

import pytest

from tests.fakes.llama_cpp import LlamaServer
from tests.fakes.system import System

SLOTS = 4


@pytest.fixture(scope="session")
def engine() -> Iterator[LlamaServer]:
    with LlamaServer(slots=SLOTS, width=512, layers=8, alias="tiny") as server:
        yield server


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory, engine: LlamaServer) -> Iterator[System]:
    state = tmp_path_factory.mktemp("system")
    with System(state, [f"llama={engine.url},llama_cpp,{SLOTS}"], model=engine.alias) as running:
        yield running
