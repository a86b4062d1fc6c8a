"""The search for the best static limits."""

import pytest

from gateway.simulation.scenarios import baselines, sweep
from gateway.simulation.scenarios.baselines import Best
from tests.gateway.simulation.scenarios.test_measuring import made


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "baselines.json"
    path.write_text('{"gpu/kept": {"limit": 1, "goodput": 2.0}}')
    monkeypatch.setattr(baselines, "FILE", path)
    baselines.figures.cache_clear()
    yield path
    baselines.figures.cache_clear()


def test_a_sweep_keeps_the_best_limit_and_the_valve_where_it_is_better(file, monkeypatch):
    def run_all(cases):
        for case in cases:
            goodput = 999.0 if case.guard == "valve" else 100.0 - abs(int(case.guard) - 11)
            yield case, made(goodput=goodput)

    monkeypatch.setattr(sweep, "run_all", run_all)
    found = sweep.sweep(("gpu/long", "llama4/x1"))
    assert found["gpu/long"] == Best(11, 999.0)
    assert found["llama4/x1"] == Best(4, 93.0)
    baselines.figures.cache_clear()
    assert baselines.best("gpu", "long") == Best(11, 999.0)
    assert baselines.best("gpu", "kept") == Best(1, 2.0)
