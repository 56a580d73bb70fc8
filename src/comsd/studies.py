"""The verbs for many runs: what the command line calls and what a notebook calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comsd.api import Report, silent
from comsd.jobs.executors import make_executor
from comsd.reproduction.page import write_report
from comsd.reproduction.plan import carry_out, make_plan
from comsd.sweeps.make import make_sweep
from comsd.sweeps.page import write_sweep_report
from comsd.sweeps.ranking import Ranked, best_commands
from comsd.sweeps.run import carry_out_sweep
from comsd.sweeps.settings import Value


def reproduce(
    exhibit: str,
    /,
    *,
    dir: Path | str = "reproduction",
    preset: str = "paper",
    seeds: int | None = 3,
    domains: Sequence[str] = (),
    methods: Sequence[str] = (),
    tasks: Sequence[str] = (),
    report: Report = silent,
    where: Mapping[str, Any] | None = None,
) -> Path:
    """All runs behind a table or figure of the paper, or `all`; returns the path of the report.

    seeds: None takes the paper's number. where: `{"on": "ray", "gpus": 0.25}`, names as in
    `comsd reproduce --help`. The same call again continues.
    """
    asked = {"domains": domains, "methods": methods, "tasks": tasks}
    plan = make_plan(exhibit, preset, seeds=seeds, **asked)
    carry_out(plan, Path(dir) / preset, make_executor(**(where or {})), report)
    return write_report(dir)


@dataclass(frozen=True)
class SweepResult:
    ranking: list[Ranked]  # the best first
    commands: list[str]  # that train the best configuration anew
    page: Path


def sweep(
    method: str,
    /,
    *,
    env: str,
    settings: Mapping[str, str | Sequence[Value]],
    dir: Path | str = "sweep",
    report: Report = silent,
    where: Mapping[str, Any] | None = None,
    **options: Any,
) -> SweepResult:
    """Train with many settings and rank them; the same call again continues.

    settings: lists (`{"method.alpha": [0.1, 0.5]}`) or ranges (`{"agent.lr": "1e-5..1e-3:log"}`).
    options: `preset`, `seeds`, `trials`, `sampler`, `task`, `adapt`, `rank`, `lowest` and `halve`
    as in `comsd sweep --help`; where: as for `reproduce`.
    """
    asked = make_sweep(method, env, settings, **options)
    carry_out_sweep(asked, Path(dir), make_executor(**(where or {})), report)
    page, ranking = write_sweep_report(Path(dir))
    return SweepResult(ranking, best_commands(asked, ranking[0].trial) if ranking else [], page)
