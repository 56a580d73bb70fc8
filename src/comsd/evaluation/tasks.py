"""Evaluation on a task: returns of whole episodes, in parallel environments.

The score of fine-tuning is the return with mean actions; a continuous controller of skills is
scored with its exploration noise, as in the paper, and without it; a discrete one beside the best
of its candidates, since a controller that never changes its choice has combined nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from comsd.adaptation import CombineSettings
from comsd.agents.base import Policy
from comsd.agents.dqn import GreedyPolicy
from comsd.envs.base import Env, action_rng
from comsd.evaluation.base import Evaluator, Options, policy_fn_of
from comsd.evaluation.metrics import Measured, Values
from comsd.training.rollout import rollout
from comsd.training.trainer import Trainer
from comsd.types import PolicyFn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from comsd.runs.run import Run

Returns = NDArray[np.float64]  # (episodes,)


class TaskEvaluator(Evaluator):
    """`run.rollouts` episodes, always from the same initial states for the same run."""

    takes = ("starts",)
    meanings = {
        "return": "mean return of the episodes; 1000 is the most for our robots",
        "return_sd": "standard deviation over the episodes, if there are several",
        "return_without_noise": "mean return with the controller's mean actions",
        "return_best_candidate": "mean return of one candidate skill, the best on other starts",
    }
    at_start = True

    def __init__(self, run: Run, options: Options | None = None) -> None:
        super().__init__(run, options)
        self.progress_metrics = {"return": "return", f"{run.config.run.agent}/q": "Q"}
        self.rollouts = self.options.starts or self.rollouts
        self.return_alone: float | None = None  # of the best candidate

    def returns(self, policy: Policy | None, skill: Tensor, noise: bool = False) -> Returns:
        """Without a policy, of random actions; those of a discrete controller are candidates."""
        env = self.run.make_env(self.rollouts, self.seed)
        rng, skills = action_rng(self.seed), skill.expand(self.rollouts, -1)
        if policy is None and isinstance(controller := self.run.policy, GreedyPolicy):
            return self.total_rewards(env, lambda obs: controller.random_candidates(len(obs), rng))
        return self.total_rewards(env, policy_fn_of(env, policy, skills, rng, noise=noise))

    def candidate_returns(self, candidates: Tensor, seed: int) -> Returns:
        """The mean return of each candidate skill if it acts all the time, (K,).

        seed: of the initial states.
        """
        means = []
        for candidate in candidates:
            env = self.run.make_env(self.rollouts, seed)
            always = candidate.expand(self.rollouts, -1).cpu().numpy()
            means.append(self.total_rewards(env, lambda _, always=always: always).mean())
        return np.array(means)

    def total_rewards(self, env: Env, policy_fn: PolicyFn) -> Returns:
        """Of one episode of each environment."""
        total = np.zeros(env.num_envs)
        for step in rollout(env, policy_fn, stopped=self.stopped):
            total += np.where(step.alive, step.reward, 0)
        return total

    def score(self, policy: Policy | None, skill: Tensor) -> Values:
        how = self.run.config.adapt
        noise = isinstance(how, CombineSettings) and how.evaluation_noise
        returns = self.returns(policy, skill, noise=noise)
        metrics = {"return": float(returns.mean())}
        if len(returns) > 1:
            metrics["return_sd"] = float(returns.std())
        if noise:
            metrics["return_without_noise"] = float(self.returns(policy, skill).mean())
        return metrics

    def training_metrics(self, trainer: Trainer) -> Values:
        skill = trainer.selected_skill
        return (
            {} if skill is None else self.score(trainer.policy, skill) | self.alone(trainer.policy)
        )

    def alone(self, policy: Policy) -> Values:
        """What a discrete controller has to rise above; the same at every evaluation."""
        if not isinstance(policy, GreedyPolicy):
            return {}
        if self.return_alone is None:
            best = policy.candidates[self.best_candidate(policy)][None]
            self.return_alone = float(self.candidate_returns(best, self.seed)[0])
        return {"return_best_candidate": self.return_alone}

    def best_candidate(self, policy: GreedyPolicy) -> int:
        """Chosen on other starts: the maximum of several means is above what the skill is worth."""
        return int(self.candidate_returns(policy.candidates, self.seed + 1).argmax())

    def measure(self, policy: Policy) -> Measured:
        return Measured(self.score(policy, self.run.selected_skill) | self.alone(policy), {})

    def baseline(self, policy: Policy | None) -> Values:
        return self.score(policy, self.run.selected_skill)

    def draw(self, axes: Axes, policy: Policy) -> None:
        """The learning curve."""
        rows = self.run.evaluations.rows()
        steps = [int(row["step"]) for row in rows]
        styles = {"return": "o-", "return_without_noise": "s--", "return_best_candidate": ":"}
        for name, style in styles.items():
            if rows and name in rows[0]:
                values = [float(row[name]) for row in rows]
                axes.plot(steps, values, style, label=name.replace("_", " "), markersize=4)
        axes.set(xlabel="environment steps", ylabel="return")
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])  # from zero, with a margin above the curve
        if rows:
            axes.legend(frameon=False)
