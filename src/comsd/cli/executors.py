"""Options that say where the jobs of a plan run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comsd.jobs.executor import Executor
from comsd.jobs.executors import make_executor
from comsd.options import Option

OPTIONS = [
    Option("--jobs", int, "runs at a time; 0: as many as fit", 0),
    Option("--cpus", int, "cores of each run; 0: one, or more if cores are left", 0),
    Option("--gpus", float, "share of a GPU of each run: 0.25 lets four use one", 0.0),
]


def executor_of(values: Mapping[str, Any]) -> Executor:
    return make_executor(**{o.name.removeprefix("--"): values[o.name] for o in OPTIONS})
