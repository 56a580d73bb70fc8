"""Evaluation on a task: returns of whole episodes, in parallel environments.

The score of fine-tuning is the return with mean actions; a controller of skills is scored with its
exploration noise, as in the paper, and without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from comsd.agents.base import Policy, make_policy_fn
from comsd.errors import InputError
from comsd.evaluation.base import EvaluatedRun, evaluation_seed
from comsd.methods.base import Method
from comsd.training.rollout import StopFn, Stopped, never, random_policy_fn, rollout

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class TaskEvaluator:
    """`run.rollouts` episodes, always from the same initial states for the same run."""

    meanings: ClassVar[dict[str, str]] = {
        "return": "mean return of the episodes; 1000 is the most",
        "return_sd": "standard deviation over the episodes",
        "return_without_noise": "mean return with the controller's mean actions",
    }
    at_start: ClassVar[bool] = True
    progress_metrics: dict[str, str] = {"return": "return", "ddpg/q": "Q"}

    def __init__(self, run: EvaluatedRun) -> None:
        self.run, self.bounds = run, dict[str, float]()
        self.combined = run.config.run.stage == "combine"
        self.episodes = run.config.run.rollouts
        self.seed = evaluation_seed(run)

    def returns(
        self,
        policy: Policy | None,
        skill: Tensor,
        *,
        noise: bool = False,
        stopped: StopFn = never,
    ) -> NDArray[np.float64]:
        """(episodes,); without a policy, of random actions."""
        env = self.run.make_env(self.episodes, self.seed, discount=1.0)
        rng = np.random.default_rng(self.seed)
        if policy is None:
            policy_fn = random_policy_fn(env.action_dim, env.num_envs, rng)
        else:
            skills = skill.expand(self.episodes, -1)
            policy_fn = make_policy_fn(policy, skills, rng if noise else None)
        total = np.zeros(self.episodes)
        for step in rollout(env, policy_fn, stopped=stopped):
            total += np.where(step.alive, step.reward, 0)
        return total

    def score(
        self, policy: Policy | None, skill: Tensor, stopped: StopFn = never
    ) -> dict[str, float]:
        returns = self.returns(policy, skill, noise=self.combined, stopped=stopped)
        metrics = {"return": float(returns.mean()), "return_sd": float(returns.std())}
        if self.combined:
            without_noise = self.returns(policy, skill, stopped=stopped)
            metrics["return_without_noise"] = float(without_noise.mean())
        return metrics

    def evaluate_during_training(
        self, policy: Policy, method: Method, selected_skill: Tensor | None, stopped: StopFn
    ) -> dict[str, float] | None:
        if selected_skill is None:  # the selection is not complete
            return {}
        try:
            return self.score(policy, selected_skill, stopped)
        except Stopped:
            return None

    def evaluate(self, policy: Policy | None, **options: bool) -> dict[str, float]:
        if any(options.values()):
            name = next(name for name, value in options.items() if value)
            raise InputError(f"{name} is for pre-training runs; tasks are scored in one way")
        return self.score(policy, self.run.selected_skill)

    def draw(self, axes: Axes, policy: Policy) -> None:
        """The learning curve."""
        rows = self.run.evaluations.rows()
        steps = [int(row["step"]) for row in rows]
        for name, style in (("return", "o-"), ("return_without_noise", "s--")):
            if rows and name in rows[0]:
                values = [float(row[name]) for row in rows]
                axes.plot(steps, values, style, label=name.replace("_", " "), markersize=4)
        axes.set_xlabel("environment steps")
        axes.set_ylabel("return")
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])  # from zero, with a margin above the curve
        if rows:
            axes.legend(frameon=False)
