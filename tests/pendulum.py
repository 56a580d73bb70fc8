"""A pendulum to be swung up: dynamics and reward of Gymnasium's Pendulum-v1, batched."""

from __future__ import annotations

from typing import Any

import numpy as np

from comsd.envs.base import Step
from comsd.types import Array, Mask
from conftest import plain_obs


class Pendulum:
    action_dim, horizon, repeat = 1, 200, 1

    def __init__(self, num_envs: int, seed: int) -> None:
        self.num_envs, self.rng, self.obs_spec = num_envs, np.random.default_rng(seed), plain_obs(3)
        self.angle, self.rate = np.zeros((2, num_envs))
        self.clock, self.never = np.zeros(num_envs, int), np.zeros(num_envs, bool)

    def reset(self, where: Mask | None = None) -> Array:
        where = ~self.never if where is None else where
        angle, rate = self.rng.uniform(-1, 1, (2, self.num_envs)) * [[np.pi], [1]]
        self.angle, self.rate = np.where(where, angle, self.angle), np.where(where, rate, self.rate)
        self.clock = np.where(where, 0, self.clock)
        return self.observe()

    def observe(self) -> Array:
        return np.stack([np.cos(self.angle), np.sin(self.angle), self.rate], 1, dtype=np.float32)

    def step(self, action: Array) -> Step:
        torque, angle = 2 * action[:, 0].astype(float), (self.angle + np.pi) % (2 * np.pi) - np.pi
        reward = -(angle**2 + 0.1 * self.rate**2 + 0.001 * torque**2)
        self.rate = np.clip(self.rate + 0.05 * (15 * np.sin(self.angle) + 3 * torque), -8, 8)
        self.angle = self.angle + 0.05 * self.rate
        self.clock = self.clock + 1
        return Step(self.observe(), reward, self.never, self.clock >= self.horizon)

    def positions(self) -> None:
        return None

    def state_dict(self) -> dict[str, Any]:
        raise AssertionError("not asked for")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise AssertionError("not asked for")
