"""Where the jobs of a plan run, by name."""

from __future__ import annotations

from comsd.config import choose
from comsd.jobs.executor import Executor, Resources
from comsd.jobs.local import LocalExecutor

WHERE = {"local": "processes of this machine"}


def make_executor(
    on: str = "local", *, jobs: int = 0, cpus: int = 0, gpus: float = 0.0
) -> Executor:
    """jobs: at a time, 0 as many as fit; cpus, gpus: of each job."""
    choose("on", on, WHERE)
    return LocalExecutor(Resources(cpus, gpus, jobs))
