"""From an exhibit to its jobs: what is run, where and after what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from comsd.adaptation import CONTROLLERS
from comsd.config import Precision, choose
from comsd.errors import InputError
from comsd.files import Folder
from comsd.jobs.cost import relative_seconds
from comsd.jobs.executor import Executor
from comsd.jobs.job import Job
from comsd.jobs.scheduler import Report, Watch, driver_lock, execute, raise_failures
from comsd.reproduction.collect import record_exhibits
from comsd.reproduction.exhibits import EXHIBITS, Arm, Exhibit, controlled, find_exhibit

ALL = "all"  # every exhibit


@dataclass(frozen=True)
class Plan:
    exhibits: tuple[str, ...]
    preset: str
    jobs: tuple[Job, ...]  # in an order in which they can be done


def make_plan(
    name: str,
    preset: str,
    *,
    seeds: int | None,
    precision: Precision = "float32",
    domains: Sequence[str] = (),
    methods: Sequence[str] = (),
    tasks: Sequence[str] = (),
    controllers: Sequence[str] = (),
) -> Plan:
    """name: of the exhibit, of which only some domains, methods and tasks may be wanted, or `all`.

    seeds: without a number, the paper's for each exhibit at its scale, 3 at others.
    controllers: of skill combination; all of them if none is named.
    """
    if seeds is not None and seeds < 1:
        raise InputError(f"seeds is {seeds}; it must be at least 1")
    names = tuple(EXHIBITS) if name == ALL else (name,)
    jobs: dict[str, Job] = {}
    for each in names:
        exhibit = find_exhibit(each)
        own = (domains, methods, tasks, controllers)
        if name == ALL and any(own):
            raise InputError(
                "domains, methods, tasks and controllers are chosen for one exhibit, not for all"
            )
        for job in exhibit_jobs(exhibit, preset, seeds or exhibit.seeds(preset), *own):
            jobs[job.place] = with_precision(job, precision)
    return Plan(names, preset, tuple(jobs.values()))


def with_precision(job: Job, precision: Precision) -> Job:
    if precision == "float32" or job.stage == "analyse":
        return job
    return replace(job, options=(*job.options, "--precision", precision))


def exhibit_jobs(
    exhibit: Exhibit,
    preset: str,
    seeds: int,
    domains: Sequence[str],
    methods: Sequence[str],
    tasks: Sequence[str],
    controllers: Sequence[str],
) -> Iterator[Job]:
    for domain in domains:
        choose("domains", domain, dict.fromkeys(exhibit.domains + exhibit.also))
    domains = domains or exhibit.domains
    arms = [choose("methods", method, exhibit.known) for method in methods] or exhibit.arms
    if controllers and "combine" not in exhibit.shows:
        raise InputError("controllers are chosen where skills are combined; this exhibit does not")
    for controller in controllers:
        choose("controllers", controller, CONTROLLERS)
    controllers = controllers or list(CONTROLLERS)
    all_tasks = [task for domain in domains for task in exhibit.tasks_of(domain)]
    for task in tasks:
        choose("tasks", task, dict.fromkeys(all_tasks))
    for domain, seed in product(domains, range(1, seeds + 1)):
        chosen = [task for task in exhibit.tasks_of(domain) if task in tasks or not tasks]
        yield from make_jobs(exhibit, preset, domain, arms, chosen, controllers, seed)


def make_jobs(
    exhibit: Exhibit,
    preset: str,
    domain: str,
    arms: Sequence[Arm],
    tasks: list[str],
    controllers: Sequence[str],
    seed: int,
) -> Iterator[Job]:
    for count, arm in product(exhibit.skills or (0,), arms):
        source = f"pretrain/{domain}-{count}" if count else f"pretrain/{domain}"
        source += f"/{arm.name}-{seed}"
        options = ("--skills", str(count), *arm.options) if count else arm.options
        who = (arm.name, arm.method, seed, preset)
        seen, adapted = exhibit.pixels, arm.adapt_options
        yield Job(source, "pretrain", domain, *who, options=options, pixels=seen)
        if "analyse" in exhibit.shows:
            yield Job(f"{source}/analysis", "analyse", domain, *who, source, pixels=seen)
        if "finetune" in exhibit.shows:
            for task in tasks:
                place = f"finetune/{task}/{arm.name}-{seed}"
                yield Job(place, "finetune", task, *who, source, adapted, pixels=seen)
        if "combine" in exhibit.shows:
            for controller, task in product(controllers, tasks):
                name = controlled(arm.name, controller)
                how = (*adapted, "--controller", controller)
                whose = (name, arm.method, seed, preset)
                place = f"combine/{task}/{name}-{seed}"
                yield Job(place, "combine", task, *whose, source, how, pixels=seen)
    if alone := exhibit.reference:
        who = (alone.name, alone.method, seed, preset)
        for task in tasks:
            place, options = f"scratch/{task}/{alone.name}-{seed}", alone.options
            yield Job(place, "scratch", task, *who, options=options, pixels=exhibit.pixels)


def not_kept(plan: Plan, directory: Path) -> Plan:
    """What is still to be trained beside the runs that `comsd report --keep` put into a directory.

    A kept pre-training has no weights: it is trained again if something new starts from it.
    """
    root = directory / plan.preset
    if not root.is_dir():
        raise InputError(f"kept is {directory}, which holds no runs of preset {plan.preset}")
    new = [job for job in plan.jobs if not job.finished(root)]
    needed = {job.needs for job in new}
    return replace(plan, jobs=tuple(j for j in plan.jobs if j in new or j.place in needed))


def carry_out(
    plan: Plan, root: Path, executor: Executor, report: Report, watch: Watch = lambda _: None
) -> None:
    """Do what a plan asks for; raises RunError at the end if a job failed."""
    with driver_lock(root):
        record_exhibits(Folder(root), plan.exhibits)
        seconds = relative_seconds
        failed = execute(plan.jobs, root, executor, report, seconds=seconds, watch=watch)
    raise_failures(failed, root)
