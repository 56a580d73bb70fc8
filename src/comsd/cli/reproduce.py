"""The paper's exhibits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Literal

from comsd.cli.console import new_table, read_arguments, say, show
from comsd.errors import InputError
from comsd.options import Option
from comsd.reproduce.executor import LocalExecutor, execute
from comsd.reproduce.exhibits import EXHIBITS
from comsd.reproduce.page import write_report
from comsd.reproduce.plan import Plan, make_plan

Preset = Literal["paper", "lite", "smoke"]
OPTIONS = [
    Option("--preset", Preset, "scale of all runs; never mixed in a report", "paper"),
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
        name,
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
    jobs = Counter((j.stage, j.env, j.arm.name) for j in plan.jobs)
    done = Counter((j.stage, j.env, j.arm.name) for j in plan.jobs if j.finished(root))
    for key, count in jobs.items():
        table.add_row(*key, str(count), str(done[key]))
    show(table)
    hours = plan.seconds(root) / 3600
    kind = f"{plan.exhibit} ({EXHIBITS[plan.exhibit].where}), preset {plan.preset}"
    left = [f"{h:.2g}" if h < 10 else f"{h:,.0f}" for h in (hours, hours / slots)]
    print(f"{kind}: {len(plan.jobs)} jobs in {root}; left: about {left[0]} core hours, ", end="")
    print(f"{left[1]} hours with {slots} processes (an estimate from counted work)", flush=True)


def report(argv: list[str]) -> None:
    about = "DIR is the directory of `comsd reproduce`."
    place, _ = read_arguments(argv, "comsd report DIR", [], about)
    print(f"report: {write_report(place)}")
