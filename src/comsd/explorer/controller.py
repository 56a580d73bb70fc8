"""The controller of a combined run: which skill acts when."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from comsd.agents.dqn import GreedyPolicy
from comsd.envs.skills import ControlledSkills
from comsd.evaluation.episodes import episodes
from comsd.evaluation.rollouts import Rollouts
from comsd.evaluation.skills import SkillEvaluator
from comsd.explorer.arrays import Arrays
from comsd.explorer.policy import policy_graph
from comsd.runs import Run
from comsd.types import Array

CHECKS = 24


class Controller:
    """Without exploration: mean actions, no random choices."""

    def __init__(self, run: Run) -> None:
        self.run, self.policy, self.actor = run, run.policy, actor(run, 1)
        self.candidates: Tensor | None = None  # (K, Z)
        if isinstance(self.policy, GreedyPolicy):
            self.candidates = self.policy.candidates

    def roll_out(self, evaluator: SkillEvaluator) -> Rollouts:
        """From the starts of all entries; with the skill of every step."""
        starts, steps = evaluator.starts, evaluator.steps
        return episodes(self.run, self.run.actor(starts), starts, 0, evaluator.tick, steps)

    def to_json(self, seen: Rollouts, arrays: Arrays) -> dict[str, Any]:
        """With its choices in some of the states that it has seen."""
        starts, steps = seen.obs.shape[1:3]
        n = np.arange(CHECKS)
        obs = seen.obs[0, n % starts, n * (steps - 1) // (CHECKS - 1)]
        choices = seen.watched["skill"][0, 0, :: self.actor.hold]
        return {
            "policy": policy_graph(self.policy, arrays, self.skill_of),
            "hold": self.actor.hold,
            "discrete": self.candidates is not None,
            "choices": arrays.add(choices),
            "checks": {"obs": arrays.add(obs), "skill": arrays.add(self.choose(obs))},
        }

    def skill_of(self, action: Tensor) -> Tensor:
        """What an action of the controller stands for."""
        return self.actor.space.decode(action) if self.actor.decode else action

    def choose(self, obs: Array) -> Array:
        """Skills (N, Z)."""
        fresh = actor(self.run, len(obs))
        fresh(obs)
        assert fresh.skill is not None
        return fresh.skill.numpy()


def actor(run: Run, n: int) -> ControlledSkills:
    """For n environments."""
    acts = run.actor(n)
    assert isinstance(acts, ControlledSkills)
    return acts
