"""Our environments under Gymnasium's API: importing this module registers them.

>>> import gymnasium, comsd.gymnasium
>>> env = gymnasium.make("comsd/walker-run-v0")     # a task; "comsd/walker-v0" has no reward
>>> mazes = gymnasium.make_vec("comsd/maze-tree-v0", num_envs=10)
"""

from __future__ import annotations

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
        self.make = SPECS[name].make
        self.env = self.make(1, 0)
        self.observation_space, self.action_space = spaces(self.env)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """With a seed the environment is as new; without one it goes on with its random numbers."""
        fresh = self._np_random is None
        super().reset(seed=seed)
        if seed is not None or fresh:
            self.env = self.make(1, int(self.np_random.integers(2**31)) if seed is None else seed)
        return self.env.reset()[0].copy(), self.info()

    def step(self, action: NDArray[Any]) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        step = self.env.step(np.clip(action, -1, 1, dtype=np.float32)[None])
        ends = bool(step.terminated[0]), bool(step.truncated[0])
        return step.obs[0].copy(), float(step.reward[0]), *ends, self.info()

    def info(self) -> dict[str, Any]:
        return {name: value[0] for name, value in info_of(self.env).items()}


class BatchedEnv(gymnasium.vector.VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]):
    """Many, stepped as one batch; those whose episode has ended start anew in the step after."""

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, name: str, num_envs: int = 1, max_episode_steps: int | None = None) -> None:
        self.make, self.num_envs, self.limit = SPECS[name].make, num_envs, max_episode_steps
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
        self.ended[:] = False
        return self.env.reset().copy(), info_of(self.env)

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Array, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        step, begun = self.env.step(np.clip(actions, -1, 1, dtype=np.float32)), self.ended
        obs = self.env.reset(begun) if begun.any() else step.obs
        terminated, truncated = step.terminated & ~begun, step.truncated & ~begun
        self.ended = terminated | truncated
        reward = np.where(begun, 0.0, step.reward)
        return obs.copy(), reward, terminated, truncated, info_of(self.env)


for _name, _spec in SPECS.items():
    gymnasium.register(
        gymnasium_id(_name),
        entry_point="comsd.gymnasium:SingleEnv",
        vector_entry_point="comsd.gymnasium:BatchedEnv",
        max_episode_steps=_spec.horizon,
        kwargs={"name": _name},
    )
