"""Cases in several processes."""

from gateway.simulation.scenarios.cases import Case
from gateway.simulation.scenarios.pool import run_all

CASES = [Case("gpu", "unloaded", seed=seed) for seed in (1, 2, 1)]


def test_each_case_runs_once_and_processes_change_nothing():
    alone = list(run_all(CASES, processes=1))
    together = list(run_all(CASES, processes=2))
    assert len(alone) == len(together) == 2
    assert dict(alone) == dict(together)
