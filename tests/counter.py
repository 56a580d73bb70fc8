"""An environment whose episodes are known beforehand."""

from __future__ import annotations

import numpy as np

from comsd.envs.base import Step
from comsd.types import Array, Mask, ObsSpec


class Counter:
    """Adds up its actions; the reward is the sum. Terminates at `goal`."""

    action_dim = repeat = 1
    horizon = 5
    obs_spec = ObsSpec((1,), "float32", np.zeros(1, np.float32), np.ones(1, np.float32))

    def __init__(self, num_envs: int = 1, goal: float = np.inf) -> None:
        self.num_envs, self.goal = num_envs, goal
        self.sum, self.clock = np.zeros(num_envs), np.zeros(num_envs)

    def reset(self, where: Mask | None = None) -> Array:
        where = np.ones(self.num_envs, bool) if where is None else where
        self.sum, self.clock = np.where(where, 0, self.sum), np.where(where, 0, self.clock)
        return self.sum[:, None].astype(np.float32)

    def step(self, action: Array) -> Step:
        self.sum, self.clock = self.sum + action[:, 0], self.clock + 1
        obs = self.sum[:, None].astype(np.float32)
        return Step(obs, self.sum, self.sum >= self.goal, self.clock >= self.horizon)

    def positions(self) -> None:
        """A number has no place in the plane."""

    def state_dict(self) -> dict[str, Array]:
        return {"sum": self.sum, "clock": self.clock}

    def load_state_dict(self, state: dict[str, Array]) -> None:
        self.sum, self.clock = state["sum"], state["clock"]
