"""How well a task is done: returns of whole episodes, all run side by side.

The score of fine-tuning is the return with mean actions; a controller of skills is scored with its
exploration noise, as in the paper, and without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from comsd.envs.base import Array
from comsd.errors import InputError
from comsd.agents.base import make_policy_fn
from comsd.evaluation.base import Stopped, acting, never
from comsd.learners.base import Learner, Policy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from comsd.run import Run


class TaskEvaluator:
    """`run.rollouts` episodes, always from the same starts for the same run."""

    meanings: ClassVar[dict[str, str]] = {
        "return": "mean return of the episodes; 1000 is the most",
        "return_sd": "standard deviation over the episodes",
        "return_without_noise": "mean return with the controller's mean actions",
    }
    headline: dict[str, str] = {"return": "return", "ddpg/q": "Q"}
    at_start: ClassVar[bool] = True

    def __init__(self, run: Run) -> None:
        self.run, self.bounds = run, dict[str, float]()
        self.combined = run.config.run.stage == "combine"
        self.episodes = run.config.run.rollouts
        self.seed = int(run.seeds()[3].generate_state(1)[0])  # apart from all training

    def returns(
        self,
        policy: Policy | None,
        skill: Tensor,
        *,
        noise: bool = False,
        stopped: Callable[[], bool] = never,
    ) -> NDArray[np.float64]:
        """(episodes,); without a policy, of random actions."""
        env = self.run.make_env(self.episodes, self.seed, discount=1.0)
        rng = np.random.default_rng(self.seed)
        shape = self.episodes, env.action_dim

        def at_random(_: Array, /) -> Array:
            return rng.uniform(-1, 1, shape).astype(np.float32)

        drawn = rng if noise else None
        play = make_policy_fn(policy, skill.expand(self.episodes, -1), drawn) if policy else at_random
        total, obs, last = np.zeros(self.episodes), env.reset(), False
        with acting():
            while not last:
                if stopped():
                    raise Stopped
                obs, reward, last = env.step(play(obs))
                total += reward
        return total

    def score(
        self, policy: Policy | None, skill: Tensor, stopped: Callable[[], bool]
    ) -> dict[str, float]:
        returns = self.returns(policy, skill, noise=self.combined, stopped=stopped)
        figures = {"return": float(returns.mean()), "return_sd": float(returns.std())}
        if self.combined:
            calm = self.returns(policy, skill, stopped=stopped)
            figures["return_without_noise"] = float(calm.mean())
        return figures

    def follow(self, learner: Learner, stopped: Callable[[], bool]) -> dict[str, float] | None:
        skill = learner.selected_skill
        if skill is None:  # the rule is still searching
            return {}
        try:
            return self.score(learner.policy, skill, stopped)
        except Stopped:
            return None

    def measure(self, policy: Policy | None, **options: bool) -> dict[str, float]:
        if any(options.values()):
            name = next(name for name, value in options.items() if value)
            raise InputError(f"{name} is for pre-training runs; tasks are scored in one way")
        return self.score(policy, self.run.skill, never)

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
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])  # zero is in sight, and so is the highest point
        if rows:
            axes.legend(frameon=False)
