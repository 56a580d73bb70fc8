"""Planning and carrying out a sweep."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from comsd.config import shown
from comsd.errors import InputError
from comsd.jobs.cost import Overrides, Work, job_total, relative_seconds
from comsd.jobs.executor import Executor
from comsd.jobs.scheduler import Report, Watch, driver_lock, execute, raise_failures
from comsd.jobs.size import job_size
from comsd.sweeps.course import Course
from comsd.sweeps.sweep import FILE, Sweep, read_sweep

WORK = (  # settings on which the work of a step or the size of a run depends
    "agent.hidden",
    "method.hidden",
    "skills",
    "train.batch_size",
    "train.envs",
    "train.replay",
    "train.update_every",
    "train.representation_steps",
)
NOTHING = Work()
DISTINCT = 40  # combinations of them that are counted one by one


@dataclass
class Estimate:
    runs: int = 0
    work: Work = NOTHING
    disk: int = 0  # bytes


def estimate(sweep: Sweep) -> dict[str, Estimate]:
    """By stage; nothing is trained. Successive halving is counted with its promotions."""
    parts: defaultdict[str, Estimate] = defaultdict(Estimate)
    known: set[Overrides] = set()
    seen: set[str] = set()
    for number, trial in enumerate(sweep.known_trials()):
        pretrain, adapt = sweep.split(trial)
        before = 0
        for rung, (count, _) in enumerate(sweep.rungs):
            if number >= count:  # which ones go on is not known: the first stand for them
                break
            for job in sweep.chain(trial, 1, rung):
                overrides = sweep.overrides(pretrain if job.stage == "pretrain" else adapt)
                work = tuple((n, v) for n, v in overrides.items() if n in WORK)
                if work not in known and len(known) >= DISTINCT:
                    work = ()
                known.add(work)
                steps = job.steps or overrides.get("steps")
                if isinstance(steps, int):
                    job = dataclasses.replace(job, steps=steps)
                total, part = job_total(job, work), parts[job.stage]
                if job.place not in seen:
                    seen.add(job.place)
                    part.runs += sweep.seeds
                    part.disk += job_size(job, work).disk * sweep.seeds
                elif job.stage != "pretrain" or before == 0:
                    continue  # trials that differ in the task's settings share it
                share = 1 - before / total.steps if job.stage == "pretrain" else 1.0
                part.work = part.work.plus(total, share * sweep.seeds)
                if job.stage == "pretrain":
                    before = total.steps
    return dict(parts)


def check_directory(sweep: Sweep, root: Path) -> None:
    """A directory holds one sweep; more seeds, trials and values may be added to it."""
    if (root / FILE).exists():
        before, _ = read_sweep(root)
        field = sweep.same_kind(before)
        if field is not None:
            here, asked = getattr(before, field), getattr(sweep, field)
            raise InputError(
                f"{field} is {shown(asked)}, but {root} holds a sweep with {shown(here)}; "
                "another --dir"
            )


def carry_out_sweep(
    sweep: Sweep, root: Path, executor: Executor, report: Report, watch: Watch = lambda _: None
) -> None:
    """Train everything that is missing; raises RunError at the end if a run failed."""
    check_directory(sweep, root)
    with driver_lock(root):
        trials = read_sweep(root)[1] if (root / FILE).exists() else []
        course = Course(sweep, root, trials, executor.slots)
        course.save()
        jobs = course.first_jobs()
        more, seconds = course.more, relative_seconds
        failed = execute(jobs, root, executor, report, seconds=seconds, more=more, watch=watch)
    raise_failures(failed, root)
