"""A task seen through a frozen skill-conditioned policy: the action is the skill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from comsd.envs.base import Array, Env, Step

if TYPE_CHECKING:
    from comsd.learners.base import Policy
    from comsd.skills import SkillSpace


class SkillEnv:
    """Each action in [-1, 1]^dim chooses the skill that acts for the next `hold` steps.

    The reward is the sum of theirs, discounted from the moment of the choice.
    """

    def __init__(
        self,
        env: Env,
        policy: Policy,
        space: SkillSpace,
        hold: int = 1,
        discount: float = 1.0,
        decode: bool = True,
    ) -> None:
        self.env, self.policy, self.space = env, policy, space
        self.repeat, self.discount, self.decode = hold, discount, decode
        self.num_envs, self.obs_dim, self.action_dim = env.num_envs, env.obs_dim, space.dim
        self.obs_mean, self.obs_std = env.obs_mean, env.obs_std
        self.horizon = -(-env.horizon // hold)
        self.obs: Array = np.empty((env.num_envs, env.obs_dim), np.float32)

    def reset(self) -> Array:
        self.obs = self.env.reset()
        return self.obs

    def step(self, action: Array) -> Step:
        u = torch.from_numpy(action)
        play = __import__('comsd.agents.base',fromlist=['x']).make_policy_fn(self.policy, self.space.decode(u) if self.decode else u, None)
        total, weight = np.zeros(self.num_envs), 1.0
        for _ in range(self.repeat):
            self.obs, reward, last = self.env.step(play(self.obs))
            total += weight * reward
            weight *= self.discount
            if last:
                return Step(self.obs, total, True)
        return Step(self.obs, total, False)

    def state_dict(self) -> dict[str, Any]:
        return {"env": self.env.state_dict(), "obs": self.obs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env.load_state_dict(state["env"])
        self.obs = state["obs"]
