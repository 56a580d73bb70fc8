"""The course of a sweep: which runs follow from the results of others."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from comsd.errors import InputError, RunError
from comsd.jobs.job import UNREADABLE, Job
from comsd.runs.run import Run
from comsd.sweeps.settings import Choices
from comsd.sweeps.sweep import Sweep, Trial, write_sweep


def has_optuna() -> bool:
    return find_spec("optuna") is not None


Rows = list[dict[str, str]]  # evaluations of a run


def seed_rows(
    sweep: Sweep, root: Path, trial: Trial, rung: int = 0
) -> tuple[list[tuple[Job, Rows]], dict[str, str]]:
    """Of every seed that is finished; by place what is wrong with those that cannot be read."""
    found: list[tuple[Job, Rows]] = []
    damaged: dict[str, str] = {}
    for seed in sweep.all_seeds:
        job = sweep.chain(trial, seed, rung)[-1]
        try:
            if job.finished(root):
                found.append((job, Run(root / job.place).evaluations.rows()))
        except UNREADABLE as error:
            damaged[job.place] = str(error)
    return found, damaged


def seed_values(sweep: Sweep, root: Path, trial: Trial, rung: int = 0) -> list[float]:
    """The rank metric of every seed that is finished, at the end of its rung."""
    found: list[float] = []
    for job, rows in seed_rows(sweep, root, trial, rung)[0]:
        done = [row for row in rows if job.steps is None or int(row["step"]) >= job.steps]
        row = done[-1] if job.steps is None else done[0]
        if not row.get(sweep.rank):
            logged = ", ".join(name for name in row if name != "step")
            raise RunError(f"evaluations have no {sweep.rank!r} to rank by; allowed: {logged}")
        found.append(float(row[sweep.rank]))
    return found


class Course:
    """Gives the scheduler its jobs, and more of them as results come in."""

    def __init__(self, sweep: Sweep, root: Path, trials: list[Trial], parallel: int) -> None:
        """trials: those of the same sweep so far; parallel: runs at a time."""
        self.sweep, self.root = sweep, root
        self.trials = list(trials)
        self.sampler: TreeParzen | None = None
        if sweep.sampler == "tpe":
            self.sampler = TreeParzen(sweep, len(trials))
            missing = max(1, parallel // sweep.seeds) if not trials else 0
            self.extend(min(missing, sweep.trials_wanted - len(trials)))
        else:
            self.trials = list(sweep.known_trials())
        self.rung = 0
        self.in_rung = list(self.trials)
        self.left: dict[Trial, set[str]] = {}  # ranked runs that have not ended
        self.of_place: dict[str, list[Trial]] = {}  # ranked run -> its trials
        self.failed: set[Trial] = set()

    def extend(self, count: int) -> list[Trial]:
        """Sample new trials; written down before they start."""
        assert self.sampler is not None
        new = [self.sampler.ask() for _ in range(count)]
        self.trials += new
        return new

    def save(self) -> None:
        write_sweep(self.root, self.sweep, self.trials)

    def first_jobs(self) -> list[Job]:
        return self.begin(self.in_rung)

    def begin(self, trials: list[Trial]) -> list[Job]:
        """The runs of trials in the current rung."""
        jobs: dict[str, Job] = {}
        for trial in trials:
            chains = [self.sweep.chain(trial, seed, self.rung) for seed in self.sweep.all_seeds]
            self.left[trial] = {chain[-1].place for chain in chains}
            for chain in chains:
                jobs |= {job.place: job for job in chain}
                self.of_place.setdefault(chain[-1].place, []).append(trial)
        return list(jobs.values())

    def more(self, job: Job, finished: bool) -> list[Job]:
        """After a run has ended: promotions, or the next trial of the sampler."""
        following: list[Job] = []
        for trial in self.of_place.get(job.place, ()):
            if not finished:
                self.failed.add(trial)
            if job.place in self.left.get(trial, ()):
                self.left[trial].remove(job.place)
                if not self.left[trial]:
                    del self.left[trial]
                    following += self.after(trial)
        return following

    def after(self, trial: Trial) -> list[Job]:
        """All seeds of a trial have ended."""
        if self.sampler is not None:
            values = seed_values(self.sweep, self.root, trial)
            self.sampler.tell(trial, float(np.mean(values)) if values else None)
            if len(self.trials) < self.sweep.trials_wanted:
                new = self.extend(1)
                self.save()
                return self.begin(new)
        elif self.rung + 1 < len(self.sweep.rungs) and not self.left:
            promoted = self.best(self.sweep.rungs[self.rung + 1][0])
            self.rung += 1
            self.in_rung, self.of_place = promoted, {}
            return self.begin(promoted)
        return []

    def best(self, count: int) -> list[Trial]:
        whole = [trial for trial in self.in_rung if trial not in self.failed]
        sign = 1 if self.sweep.lowest else -1
        found = {t: seed_values(self.sweep, self.root, t, self.rung) for t in whole}
        means = {t: sign * float(np.mean(values)) for t, values in found.items() if values}
        return sorted(means, key=lambda trial: means[trial])[:count]


class TreeParzen:
    """Optuna's sampler: values near those of good trials become more likely."""

    def __init__(self, sweep: Sweep, asked: int) -> None:
        optuna: Any = import_module("optuna")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.optuna, self.sweep = optuna, sweep
        self.sampler = optuna.samplers.TPESampler(seed=asked, constant_liar=True)
        direction = "minimize" if sweep.lowest else "maximize"
        self.study = optuna.create_study(direction=direction, sampler=self.sampler)
        self.space = dict(self.distributions())
        self.asked: dict[Trial, Any] = {}

    def distributions(self) -> Iterator[tuple[str, Any]]:
        kinds = self.optuna.distributions
        for s in self.sweep.settings:
            if isinstance(s, Choices):
                yield s.name, kinds.CategoricalDistribution(s.values)
            elif s.whole:
                yield s.name, kinds.IntDistribution(int(s.low), int(s.high), log=s.log)
            else:
                yield s.name, kinds.FloatDistribution(s.low, s.high, log=s.log)

    def ask(self) -> Trial:
        asked = self.study.ask(self.space)
        trial = tuple((s.name, asked.params[s.name]) for s in self.sweep.settings)
        self.asked[trial] = asked
        return trial

    def tell(self, trial: Trial, value: float | None) -> None:
        state = self.optuna.trial.TrialState
        if trial in self.asked:
            done = state.FAIL if value is None else state.COMPLETE
            self.study.tell(self.asked.pop(trial), value, state=done)
        elif value is not None:  # of an earlier call of the same command
            made = self.optuna.trial.create_trial(
                params=dict(trial), distributions=self.space, value=value
            )
            self.study.add_trial(made)


def choose_sampler(wanted: str, sweep_samples: bool, halves: bool) -> str:
    """`auto` is Optuna's where it is installed and can be used."""
    if wanted == "tpe" and not has_optuna():
        raise InputError("sampler is 'tpe' but needs the extra: pip install 'comsd[optuna]'")
    if wanted == "auto":
        return "tpe" if has_optuna() and sweep_samples and not halves else "random"
    return wanted
