"""Planning and carrying out a sweep."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from comsd.errors import InputError
from comsd.jobs.cost import Overrides, job_seconds, job_work, relative_seconds
from comsd.jobs.executor import Executor
from comsd.jobs.job import Job
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
DISTINCT = 40  # combinations of them that are counted one by one


@dataclass(frozen=True)
class Estimate:
    runs: int
    steps: int
    seconds: float  # on one core
    disk: int  # bytes


def estimate(sweep: Sweep, rate: float) -> dict[str, Estimate]:
    """By stage; nothing is trained. Successive halving is counted with its promotions."""
    runs, steps, disk = Counter[str](), Counter[str](), Counter[str]()
    seconds: defaultdict[str, float] = defaultdict(float)
    known: set[Overrides] = set()
    for number, trial in enumerate(sweep.known_trials()):
        seen: set[str] = set()
        pretrain, adapt = sweep.split(trial)
        before = 0
        for rung, (count, _) in enumerate(sweep.rungs):
            if number >= count:  # which ones go on is not known: the first stand for them
                break
            for job in sweep.chain(trial, 1, rung):
                own = pretrain if job.stage == "pretrain" else adapt
                work = tuple((n, v) for n, v in sweep.overrides(own).items() if n in WORK)
                if work not in known and len(known) >= DISTINCT:
                    work = ()
                known.add(work)
                whole = job_seconds(job, rate, work)
                total = steps_of(job, dict(sweep.overrides(own)), work)
                share = 1 - before / total if job.stage == "pretrain" else 1.0
                seconds[job.stage] += whole * share * sweep.seeds
                steps[job.stage] += round(total * share) * sweep.seeds
                if job.place not in seen:
                    seen.add(job.place)
                    runs[job.stage] += sweep.seeds
                    disk[job.stage] += job_size(job, work).disk * sweep.seeds
                if job.stage == "pretrain":
                    before = total
    return {s: Estimate(runs[s], steps[s], seconds[s], disk[s]) for s in runs}


def steps_of(job: Job, overrides: dict[str, object], work: Overrides) -> int:
    given = overrides.get("steps")
    return job.steps or (given if isinstance(given, int) else job_work(job, work)[2])


def check_directory(sweep: Sweep, root: Path) -> None:
    """A directory holds one sweep; more seeds, trials and values may be added to it."""
    if (root / FILE).exists():
        before, _ = read_sweep(root)
        field = sweep.same_kind(before)
        if field is not None:
            here, asked = getattr(before, field), getattr(sweep, field)
            raise InputError(
                f"{field} is {asked!r}, but {root} holds a sweep with {here!r}; another --dir"
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
    raise_failures(failed, root, len(jobs))
