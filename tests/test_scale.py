"""Plans of 100,000 runs: how long the planning takes, and what the scheduler makes of a cluster."""

from __future__ import annotations

import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from comsd.sweeps.make import make_sweep
from comsd.sweeps.run import estimate

FILE = Path(__file__).parent.parent / "benchmarks" / "scheduler.py"


@pytest.fixture(scope="module")
def scheduler() -> ModuleType:
    spec = spec_from_file_location("scheduler_benchmark", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_makespan_is_near_the_bound(scheduler: ModuleType) -> None:
    found = scheduler.simulate(None)
    assert found["bound"] <= found["makespan"] <= 1.2 * found["bound"]
    assert found["lost"] == 0


def test_failures_cost_little(scheduler: ModuleType) -> None:
    found = scheduler.simulate(1.0, runs=20_000)  # every node once a day
    assert found["failures"] > 50
    assert 0 < found["lost"] < 0.01 * found["worked"]
    lost_per_run = found["lost"] / found["failures"] / scheduler.PER_NODE
    assert lost_per_run < scheduler.CHECKPOINT  # at most one interval


def test_a_hundred_thousand_runs_are_planned_in_seconds() -> None:
    began = time.process_time()
    settings = {"agent.lr": "1e-5..1e-3:log", "method.alpha": "0.01..1:log"}
    asked = make_sweep("comsd", "walker", settings, trials=33_334, sampler="random")
    parts = estimate(asked)
    assert parts["pretrain"].runs == 100_002
    assert time.process_time() - began < 20
