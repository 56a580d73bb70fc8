"""The verbs for many runs: what the command line calls and what a notebook calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from comsd.api import Report, silent
from comsd.arguments import (
    as_flag,
    as_mapping,
    as_names,
    as_number,
    as_path,
    as_text,
    check_report,
    plain,
)
from comsd.config import SCALES, Precision, choose, shown
from comsd.errors import InputError
from comsd.jobs.executor import Executor
from comsd.jobs.executors import make_executor
from comsd.reproduction.keep import keep_runs
from comsd.reproduction.page import write_report
from comsd.reproduction.plan import carry_out, make_plan, not_kept
from comsd.reproduction.run_page import is_run, write_run_report
from comsd.runs.run import Run
from comsd.sweeps.make import make_sweep
from comsd.sweeps.page import write_sweep_report
from comsd.sweeps.ranking import Ranked, best_commands
from comsd.sweeps.run import carry_out_sweep
from comsd.sweeps.settings import FORM, Value
from comsd.sweeps.sweep import FILE

MOST_SEEDS = 1000
MOST_TRIALS = 100_000
MOST_JOBS = 100_000  # at a time


def executor_of(where: Mapping[str, Any] | None) -> Executor:
    """What `where` names, checked as the options of the command line are."""
    given = {} if where is None else as_mapping("where", where)
    checks: dict[str, Any] = {
        "on": as_text,
        "jobs": lambda name, value: as_number(name, value, int, 0, MOST_JOBS),
        "cpus": lambda name, value: as_number(name, value, int, 0, MOST_JOBS),
        "gpus": lambda name, value: as_number(name, value, float, 0, 1),
        "address": lambda name, value: None if value is None else as_text(name, value),
        "carry": as_text,
        "slurm": as_text,
    }
    return make_executor(**{n: choose("where", n, checks)(n, v) for n, v in given.items()})


def sweep_options(options: Mapping[str, Any]) -> dict[str, Any]:
    def text_or_none(name: str, value: object) -> str | None:
        return None if value is None else as_text(name, value)

    def trials_or_none(name: str, value: object) -> int | None:
        return None if value is None else as_number(name, value, int, 1, MOST_TRIALS)

    checks: dict[str, Any] = {
        "preset": as_text,
        "seeds": lambda name, value: as_number(name, value, int, 1, MOST_SEEDS),
        "trials": trials_or_none,
        "sampler": as_text,
        "task": text_or_none,
        "adapt": as_text,
        "rank": text_or_none,
        "lowest": as_flag,
        "halve": lambda name, value: as_number(name, value, int, 0, MOST_TRIALS),
    }
    return {n: choose("option of sweep", n, checks)(n, v) for n, v in options.items()}


def swept_settings(settings: object) -> dict[str, str | list[Value]]:
    """Texts as on the command line, or lists of numbers, texts and booleans."""
    found: dict[str, str | list[Value]] = {}
    for name, given in as_mapping("settings", settings).items():
        values = plain(given)
        if isinstance(values, list | tuple):
            values = [plain(value) for value in values]
        if not isinstance(values, str | list) or not all(
            isinstance(value, int | float | str) for value in values
        ):
            raise InputError(f"{name} is {shown(given)}; it must be a list of values or {FORM}")
        found[name] = values
    return found


def reproduce(
    exhibit: str,
    /,
    *,
    dir: Path | str = "reproduction",
    preset: str = "paper",
    seeds: int | None = None,
    precision: Precision = "float32",
    domains: Sequence[str] = (),
    methods: Sequence[str] = (),
    tasks: Sequence[str] = (),
    controllers: Sequence[str] = (),
    kept: Path | str | None = None,
    report: Report = silent,
    where: Mapping[str, Any] | None = None,
) -> Path:
    """All runs behind a table or figure of the paper, or `all`; returns the path of the report.

    seeds: None takes the paper's number at its scale, 3 at others. controllers: of skills.
    kept: a directory of runs that are not trained again, made by `report(..., keep=...)`.
    where: `{"on": "ray", "gpus": 0.25}`, names as in `comsd reproduce --help`. The same call
    again continues.
    """
    asked = {"domains": domains, "methods": methods, "tasks": tasks, "controllers": controllers}
    chosen = {name: as_names(name, value) for name, value in asked.items()}
    number = None if seeds is None else as_number("seeds", seeds, int, 1, MOST_SEEDS)
    place, preset = as_path("dir", dir), choose("preset", preset, {p: p for p in SCALES})
    check_report(report)
    choose("precision", precision, dict.fromkeys(get_args(Precision)))
    name = as_text("exhibit", exhibit)
    plan = make_plan(name, preset, seeds=number, precision=precision, **chosen)
    plan = plan if kept is None else not_kept(plan, as_path("kept", kept))
    carry_out(plan, place / preset, executor_of(where), report)
    return write_report(place)


@dataclass(frozen=True)
class SweepResult:
    ranking: list[Ranked]  # the best first
    commands: list[str]  # that train the best configuration anew
    page: Path


def sweep(
    method: str | Sequence[str],
    /,
    *,
    env: str,
    settings: Mapping[str, str | Sequence[Value]] | None = None,
    dir: Path | str = "sweep",
    report: Report = silent,
    where: Mapping[str, Any] | None = None,
    **options: Any,
) -> SweepResult:
    """Train with many methods or settings and rank them; the same call again continues.

    settings: lists (`{"method.alpha": [0.1, 0.5]}`) or ranges (`{"agent.lr": "1e-5..1e-3:log"}`).
    options: `preset`, `seeds`, `trials`, `sampler`, `task`, `adapt`, `rank`, `lowest` and `halve`
    as in `comsd sweep --help`; where: as for `reproduce`.
    """
    place, chosen = as_path("dir", dir), sweep_options(options)
    check_report(report)
    methods = as_names("method", [method] if isinstance(method, str) else method)
    asked = make_sweep(
        ",".join(methods), as_text("env", env), swept_settings(settings or {}), **chosen
    )
    carry_out_sweep(asked, place, executor_of(where), report)
    page, ranking = write_sweep_report(place)
    return SweepResult(ranking, best_commands(asked, ranking[0].trial) if ranking else [], page)


def report(
    directory: Path | str, *, out: Path | str | None = None, keep: Path | str | None = None
) -> Path:
    """The page about a run, or a directory of `comsd reproduce` or `comsd sweep`; its path.

    keep: a directory for copies of what `comsd reproduce` has finished, without weights, so small
    that they can be published. A report can be made of the copies, too.
    """
    place, folder = as_path("directory", directory), None if out is None else as_path("out", out)
    single, swept = is_run(place), (place / FILE).exists()
    if keep is not None:
        if single or swept:
            raise InputError("keep is for a directory of `comsd reproduce`")
        keep_runs(place, as_path("keep", keep))
    if single:
        return write_run_report(Run(place), folder)
    return write_sweep_report(place, folder)[0] if swept else write_report(place, folder)
