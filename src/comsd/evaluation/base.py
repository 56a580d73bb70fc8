"""The interface of evaluators."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from comsd.agents.base import Policy, make_policy_fn
from comsd.config import check_value, shown
from comsd.envs.base import Env
from comsd.errors import InputError
from comsd.evaluation.metrics import Measured, Values
from comsd.evaluation.pictures import png_of
from comsd.evaluation.rollouts import ProgressFn, no_progress
from comsd.files import Folder
from comsd.runs import Run, factory
from comsd.training.rollout import StopFn, Stopped, never, random_policy_fn
from comsd.training.trainer import Trainer
from comsd.types import PolicyFn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 130


@dataclass(frozen=True)
class Options:
    """What can be chosen for one evaluation; None: as the run's settings say."""

    starts: int | None = None  # per skill
    skills: int | None = None  # random ones
    steps: int | None = None  # of a roll-out
    xy: Sequence[int | str] | str | None = None  # entries of the observation to draw, or names
    greedy: bool | None = None  # mean actions
    random_start: bool | None = None

    def __post_init__(self) -> None:
        for name, least in (("starts", 2), ("skills", 2), ("steps", 1)):
            value = getattr(self, name)
            if value is not None:
                check_value(name, value, int, {"low": least})
        words = self.entries or ()
        if not isinstance(words, (tuple, list)) or not all(
            isinstance(w, (int, str)) for w in words
        ):
            raise InputError(f"xy is {shown(self.xy)}; it must be two numbers, or a name")

    @property
    def entries(self) -> Sequence[int | str] | None:
        return (self.xy,) if isinstance(self.xy, str) else self.xy


class Evaluator(ABC):
    """Rolls out the policy of a run and computes metrics of its behaviour."""

    takes: ClassVar[tuple[str, ...]] = ()  # the options that mean something to it
    meanings: ClassVar[dict[str, str]]  # of every metric
    at_start: ClassVar[bool] = False  # evaluate before the first step of training, too
    progress_metrics: dict[str, str]  # the few metrics that the progress line shows: short names

    def __init__(self, run: Run, options: Options | None = None) -> None:
        self.run, self.space, self.rollouts = run, run.space, run.config.run.rollouts
        self.options = options or Options()
        for name, value in dataclasses.asdict(self.options).items():
            if value and name not in self.takes:
                allowed = ", ".join(self.takes) or "none"
                raise InputError(
                    f"{name} is no option of evaluations on {run.spec.name}; allowed: {allowed}"
                )
        self.seed = int(run.seeds()[3].generate_state(1)[0])  # independent of all of training
        self.bounds: dict[str, float] = {}  # of metrics, that stand for a claim of the paper
        self.stopped: StopFn = never  # asked in every roll-out
        self.tick: ProgressFn = no_progress

    @property
    def planned_steps(self) -> int:
        """Of the environments, for `measure` and both baselines; 0 if it takes no time."""
        return 0

    def evaluate_during_training(self, trainer: Trainer, stopped: StopFn) -> Values | None:
        """Metrics cheap enough to compute often; None if `stopped()` before they are complete."""
        self.stopped = stopped
        try:
            return self.training_metrics(trainer)
        except Stopped:
            return None

    @abstractmethod
    def training_metrics(self, trainer: Trainer) -> Values:
        """May raise `Stopped`."""

    @abstractmethod
    def measure(self, policy: Policy) -> Measured:
        """All metrics of the run's policy."""

    @abstractmethod
    def baseline(self, policy: Policy | None) -> Values:
        """Those that mean something for an untrained policy, or random actions if it is None."""

    @abstractmethod
    def draw(self, axes: Axes, policy: Policy) -> None:
        """All skills in one figure, or the learning curve of a task."""

    def figure(self) -> Figure:
        from matplotlib.figure import Figure  # slow to import

        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.add_subplot()
        self.draw(axes, self.run.policy)
        axes.set_title(self.title, fontsize=10)
        return figure

    @property
    def title(self) -> str:
        s = self.run.config.run
        if not self.run.pretrains:
            whose = f" of {source.config.run.method}" if (source := self.run.source) else ""
            return f"{s.stage}{whose} on {s.env}, seed {s.seed}"
        size = "skills" if s.space == "one-hot" else f"dimensions of skill ({s.space})"
        return f"{s.method} on {s.env}, {s.skills} {size}, {self.seed_and_step}"

    @property
    def seed_and_step(self) -> str:
        """For titles."""
        return f"seed {self.run.config.run.seed}, {self.run.used_step:,} steps"

    def save_figure(self, folder: Folder) -> Path:
        """A PNG file."""
        name = "skills.png" if self.run.pretrains else "curve.png"
        folder.replace(name, png_of(self.figure(), DPI))
        return folder.path / name


def untrained_policy(run: Run) -> Policy:
    """The policy with which the run began."""
    with torch.random.fork_rng(devices=[]):
        env, cpu = run.make_env(1, 0), torch.device("cpu")
        return factory.initial_agent(run.config, run.source, env, cpu).policy


def policy_fn_of(
    env: Env, policy: Policy | None, skill: Tensor, rng: np.random.Generator, *, noise: bool = False
) -> PolicyFn:
    """Actions of the policy with or without its noise; without a policy, uniformly random ones."""
    if policy is None:
        return random_policy_fn(env.action_dim, env.num_envs, rng)
    return make_policy_fn(policy, skill, rng if noise else None)
