"""The interface of evaluators."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from torch import Tensor

from comsd.agents.base import Policy, make_policy_fn
from comsd.envs.base import Env
from comsd.files import Folder
from comsd.runs import Run
from comsd.training.rollout import StopFn, Stopped, never, random_policy_fn
from comsd.training.trainer import Trainer
from comsd.types import PolicyFn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Values = dict[str, float]  # by the name of the metric


class Evaluator(ABC):
    """Rolls out the policy of a run and computes metrics of its behaviour."""

    meanings: ClassVar[dict[str, str]]  # of every metric
    at_start: ClassVar[bool] = False  # evaluate before the first step of training, too
    progress_metrics: dict[str, str]  # the few metrics that the progress line shows: short names

    def __init__(self, run: Run) -> None:
        self.run, self.space, self.rollouts = run, run.space, run.config.run.rollouts
        self.seed = int(run.seeds()[3].generate_state(1)[0])  # independent of all of training
        self.bounds: dict[str, float] = {}  # of metrics, that stand for a claim of the paper
        self.stopped: StopFn = never  # asked in every roll-out

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
    def evaluate(self, policy: Policy | None, **options: bool) -> Values:
        """All metrics of a policy, or of random actions if it is None."""

    @abstractmethod
    def draw(self, axes: Axes, policy: Policy) -> None:
        """All skills in one figure, or the learning curve of a task."""

    def save_figure(self, folder: Folder) -> Path:
        """A PNG file."""
        from matplotlib.figure import Figure  # slow to import

        run, s = self.run, self.run.config.run
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.add_subplot()
        self.draw(axes, run.policy)
        title = f"{s.method}, {s.skills} skills" if run.pretrains else f"{s.stage} on {s.env}"
        axes.set_title(f"{title}, seed {s.seed}", fontsize=10)
        name, content = "skills.png" if run.pretrains else "curve.png", io.BytesIO()
        figure.savefig(content, dpi=130, format="png")
        folder.replace(name, content.getvalue())
        return folder.path / name


def policy_fn_of(
    env: Env, policy: Policy | None, skill: Tensor, rng: np.random.Generator, *, noise: bool = False
) -> PolicyFn:
    """Actions of the policy with or without its noise; without a policy, uniformly random ones."""
    if policy is None:
        return random_policy_fn(env.action_dim, env.num_envs, rng)
    return make_policy_fn(policy, skill, rng if noise else None)
