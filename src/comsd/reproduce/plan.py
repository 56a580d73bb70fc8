"""From an exhibit to its jobs: what is run, where, after what, and for how long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from comsd.config import choose
from comsd.errors import InputError
from comsd.registry import METHODS
from comsd.reproduce.collect import read_analysis
from comsd.reproduce.cost import job_seconds, product_rate
from comsd.reproduce.exhibits import Arm, Exhibit, find_exhibit
from comsd.runs.run import Run


@dataclass(frozen=True)
class Job:
    """One call of `comsd`, whose result lies at `place` under the directory of the plan."""

    place: str  # such as finetune/walker_run/comsd-1
    stage: str  # pretrain, finetune, combine, scratch or analyse
    env: str
    arm: Arm
    seed: int
    preset: str
    needs: str | None = None  # the place of the run it starts from
    options: tuple[str, ...] = ()

    def command(self, root: Path) -> list[str]:
        """The arguments of `comsd` that start or continue it."""
        path, source = str(root / self.place), str(root / str(self.needs))
        if self.stage == "analyse":
            return ["analyse", source]
        if self.run(root):
            return ["resume", path]
        if self.stage == "pretrain":
            argv = ["pretrain", self.arm.method, "--env", self.env, "--preset", self.preset]
        elif self.stage == "scratch":
            argv = ["finetune", "--scratch", "--task", self.env, "--preset", self.preset]
        else:
            argv = [self.stage, source, "--task", self.env]
        return [*argv, "--seed", str(self.seed), "--run", path, *self.options]

    def run(self, root: Path) -> Run | None:
        """Its run, once it has one."""
        path = root / self.place
        return Run(path) if (path / "config.json").exists() else None

    def finished(self, root: Path) -> bool:
        if self.stage == "analyse":
            return read_analysis((root / self.place).parent) is not None
        run = self.run(root)
        return run is not None and run.finished

    def reached(self, root: Path) -> int:
        run = self.run(root)
        return run.reached if run else 0

    def in_use(self, root: Path) -> bool:
        """Does another process write to it?"""
        run = self.run(root)
        return run is not None and run.in_use


@dataclass(frozen=True)
class Plan:
    exhibit: str
    preset: str
    jobs: tuple[Job, ...]  # in an order in which they can be done

    def seconds(self, root: Path) -> float:
        """Estimated time on one core of the jobs that are left."""
        left, rate = [job for job in self.jobs if not job.finished(root)], product_rate()
        return sum(job_seconds(j.stage, j.arm.method, j.env, j.preset, rate) for j in left)


def make_plan(
    name: str,
    preset: str,
    *,
    seeds: int,
    domains: Sequence[str] = (),
    methods: Sequence[str] = (),
    tasks: Sequence[str] = (),
) -> Plan:
    """name: of the exhibit, of which only some domains, methods and tasks may be wanted."""
    exhibit = find_exhibit(name)
    if seeds < 1:
        raise InputError(f"seeds is {seeds}; it must be at least 1")
    for domain in domains:
        choose("domains", domain, dict.fromkeys(exhibit.domains))
    domains, known = domains or exhibit.domains, {arm.name: arm for arm in exhibit.arms}
    for method in methods:
        choose("methods", method, {**known, **METHODS})
    arms = [known.get(method) or Arm(method, method) for method in methods] or exhibit.arms
    all_tasks = [task for domain in domains for task in exhibit.tasks_of(domain)]
    for task in tasks:
        choose("tasks", task, dict.fromkeys(all_tasks))
    jobs: dict[str, Job] = {}
    for domain, seed in product(domains, range(1, seeds + 1)):
        chosen = [task for task in exhibit.tasks_of(domain) if task in tasks or not tasks]
        jobs |= {j.place: j for j in make_jobs(exhibit, preset, domain, arms, chosen, seed)}
    return Plan(name, preset, tuple(jobs.values()))


def make_jobs(
    exhibit: Exhibit, preset: str, domain: str, arms: Sequence[Arm], tasks: list[str], seed: int
) -> Iterator[Job]:
    stages = [stage for stage in exhibit.shows if stage in ("finetune", "combine")]
    for count, arm in product(exhibit.skills or (0,), arms):
        source = f"pretrain/{domain}-{count}" if count else f"pretrain/{domain}"
        source += f"/{arm.name}-{seed}"
        options = ("--skills", str(count), *arm.options) if count else arm.options
        yield Job(source, "pretrain", domain, arm, seed, preset, options=options)
        if "analyse" in exhibit.shows:
            yield Job(f"{source}/analysis", "analyse", domain, arm, seed, preset, source)
        for stage, task in product(stages, tasks):
            yield Job(f"{stage}/{task}/{arm.name}-{seed}", stage, task, arm, seed, preset, source)
    for task in tasks if exhibit.reference else ():
        place = f"scratch/{task}/ddpg-{seed}"
        yield Job(place, "scratch", task, Arm("ddpg", "task"), seed, preset)
