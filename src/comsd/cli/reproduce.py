"""The paper's exhibits."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from comsd.cli.console import new_table, read_arguments, say, show
from comsd.errors import InputError
from comsd.options import Option
from comsd.reproduce import EXHIBITS, LocalExecutor, Plan, execute, exhibit, make_plan, write_report

OPTIONS = [
    Option(
        "--preset",
        Literal["paper", "lite", "smoke"],
        "scale of all runs; never mixed in a report",
        "paper",
    ),
    Option("--domains", str, "robots [the exhibit's]", several=True),
    Option("--methods", str, "methods and variants [the exhibit's]", several=True),
    Option("--tasks", str, "tasks [the exhibit's]", several=True),
    Option("--seeds", int, "seeds 1 to N of everything", 3),
    Option("--dir", Path, "where runs and report go", Path("reproduction")),
    Option("--jobs", int, "processes at a time; 0: one per core", 0),
    Option("--plan", bool, "only print the plan"),
]


def reproduce(argv: list[str]) -> None:
    about = f"EXHIBIT is one of {', '.join(EXHIBITS)}."
    name, given = read_arguments(argv, "comsd reproduce EXHIBIT", OPTIONS, about)
    values = {option.name: option.default for option in OPTIONS} | given
    if values["--jobs"] < 0:
        raise InputError(f"jobs is {values['--jobs']}; it must be at least 0")
    plan = make_plan(
        exhibit(name),
        values["--preset"],
        seeds=values["--seeds"],
        domains=values["--domains"] or (),
        methods=values["--methods"] or (),
        tasks=values["--tasks"] or (),
    )
    root = values["--dir"] / values["--preset"]
    executor = LocalExecutor(values["--jobs"] or None)
    show_plan(plan, root, executor.slots)
    if values["--plan"]:
        return
    try:
        execute(plan, root, executor, say)
    finally:
        if any(root.glob("*/*/*/config.json")):
            print(f"report: {write_report(values['--dir'])}")


def show_plan(plan: Plan, root: Path, slots: int) -> None:
    table = new_table("stage", "environment", "arm", "runs", "finished")
    for (stage, env, arm), (jobs, done) in plan.counts(root).items():
        table.add_row(stage, env, arm, str(jobs), str(done))
    show(table)
    hours = plan.seconds(root) / 3600
    kind = f"{plan.exhibit.name} ({plan.exhibit.where}), preset {plan.preset}"
    left = [f"{h:.2g}" if h < 10 else f"{h:,.0f}" for h in (hours, hours / slots)]
    print(f"{kind}: {len(plan.jobs)} jobs in {root}; left: about {left[0]} core hours, ", end="")
    print(f"{left[1]} hours with {slots} processes (an estimate from counted work)", flush=True)


def report(argv: list[str]) -> None:
    about = "DIR is the directory of `comsd reproduce`."
    place, _ = read_arguments(argv, "comsd report DIR", [], about)
    print(f"report: {write_report(place)}")
