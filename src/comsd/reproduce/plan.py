"""From an exhibit to the runs it takes: what, where, after what, and for how long."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from comsd.adaptation import COMBINED_STEPS
from comsd.config import choose
from comsd.errors import InputError
from comsd.registry import METHODS, env_spec
from comsd.reproduce.collect import read_analysis
from comsd.reproduce.exhibits import Arm, Exhibit
from comsd.resolve import resolve, resolve_scratch
from comsd.runs import factory
from comsd.runs.run import Run

START = 5.0  # seconds to start a process and build what it needs
ANALYSIS = 30.0  # seconds to roll out and draw the sweeps
EVALUATION = 2.0  # seconds for one on the way
MEASURED = 3  # cycles


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
        """The words after `comsd` that start or continue it."""
        place = str(root / self.place)
        if self.stage == "analyse":
            return ["analyse", str(root / str(self.needs))]
        if (root / self.place / "config.json").exists():
            return ["resume", place]
        common = ["--seed", str(self.seed), "--run", place, *self.options]
        if self.stage == "pretrain":
            words = ["pretrain", self.arm.method, "--env", self.env, "--preset", self.preset]
            return [*words, *common, *self.arm.options]
        if self.stage == "scratch":
            words = ["finetune", "--scratch", "--task", self.env, "--preset", self.preset]
            return [*words, *common]
        assert self.needs is not None
        return [self.stage, str(root / self.needs), "--task", self.env, *common]

    def finished(self, root: Path) -> bool:
        place = root / self.place
        if self.stage == "analyse":
            return read_analysis(place.parent) is not None
        return (place / "config.json").exists() and Run(place).finished

    def reached(self, root: Path) -> int:
        place = root / self.place
        return Run(place).reached if (place / "config.json").exists() else 0

    def in_use(self, root: Path) -> bool:
        """Is another process at it?"""
        place = root / self.place
        return (place / "config.json").exists() and Run(place).in_use


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
        """What is left, on one core, by a short measurement on this machine."""
        return sum(seconds_of(job) for job in self.jobs if not job.finished(root))


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
    known = [t for d in domains or exhibit.domains for t in tasks_of(exhibit, d)]
    for task in tasks:
        choose("tasks", task, dict.fromkeys(known))
    jobs: dict[str, Job] = {}
    for domain in domains or exhibit.domains:
        for seed in range(1, seeds + 1):
            for job in jobs_of(exhibit, preset, domain, wanted, seed, tasks):
                jobs.setdefault(job.place, job)
    return Plan(exhibit, preset, tuple(jobs.values()))


def tasks_of(exhibit: Exhibit, domain: str) -> list[str]:
    return [t for t in env_spec(domain).tasks if t in exhibit.tasks or not exhibit.tasks]


def jobs_of(
    exhibit: Exhibit, preset: str, domain: str, arms: list[Arm], seed: int, tasks: Sequence[str]
) -> list[Job]:
    chosen = [t for t in tasks_of(exhibit, domain) if t in tasks or not tasks]
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


# --- how long it takes ----------------------------------------------------------------------------


def seconds_of(job: Job) -> float:
    if job.stage == "analyse":
        return START + ANALYSIS
    family = env_spec(job.env).families[0]
    like = {"robots": "walker", "tasks": "walker_run"}.get(family, job.env)  # one for all robots
    if job.stage == "pretrain":
        per_step, steps = pace(job.arm.method, like, job.preset)
    else:
        per_step, steps = pace(None, like, job.preset)
        if job.stage == "combine":
            steps = COMBINED_STEPS.get(job.preset, steps)
    return START + per_step * steps


@cache
def pace(method: str | None, env: str, preset: str) -> tuple[float, int]:
    """Seconds per environment step, measured over a few cycles, and the number of steps."""
    early = {"random_steps": 8} if next(iter(env_spec(env).agents)) == "ddpg" else {}
    if method is None:
        config = resolve_scratch(env, preset, train=early)
    else:
        config = resolve(method, env, preset, train=early)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the workers
    trainer = factory.make_trainer(config, None, factory.make_training_env(config, None))
    while not trainer.train_step():
        pass
    began, before = time.perf_counter(), trainer.steps
    for _ in range(MEASURED):
        trainer.train_step()
    per_step = (time.perf_counter() - began) / (trainer.steps - before)
    torch.set_num_threads(threads)
    s = config.run
    return per_step + EVALUATION / s.evaluate_every, s.steps
