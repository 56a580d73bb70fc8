"""A task controlled through a frozen skill-conditioned policy: the action is the skill.

`SkillEnv` is what a controller learns in; `ControlledSkills` is what it has learned, as one policy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from comsd.envs.base import Env, Step
from comsd.skills import SkillSpace
from comsd.types import Array, Mask, PolicyFn


class ControlledSkills:
    """A controller and the skills it chooses among as one policy: from observations (N, ...) to
    actions (N, A) of the plain environment. A choice acts for `hold` calls.
    """

    def __init__(
        self,
        controller: PolicyFn,
        policy_fn_of: Callable[[Tensor, np.random.Generator | None], PolicyFn],
        space: SkillSpace,
        hold: int,
        decode: bool,
    ) -> None:
        """As for `SkillEnv`; controller: from observations to its action, which is the skill."""
        self.controller, self.policy_fn_of, self.space = controller, policy_fn_of, space
        self.hold, self.decode = hold, decode
        self.reset()

    def reset(self) -> None:
        """An episode begins: the next call chooses."""
        self.calls = 0
        self.skill: Tensor | None = None  # (N, Z) that act now
        self.policy_fn: PolicyFn | None = None

    def __call__(self, obs: NDArray[Any]) -> Array:
        if self.policy_fn is None or self.calls % self.hold == 0:
            chosen = torch.from_numpy(self.controller(obs))
            self.skill = self.space.decode(chosen) if self.decode else chosen
            self.policy_fn = self.policy_fn_of(self.skill, None)
        self.calls += 1
        return self.policy_fn(obs)


class SkillEnv:
    """Each action selects the skill that acts for the next `hold` steps.

    The reward is the sum of their rewards, discounted from the first. When an episode ends in any
    environment, the step ends for all of them, and all select a skill anew.
    """

    def __init__(
        self,
        env: Env,
        policy_fn_of: Callable[[Tensor, np.random.Generator | None], PolicyFn],
        space: SkillSpace,
        hold: int = 1,
        discount: float = 1.0,
        decode: bool = True,
        rng: np.random.Generator | None = None,
    ) -> None:
        """policy_fn_of: of skills (N, dim), one per environment, and `rng`; decode: map actions in
        [-1, 1]^dim into the skill space, or use them as skills; rng: of the noise of the skills,
        which take their mean actions without it.
        """
        self.env, self.policy_fn_of, self.space, self.rng = env, policy_fn_of, space, rng
        self.hold, self.discount, self.decode = hold, discount, decode
        self.repeat = hold * env.repeat
        self.num_envs, self.obs_spec, self.action_dim = env.num_envs, env.obs_spec, space.dim
        self.horizon = -(-env.horizon // hold)
        shape = env.num_envs, *env.obs_spec.shape
        self.obs: NDArray[Any] = np.zeros(shape, env.obs_spec.dtype)

    def reset(self, where: Mask | None = None) -> NDArray[Any]:
        self.obs = self.env.reset(where)
        return self.obs

    def step(self, action: Array) -> Step:
        skill = torch.from_numpy(action)
        policy_fn = self.policy_fn_of(self.space.decode(skill) if self.decode else skill, self.rng)
        step = self.env.step(policy_fn(self.obs))
        total, weight, began = step.reward.astype(np.float64), self.discount, step.began
        for _ in range(self.hold - 1):
            if step.ended.any():
                break
            step = self.env.step(policy_fn(step.obs))
            total += weight * step.reward
            weight *= self.discount
        self.obs = step.obs
        return step._replace(reward=total, began=began)

    def positions(self) -> NDArray[np.floating] | None:
        return self.env.positions()

    def state_dict(self) -> dict[str, Any]:
        rng = self.rng.bit_generator.state if self.rng else None
        return {"env": self.env.state_dict(), "obs": self.obs, "rng": rng}

    def load_state_dict(self, state: dict[str, Any]) -> NDArray[Any] | None:
        fresh = self.env.load_state_dict(state["env"])
        self.obs = state["obs"] if fresh is None else fresh
        if self.rng:
            self.rng.bit_generator.state = state["rng"]
        return fresh
