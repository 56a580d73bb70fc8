"""Our environments under Gymnasium's API: importing this module registers them.

>>> import gymnasium, comsd.gymnasium
>>> env = gymnasium.make("comsd/walker-run-v0")     # a task; "comsd/walker-v0" has no reward
>>> mazes = gymnasium.make_vec("comsd/maze-tree-v0", num_envs=10)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from comsd.envs.base import Env
from comsd.envs.specs import ENVS, TASKS
from comsd.types import Array

SPECS = ENVS | TASKS


def gymnasium_id(name: str) -> str:
    """`walker_run` is `comsd/walker-run-v0`."""
    return f"comsd/{name.replace('_', '-')}-v0"


def spaces(env: Env) -> tuple[Box, Box]:
    """Of the observations and actions of one environment."""
    obs = Box(-np.inf, np.inf, env.obs_spec.shape, np.float32)
    return obs, Box(-1, 1, (env.action_dim,), np.float32)


def info_of(env: Env) -> dict[str, Any]:
    """`position`: (N, 2), the place in the plane; of planar robots x and height."""
    positions = env.positions()
    return {} if positions is None else {"position": positions}


class SingleEnv(gymnasium.Env[NDArray[Any], NDArray[Any]]):
    """One environment."""

    metadata = {"render_modes": []}

    def __init__(self, name: str, render_mode: None = None) -> None:
        self.name = name
        self.env = self.make(0)
        self.observation_space, self.action_space = spaces(self.env)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """With a seed the environment is as new; without one it goes on with its random numbers."""
        fresh = self._np_random is None
        super().reset(seed=seed)
        if seed is not None or fresh:
            self.env = self.make(int(self.np_random.integers(2**31)) if seed is None else seed)
        return self.env.reset()[0].copy(), self.info()

    def make(self, seed: int) -> Env:
        env = SPECS[self.name].make(1, seed)
        env.horizon = sys.maxsize  # the time limit is that of Gymnasium's wrapper
        return env

    def step(self, action: NDArray[Any]) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        step = self.env.step(np.clip(action, -1, 1, dtype=np.float32)[None])
        ends = bool(step.terminated[0]), bool(step.truncated[0])
        return step.obs[0].copy(), float(step.reward[0]), *ends, self.info()

    def info(self) -> dict[str, Any]:
        return {name: value[0] for name, value in info_of(self.env).items()}


class BatchedEnv(gymnasium.vector.VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]):
    """Many, stepped as one batch, in the three modes of Gymnasium for episodes that ended.

    NextStep: they start anew in the step after, which ignores the action; SameStep: at once, the
    last observation is in the info; Disabled: by `reset(options={"reset_mask": mask})`.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self,
        name: str,
        num_envs: int = 1,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ) -> None:
        self.make, self.num_envs, self.limit = SPECS[name].make, num_envs, max_episode_steps
        self.mode = AutoresetMode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.mode}
        self.begin(0)
        self.single_observation_space, self.single_action_space = spaces(self.env)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def begin(self, seed: int) -> None:
        self.env = self.make(self.num_envs, seed)
        self.env.horizon = self.limit or self.env.horizon
        self.ended = np.zeros(self.num_envs, bool)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Environment i gets the seed + i; a list must be such seeds."""
        mask = None if options is None else options.get("reset_mask")
        if mask is not None and (seed is not None or self._np_random is None):
            raise ValueError("reset_mask is for environments that have begun, without a seed")
        if seed is not None and not isinstance(seed, int):
            first, *others = seed
            if first is None or others != list(range(first + 1, first + self.num_envs)):
                raise ValueError(
                    f"seed is {seed!r}; it must be a number or {self.num_envs} in a row"
                )
            seed = first
        fresh = self._np_random is None
        super().reset(seed=seed)
        if seed is not None or fresh:
            self.begin(int(self.np_random.integers(2**31)) if seed is None else seed)
        mask = np.ones(self.num_envs, bool) if mask is None else np.asarray(mask, bool)
        self.ended &= ~mask
        return self.env.reset(mask).copy(), info_of(self.env)

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Array, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        begun = self.ended  # in the step before; those start anew in this one, or never by itself
        if self.mode is AutoresetMode.DISABLED and begun.any():
            raise ValueError(
                "an episode has ended: reset(options={'reset_mask': mask}) begins anew"
            )
        step = self.env.step(np.clip(actions, -1, 1, dtype=np.float32))
        terminated, truncated = step.terminated & ~begun, step.truncated & ~begun
        self.ended, last = terminated | truncated, {}
        if self.mode is AutoresetMode.SAME_STEP:
            last, begun = self.last_of(step.obs, self.ended), self.ended
            self.ended = np.zeros(self.num_envs, bool)
            reward = step.reward.copy()
        else:
            reward = np.where(begun, 0.0, step.reward)
        obs = self.env.reset(begun) if begun.any() else step.obs
        return obs.copy(), reward, terminated, truncated, last | info_of(self.env)

    def last_of(self, obs: NDArray[Any], ended: NDArray[np.bool_]) -> dict[str, Any]:
        """How episodes ended, in Gymnasium's form."""
        result: dict[str, Any] = {}
        known = info_of(self.env)
        for i in np.flatnonzero(ended):
            about = {name: values[i] for name, values in known.items()}
            last = {"final_obs": obs[i].copy(), "final_info": about}
            result = self._add_info(result, last, int(i))
        return result


for _name, _spec in SPECS.items():
    gymnasium.register(
        gymnasium_id(_name),
        entry_point="comsd.gymnasium:SingleEnv",
        vector_entry_point="comsd.gymnasium:BatchedEnv",
        max_episode_steps=_spec.horizon,
        kwargs={"name": _name},
    )
