"""The paper's exhibits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import comsd
from comsd.cli import executors
from comsd.cli.console import echo, read_arguments
from comsd.cli.sweep import report_sweep
from comsd.cli.tables import Table, show
from comsd.cli.watch import JobTable
from comsd.config import Precision, Preset
from comsd.jobs.cost import Work, job_total
from comsd.jobs.size import job_size
from comsd.options import Option
from comsd.reproduction.exhibits import EXHIBITS
from comsd.reproduction.page import write_report
from comsd.reproduction.plan import ALL, Plan, carry_out, make_plan, not_kept
from comsd.sweeps.sweep import FILE

OPTIONS = [
    Option("--preset", Preset, "scale of all runs; never mixed in a report", "paper"),
    Option("--precision", Precision, "bf16 is faster where the processor has it", "float32"),
    Option("--domains", str, "robots [the exhibit's]", several=True),
    Option("--methods", str, "methods and variants [the exhibit's]", several=True),
    Option("--tasks", str, "tasks [the exhibit's]", several=True),
    Option("--controllers", str, "of skills: continuous, discrete [both]", several=True),
    Option("--seeds", int, "seeds 1 to N [the paper's number at its scale, else 3]"),
    Option("--dir", Path, "where runs and report go", Path("reproduction")),
    Option("--kept", Path, "only what is not among the runs kept there by report --keep"),
    *executors.OPTIONS,
    Option("--plan", bool, "only print the plan"),
]


def reproduce(argv: list[str]) -> None:
    about = f"EXHIBIT is one of {', '.join(EXHIBITS)}, or {ALL}."
    name, given = read_arguments(argv, "comsd reproduce EXHIBIT", OPTIONS, about)
    values = {option.name: option.default for option in OPTIONS} | given
    plan = make_plan(
        name,
        values["--preset"],
        seeds=values["--seeds"],
        precision=values["--precision"],
        domains=values["--domains"] or (),
        methods=values["--methods"] or (),
        tasks=values["--tasks"] or (),
        controllers=values["--controllers"] or (),
    )
    if values["--kept"]:
        plan = not_kept(plan, values["--kept"])
    root = values["--dir"] / values["--preset"]
    if values["--plan"]:
        show_plan(plan, root, executors.planned_slots(values))
        return
    executor = executors.executor_of(values)
    show_plan(plan, root, executor.slots)
    try:
        with JobTable() as table:
            carry_out(plan, root, executor, table.report, table)
    finally:
        if any(root.glob("*/*/*/config.json")):
            echo(f"report: {write_report(values['--dir'])}")


def show_plan(plan: Plan, root: Path, slots: int) -> None:
    table = Table("stage", "environment", "arm", "runs", "finished")
    left = [job for job in plan.jobs if not job.finished(root)]
    jobs = Counter((j.stage, j.env, j.arm) for j in plan.jobs)
    missing = Counter((j.stage, j.env, j.arm) for j in left)
    for key, count in jobs.items():
        table.add_row(*key, str(count), str(count - missing[key]))
    show(table)
    where = ", ".join(EXHIBITS[name].where for name in plan.exhibits)
    kind = f"{', '.join(plan.exhibits)} ({where}), preset {plan.preset}"
    echo(f"{kind}: {len(plan.jobs):,} jobs in {root}")
    work, disk, memory = Work(), 0, 0
    for job in left:
        size = job_size(job)
        work, disk, memory = work.plus(job_total(job)), disk + size.disk, max(memory, size.memory)
    executors.show_costs(work, disk, memory, slots)


def report(argv: list[str]) -> None:
    about = "DIR is the directory of a run, of `comsd reproduce` or of `comsd sweep`."
    options = [
        Option("--out", Path, "directory of the report", "DIR/report"),
        Option("--keep", Path, "directory for copies of the runs, without weights, to publish"),
    ]
    place, given = read_arguments(argv, "comsd report DIR", options, about)
    if (Path(place) / FILE).exists() and "--keep" not in given:
        report_sweep(Path(place), given.get("--out"))
    else:
        page = comsd.report(place, out=given.get("--out"), keep=given.get("--keep"))
        echo(f"report: {page}")
