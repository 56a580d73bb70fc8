"""The result of a sweep: its trials in order, and how the metric responds to each setting."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from comsd.reproduction.statistics import Cell, summarise
from comsd.sweeps.course import seed_rows, seed_values
from comsd.sweeps.sweep import Sweep, Trial


@dataclass(frozen=True)
class Ranked:
    trial: Trial
    rung: int
    steps: int | None
    values: list[float]  # of the seeds
    cell: Cell


def rank_trials(sweep: Sweep, root: Path, trials: list[Trial]) -> list[Ranked]:
    """Those with a finished seed; what came further in successive halving is before the rest."""
    ranked: list[Ranked] = []
    for trial in trials:
        for rung in reversed(range(len(sweep.rungs))):
            values = seed_values(sweep, root, trial, rung)
            if values:
                name = ", ".join(f"{setting}={value}" for setting, value in trial)
                cell = summarise(name, "", values)
                ranked.append(Ranked(trial, rung, sweep.rungs[rung][1], values, cell))
                break
    sign = 1 if sweep.lowest else -1
    # Trials with all seeds come before those whose other seeds have failed or are not done.
    return sorted(ranked, key=lambda r: (-r.rung, -r.cell.n, sign * r.cell.mean))


def unreadable(sweep: Sweep, root: Path, trials: list[Trial]) -> dict[str, str]:
    """The runs that do not count, by place, and why."""
    found: dict[str, str] = {}
    for trial, rung in product(trials, range(len(sweep.rungs))):
        found |= seed_rows(sweep, root, trial, rung)[1]
    return found


def best_commands(sweep: Sweep, trial: Trial) -> list[str]:
    """What trains the best configuration anew."""
    pretrain, adapt = sweep.split(trial)
    method = sweep.method_of(trial)
    words = ["comsd", "pretrain", method, "--env", sweep.env, "--preset", sweep.preset]
    commands = [[*words, *sweep.arguments(pretrain), "--run", "runs/best"]]
    if sweep.task is not None:
        words = ["comsd", sweep.adapt, "runs/best", "--task", sweep.task]
        commands.append([*words, *sweep.arguments(adapt), "--run", f"runs/best-{sweep.task}"])
    return [shlex.join(command) for command in commands]
