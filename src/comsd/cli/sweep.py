"""Sweeps over settings."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, cast

from comsd.cli import executors
from comsd.cli.console import again, echo, env_of_file, show_help
from comsd.cli.tables import Table, show
from comsd.cli.watch import JobTable
from comsd.config import Preset
from comsd.errors import InputError
from comsd.jobs.cost import Work
from comsd.jobs.size import job_size
from comsd.options import Option, parse, wants_help
from comsd.sweeps.make import make_sweep
from comsd.sweeps.page import write_sweep_report
from comsd.sweeps.ranking import best_commands
from comsd.sweeps.run import carry_out_sweep, check_directory, estimate
from comsd.sweeps.settings import FORM
from comsd.sweeps.sweep import FILE, Sweep, read_sweep

OPTIONS = [
    Option("--env", str, "the environment; `comsd envs` lists them"),
    Option("--preset", Preset, "scale of all runs", "paper"),
    Option("--seeds", int, "seeds 1 to N of every trial", 3),
    Option("--trials", int, "trials that are sampled; without ranges: all combinations"),
    Option("--sampler", Literal["auto", "random", "tpe"], "tpe is Optuna's, an extra", "auto"),
    Option("--task", str, "a task for which the skills of every trial are used"),
    Option("--adapt", Literal["finetune", "combine"], "how", "finetune"),
    Option("--rank", str, "metric of evaluations to rank by [return; or what the skills do]"),
    Option("--lowest", bool, "the lowest is best"),
    Option("--halve", int, "successive halving: one in N goes on to N times the steps", 0),
    Option("--dir", Path, "where runs and report go", Path("sweep")),
    *executors.OPTIONS,
    Option("--plan", bool, "only print runs, steps, hours and disk"),
]
ABOUT = f"""\
Several methods, such as comsd,diayn,metra, are compared with each other.
SETTINGS are {FORM},
such as method.alpha=0.1,0.25,0.5 or agent.lr=1e-5..1e-3:log; `comsd config` lists them.
With --task, task.NAME is a setting of the adaptation. The same command again continues."""


def sweep(argv: list[str]) -> None:
    usage = "comsd sweep METHOD[,METHOD] --env ENV [SETTINGS]"
    if wants_help(argv):
        show_help(usage, OPTIONS, ABOUT)
    words, rest = take_settings(argv)
    (method,), given = parse(rest, OPTIONS, ["METHOD"])
    values = {option.name: option.default for option in OPTIONS} | given
    values["--env"] = values["--env"] or env_of_file()
    if values["--env"] is None:
        raise InputError(f"--env is missing: {usage}")
    asked = make_sweep(
        method,
        values["--env"],
        dict(words),
        preset=values["--preset"],
        seeds=values["--seeds"],
        trials=values["--trials"],
        sampler=values["--sampler"],
        task=values["--task"],
        adapt=values["--adapt"],
        rank=values["--rank"],
        lowest=bool(values["--lowest"]),
        halve=values["--halve"],
    )
    root = cast(Path, values["--dir"])
    check_directory(asked, root)
    if values["--plan"]:
        show_plan(asked, root, executors.planned_slots(values))
        return
    executor = executors.executor_of(values)
    show_plan(asked, root, executor.slots)
    try:
        with JobTable() as table:
            carry_out_sweep(asked, root, executor, table.report, table)
    finally:
        if (root / FILE).exists():
            report_sweep(root)


def take_settings(argv: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """The words that are settings, and the others."""
    takes_value = {option.name for option in OPTIONS if option.type is not bool}
    settings: list[tuple[str, str]] = []
    rest: list[str] = []
    for i, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if not equals or word.startswith("-") or (i and argv[i - 1] in takes_value):
            rest.append(word)
        elif name in dict(settings):
            raise InputError(f"{name} is given twice")
        else:
            settings.append((name, value))
    return settings, rest


def show_plan(asked: Sweep, root: Path, slots: int) -> None:
    table = Table("stage", "runs", "steps", "disk, GB")
    parts, work, memory = estimate(asked), Work(), 0
    for stage, part in parts.items():
        work = work.plus(part.work)
        disk = f"{part.disk / 1e9:,.3g}"
        table.add_row(stage, f"{part.runs:,}", f"{part.work.steps:,}", disk)
    show(table)
    for job in asked.chain(next(asked.known_trials()), 1):
        memory = max(memory, job_size(job).memory)
    trials = f"{asked.trials_wanted:,} trials of {asked.seeds} seeds in {root}"
    if asked.halve:
        kept = ", ".join(f"{n:,} to {steps:,} steps" for n, steps in asked.rungs)
        trials += f", successive halving: {kept}"
    echo(f"{trials}, ranked by {asked.rank}")
    executors.show_costs(work, sum(part.disk for part in parts.values()), memory, slots)


def report_sweep(root: Path, out: Path | None = None) -> None:
    """Write the page, and show the best trials."""
    page, ranked = write_sweep_report(root, out)
    asked, _ = read_sweep(root)
    table = Table("", *(s.name for s in asked.settings), asked.rank)
    for place, r in enumerate(ranked[:10], 1):
        table.add_row(str(place), *(str(value) for _, value in r.trial), r.cell.ours)
    if ranked:
        show(table)
        for command in best_commands(asked, ranked[0].trial):
            echo(f"best: {command}{again()}")
    echo(f"report: {page}")
