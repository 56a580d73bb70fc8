"""From an exhibit to its jobs: what is run, where, after what, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from comsd.config import choose
from comsd.errors import InputError
from comsd.registry import METHODS
from comsd.reproduce.collect import read_analysis
from comsd.reproduce.cost import job_seconds, product_rate
from comsd.reproduce.exhibits import Arm, Exhibit
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
        path = str(root / self.place)
        if self.stage == "analyse":
            return ["analyse", str(root / str(self.needs))]
        if self.run(root):
            return ["resume", path]
        common = ["--seed", str(self.seed), "--run", path, *self.options]
        if self.stage == "pretrain":
            argv = ["pretrain", self.arm.method, "--env", self.env, "--preset", self.preset]
            return [*argv, *common, *self.arm.options]
        if self.stage == "scratch":
            argv = ["finetune", "--scratch", "--task", self.env, "--preset", self.preset]
            return [*argv, *common]
        assert self.needs is not None
        return [self.stage, str(root / self.needs), "--task", self.env, *common]

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
    exhibit: Exhibit
    preset: str
    jobs: tuple[Job, ...]  # in an order in which they can be done

    def counts(self, root: Path) -> dict[tuple[str, str, str], tuple[int, int]]:
        """(stage, environment, arm) -> jobs, of which finished."""
        result: dict[tuple[str, str, str], tuple[int, int]] = {}
        for job in self.jobs:
            key = job.stage, job.env, job.arm.name
            jobs, done = result.get(key, (0, 0))
            result[key] = jobs + 1, done + job.finished(root)
        return result

    def seconds(self, root: Path) -> float:
        """Estimated time on one core of the jobs that are left."""
        left, rate = [job for job in self.jobs if not job.finished(root)], product_rate()
        return sum(job_seconds(j.stage, j.arm.method, j.env, j.preset, rate) for j in left)


def make_plan(
    exhibit: Exhibit,
    preset: str,
    *,
    seeds: int,
    domains: Sequence[str] = (),
    methods: Sequence[str] = (),
    tasks: Sequence[str] = (),
) -> Plan:
    if seeds < 1:
        raise InputError(f"seeds is {seeds}; it must be at least 1")
    for domain in domains:
        choose("domains", domain, dict.fromkeys(exhibit.domains))
    arms = {arm.name: arm for arm in exhibit.arms}
    for name in methods:
        choose("methods", name, {**arms, **METHODS})
    wanted = [arms.get(name) or Arm(name, name) for name in methods] or list(arms.values())
    known = [t for d in domains or exhibit.domains for t in exhibit.tasks_of(d)]
    for task in tasks:
        choose("tasks", task, dict.fromkeys(known))
    jobs: dict[str, Job] = {}
    for domain in domains or exhibit.domains:
        for seed in range(1, seeds + 1):
            for job in jobs_of(exhibit, preset, domain, wanted, seed, tasks):
                jobs.setdefault(job.place, job)
    return Plan(exhibit, preset, tuple(jobs.values()))


def jobs_of(
    exhibit: Exhibit, preset: str, domain: str, arms: list[Arm], seed: int, tasks: Sequence[str]
) -> list[Job]:
    chosen = [t for t in exhibit.tasks_of(domain) if t in tasks or not tasks]
    jobs: list[Job] = []
    for count in exhibit.skills or (0,):
        label = f"{domain}-{count}" if count else domain
        options = ("--skills", str(count)) if count else ()
        for arm in arms:
            trained = f"pretrain/{label}/{arm.name}-{seed}"
            jobs.append(Job(trained, "pretrain", domain, arm, seed, preset, options=options))
            for stage in exhibit.shows:
                if stage == "analyse":
                    place = f"{trained}/analysis"
                    jobs.append(Job(place, "analyse", domain, arm, seed, preset, trained))
                elif stage != "maze":
                    for task in chosen:
                        place = f"{stage}/{task}/{arm.name}-{seed}"
                        jobs.append(Job(place, stage, task, arm, seed, preset, trained))
    if exhibit.reference:
        ddpg = Arm("ddpg", "task")
        places = ((task, f"scratch/{task}/ddpg-{seed}") for task in chosen)
        jobs += [Job(place, "scratch", task, ddpg, seed, preset) for task, place in places]
    return jobs
