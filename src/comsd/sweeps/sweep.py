"""What a sweep is: the runs of every trial, checked before anything starts."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from comsd.config import Config, choose
from comsd.errors import InputError, RunError
from comsd.evaluation import MazeEvaluator, TaskEvaluator, held_out
from comsd.evaluation.metrics import MEAN_NEIGHBOURS
from comsd.evaluation.skills import training_meanings, training_sweeps
from comsd.files import Folder
from comsd.jobs.job import Job
from comsd.methods.base import Method
from comsd.registry import METHODS, env_spec
from comsd.resolve import resolve
from comsd.runs.factory import make_space
from comsd.skill_sets import skill_sweeps
from comsd.sweeps.settings import (
    METHOD,
    TASK,
    Choices,
    Options,
    Range,
    Swept,
    Value,
    arguments,
    sweepable,
)

Adaptation = Literal["finetune", "combine"]
Trial = tuple[tuple[str, Value], ...]  # settings by name

# The last is there for every method and space.
USUAL_RANK = ("occupancy_entropy", "akd_range_flag", "akd_range_constant", "state_coverage")
CHECKED = 500  # combinations of values that are resolved before a sweep starts
LONGEST = 90  # letters of a trial's name in a path
FILE = "sweep.json"


@dataclass(frozen=True)
class Sweep:
    methods: tuple[str, ...]
    env: str
    preset: str
    settings: tuple[Swept, ...]
    seeds: int = 1
    trials: int | None = None  # sampled; all combinations without a number
    task: str | None = None
    adapt: Adaptation = "finetune"
    rank: str = ""  # the metric
    lowest: bool = False  # is best
    halve: int = 0  # at each step of successive halving one in this many goes on
    sampler: Literal["random", "tpe"] = "random"

    # --- checks -------------------------------------------------------------------------------

    @cached_property
    def options(self) -> Options:
        agent = next((s.values[0] for s in self.lists if s.name == "agent"), None)
        return sweepable(
            self.methods, self.env, str(agent) if agent else None, self.task, self.adapt
        )

    @property
    def lists(self) -> list[Choices]:
        return [s for s in self.settings if isinstance(s, Choices)]

    @property
    def ranges(self) -> list[Range]:
        return [s for s in self.settings if isinstance(s, Range)]

    def check(self) -> None:
        """Raise InputError, one sentence about the first thing that is wrong."""
        for name in filter(None, (self.env, self.task)):
            env_spec(name, "pretrain" if name == self.env else self.adapt)  # imports no package
        for name, low in (("seeds", 1), ("trials", 1)):
            value = getattr(self, name)
            if value is not None and value < low:
                raise InputError(f"{name} is {value}; it must be at least {low}")
        if self.task is not None:
            choose("task", self.task, dict.fromkeys(env_spec(self.env).tasks))
        if self.halve == 1 or self.halve < 0:
            raise InputError(f"halve is {self.halve}; it must be at least 2, or 0 for none")
        if self.ranges and self.trials is None:
            raise InputError(
                f"--trials is missing: {self.ranges[0].name} is a range to sample from"
            )
        if self.halve and self.sampler == "tpe":
            raise InputError("sampler is 'tpe'; with --halve it must be 'random'")
        if self.halve and any(s.name == "steps" and len(s.ends) > 1 for s in self.settings):
            raise InputError("steps is swept; with --halve it must be one number")
        if any(s.name == "agent" and len(s.ends) > 1 for s in self.settings):
            raise InputError("agent is swept; its settings differ, so it must be one: agent=ppo")
        for setting, method in product(self.settings, self.methods):
            for value in setting.ends:
                self.resolve(((METHOD, method), (setting.name, value)))
        if not self.ranges and math.prod(len(s.values) for s in self.lists) <= CHECKED:
            for trial in self.grid():
                self.resolve(trial)
        elif not self.settings:
            self.resolve(())
        choose("rank", self.rank, rank_metrics(self))
        if self.halve and self.trials_wanted < self.halve:
            raise InputError(f"halve is {self.halve}; there are only {self.trials_wanted} trials")

    def resolve(self, trial: Trial) -> None:
        """What the runs of a trial would say."""
        self.pretraining(trial)
        if self.task is not None:
            self.adaptation(trial)

    def pretraining(self, trial: Trial) -> Config:
        overrides = self.overrides(self.split(trial)[0])
        return resolve(self.method_of(trial), self.env, self.preset, **overrides)

    def adaptation(self, trial: Trial) -> Config:
        overrides = self.overrides(self.split(trial)[1])
        return resolve("task", str(self.task), self.preset, self.adapt, None, **overrides)

    def overrides(self, trial: Trial) -> dict[str, Value]:
        """By the names that `resolve` knows."""
        settings = [(self.options[name], value) for name, value in trial if name != METHOD]
        return {option.setting.removeprefix("run."): value for option, value in settings}

    def method_of(self, trial: Trial) -> str:
        return str(dict(trial).get(METHOD, self.methods[0]))

    @staticmethod
    def split(trial: Trial) -> tuple[Trial, Trial]:
        """The settings of pre-training and those of the adaptation."""
        adapt = tuple(s for s in trial if s[0].startswith(TASK))
        return tuple(s for s in trial if s not in adapt), adapt

    # --- trials -------------------------------------------------------------------------------

    @property
    def trials_wanted(self) -> int:
        return self.trials or math.prod(len(s.values) for s in self.lists)

    def grid(self) -> Iterator[Trial]:
        return combinations(self.lists)

    def known_trials(self) -> Iterator[Trial]:
        """All trials, if they do not depend on results; each has its own random numbers."""
        if self.trials is None:
            yield from self.grid()
            return
        seen: set[Trial] = set()
        for number in range(self.trials):
            rng = np.random.default_rng([0, number])
            trial = tuple((s.name, s.draw(rng)) for s in self.settings)
            if trial not in seen:  # of a few lists
                seen.add(trial)
                yield trial

    # --- runs of a trial ----------------------------------------------------------------------

    @cached_property
    def steps(self) -> int:
        """Of pre-training, where it is not swept."""
        fixed = [(s.name, s.ends[0]) for s in self.settings if s.name == "steps"]
        return self.pretraining(tuple(fixed)).run.steps

    @cached_property
    def rungs(self) -> list[tuple[int, int | None]]:
        """Trials and steps at each step of successive halving; None: as the trial says."""
        if not self.halve:
            return [(self.trials_wanted, None)]
        count = [self.trials_wanted]
        while count[-1] >= self.halve:
            count.append(-(-count[-1] // self.halve))
            if count[-1] == 1:
                break
        last = len(count) - 1
        return [(n, -(-self.steps // self.halve ** (last - i))) for i, n in enumerate(count)]

    def jobs(self, trial: Trial, rung: int = 0) -> list[Job]:
        """Of all seeds; the last of each seed is the one that is ranked."""
        return [job for seed in self.all_seeds for job in self.chain(trial, seed, rung)]

    @property
    def all_seeds(self) -> range:
        return range(1, self.seeds + 1)

    def chain(self, trial: Trial, seed: int, rung: int = 0) -> list[Job]:
        """Pre-training, then the adaptation if there is one."""
        steps, (pretrain, adapt) = self.rungs[rung][1], self.split(trial)
        label = label_of(pretrain)
        source = f"pretrain/{self.env}/{label}-{seed}"
        if steps is not None:
            pretrain = tuple(s for s in pretrain if s[0] != "steps")
        who = (label, self.method_of(trial), seed, self.preset)
        jobs = [
            Job(source, "pretrain", self.env, *who, None, self.arguments(pretrain), steps),
        ]
        if self.task is not None:
            folder = f"{self.adapt}/{self.task}" + (f"-{steps}" if steps is not None else "")
            place = f"{folder}/{label_of(trial)}-{seed}"
            options = self.arguments(adapt)
            jobs.append(Job(place, self.adapt, self.task, *who, source, options))
        return jobs

    def arguments(self, trial: Trial) -> tuple[str, ...]:
        settings = [(self.options[name], value) for name, value in trial if name != METHOD]
        return tuple(word for option, value in settings for word in arguments(option, value))

    # --- on disk ------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def same_kind(self, other: Sweep) -> str | None:
        """The first field in which another sweep differs so that their runs cannot be ranked."""
        fields = ["env", "preset", "task", "adapt", "halve", "sampler"]
        if 1 in (len(self.methods), len(other.methods)):  # to several, others may be added
            fields.insert(0, "methods")
        if self.halve:  # how many trials there are says how long each trains
            fields.append("trials_wanted")
        if self.halve or self.sampler == "tpe":  # these chose trials
            fields += ["rank", "lowest"]
        # Samples depend on what all settings were; a grid may have more values of the same.
        fields.append("swept" if self.trials is None and other.trials is None else "settings")
        return next((f for f in fields if getattr(self, f) != getattr(other, f)), None)

    @property
    def swept(self) -> list[str]:
        return [s.name for s in self.settings]


def combinations(settings: Iterable[Swept]) -> Iterator[Trial]:
    """Of all values of lists, and of the ends of ranges."""
    settings = list(settings)
    for values in product(*(s.ends for s in settings)):
        yield tuple((s.name, value) for s, value in zip(settings, values, strict=True))


def rank_metrics(sweep: Sweep) -> dict[str, str]:
    """What evaluations during training log in every trial, and what it means."""
    if sweep.task is None and env_spec(sweep.env).families[0] == "maze":
        return MazeEvaluator.meanings
    deciding = ("space", "skills", "task.controller", "task.evaluation_noise", "task.rollouts")
    chosen = list(combinations(s for s in sweep.settings if s.name in deciding))
    if sweep.task is not None:
        found = [of_task(sweep, trial) for trial in chosen]
    else:
        trials = [((METHOD, m), *trial) for m in sweep.methods for trial in chosen]
        found = [of_skills(sweep.pretraining(trial)) for trial in trials]
    return {k: meaning for k, meaning in found[0].items() if all(k in other for other in found)}


def of_task(sweep: Sweep, trial: Trial) -> dict[str, str]:
    """Only controllers have scores beside the return: without noise, or of a candidate alone."""
    logged, found = dict(trial), {"return"}
    if sweep.adaptation(trial).run.rollouts > 1:
        found.add("return_sd")
    if sweep.adapt == "combine":
        discrete = logged.get("task.controller") == "discrete"
        if logged.get("task.evaluation_noise", not discrete):
            found.add("return_without_noise")
        if discrete:
            found.add("return_best_candidate")
    return {name: meaning for name, meaning in TaskEvaluator.meanings.items() if name in found}


def of_skills(config: Config) -> dict[str, str]:
    """Without scores by a method that gives none, and neighbours among fewer skills."""
    space, found = make_space(config), training_meanings(make_space(config))
    sizes = {name: len(skill_sweeps(space)[name]) for name in training_sweeps(space)}
    few = product(sizes.items(), MEAN_NEIGHBOURS)
    dropped = [f"ms_coverage{k}_{name}" for (name, skills), k in few if k >= skills]
    if METHODS[config.run.method].skill_scores is Method.skill_scores:
        dropped += held_out.MEANINGS
    return {name: meaning for name, meaning in found.items() if name not in dropped}


def usual_rank(sweep: Sweep) -> str:
    if sweep.task is not None:
        return "return"
    known = rank_metrics(sweep)
    return next(name for name in USUAL_RANK if name in known)


def label_of(trial: Trial) -> str:
    """A trial's name in paths."""
    last = [name.rpartition(".")[2] for name, _ in trial]
    short = [n if last.count(n) == 1 else name for (name, _), n in zip(trial, last, strict=True)]
    pairs = [
        str(value) if name == METHOD else f"{name}-{value}"
        for name, (_, value) in zip(short, trial, strict=True)
    ]
    label = re.sub(r"[^A-Za-z0-9.+_-]", "-", "_".join(pairs)) or "base"
    if len(label) <= LONGEST:
        return label
    return f"{label[:LONGEST]}-{hashlib.sha256(repr(trial).encode()).hexdigest()[:8]}"


def write_sweep(root: Path, sweep: Sweep, trials: list[Trial]) -> None:
    Folder(root).write_sealed(FILE, {"sweep": sweep.to_json(), "trials": trials})


def read_sweep(root: Path) -> tuple[Sweep, list[Trial]]:
    """The sweep of a directory and its trials so far."""
    file = root / FILE
    try:
        record = Folder(root).read_sealed(FILE, {"sweep", "trials"})
        given = record["sweep"]
        given["settings"] = tuple(read_swept(s) for s in given["settings"])
        if "method" in given:  # of a sweep from before several could be compared
            given["methods"] = [given.pop("method")]
        given["methods"] = tuple(given["methods"])
        trials = [tuple((str(name), value) for name, value in trial) for trial in record["trials"]]
        sweep = Sweep(**given)
        sweep.check()
        for name, _ in (setting for trial in trials for setting in trial):
            choose("setting", name, {METHOD: None, **sweep.options})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{file} is damaged: {error}") from None
    return sweep, trials


def read_swept(given: dict[str, Any]) -> Swept:
    if "values" in given:
        return Choices(given["name"], tuple(given["values"]))
    return Range(**given)
