"""A small environment whose episodes may terminate at any step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comsd.envs.base import Step
from comsd.types import Array, Mask
from conftest import plain_obs

Ends = Callable[[int, int], int | None]  # (environment, episode) -> step at which it terminates


class FakeEnv:
    """A point in the plane that the action moves; observations are (x, y, clock, episode).

    Episodes start at a random place and are truncated after `horizon` steps unless they terminate.
    """

    action_dim, repeat = 2, 1

    def __init__(self, num_envs: int = 2, horizon: int = 8, ends: Ends | None = None) -> None:
        self.num_envs, self.horizon, self.ends = num_envs, horizon, ends
        self.obs_spec = plain_obs(4)
        self.rng = np.random.default_rng(0)
        self.place = np.zeros((num_envs, 2))
        self.clock, self.episode = np.zeros(num_envs, int), np.full(num_envs, -1)

    @property
    def obs(self) -> Array:
        counts = np.stack([self.clock, self.episode], 1)
        return np.concatenate([self.place, counts], 1).astype(np.float32)

    def reset(self, where: Mask | None = None) -> Array:
        where = np.ones(self.num_envs, bool) if where is None else where
        self.place[where] = self.rng.normal(size=(where.sum(), 2))
        self.clock[where] = 0
        self.episode[where] += 1
        return self.obs

    def step(self, action: Array) -> Step:
        assert action.shape == (self.num_envs, 2)
        assert np.abs(action).max() <= 1
        self.place += 0.3 * action
        self.clock += 1
        ends = [self.ends(i, int(e)) if self.ends else None for i, e in enumerate(self.episode)]
        terminated = np.array([clock == end for clock, end in zip(self.clock, ends, strict=True)])
        truncated = (self.clock == self.horizon) & ~terminated
        return Step(self.obs, self.place[:, 0].copy(), terminated, truncated)

    def positions(self) -> NDArray[np.float64]:
        return self.place.copy()

    def state_dict(self) -> dict[str, Any]:
        return {
            "place": self.place,
            "clock": self.clock,
            "episode": self.episode,
            "rng": self.rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place, self.clock, self.episode = state["place"], state["clock"], state["episode"]
        self.rng.bit_generator.state = state["rng"]


class NextStepEnv(FakeEnv):
    """Its episodes begin in the step after, as in Gymnasium's mode NextStep."""

    def reset(self, where: Mask | None = None) -> Array:
        if where is None:
            self.waiting = np.zeros(self.num_envs, bool)
            return super().reset()
        np.testing.assert_array_equal(where, self.waiting)
        return self.obs

    def step(self, action: Array) -> Step:
        began, before = self.waiting, self.place.copy()
        step = super().step(action)
        if began.any():
            self.place[began] = before[began]
            super().reset(began)
            step = Step(self.obs, step.reward, step.terminated & ~began, step.truncated & ~began)
        self.waiting = step.ended
        return step._replace(began=began if began.any() else None)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "waiting": self.waiting}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.waiting = state["waiting"]


def uneven(env: int, episode: int) -> int | None:
    """Terminates after 1 to 7 steps; every third episode lasts until its time limit."""
    return None if (env + episode) % 3 == 0 else 1 + (3 * env + 5 * episode) % 7


def at_once(*_: int) -> int:
    """Every step terminates an episode."""
    return 1
