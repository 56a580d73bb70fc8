"""A task by a reward function of the user's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comsd.config import shown
from comsd.envs.base import Env, Step
from comsd.errors import InputError, RunError
from comsd.types import Array, Mask

RewardFn = Callable[[NDArray[Any], Array, NDArray[Any], dict[str, Any]], float]
"""(obs, action, next_obs, info) -> reward, of one environment: observations as the policy sees
them, the action in [-1, 1], Gymnasium's info, which is empty for our environments."""

REWARDS: dict[str, RewardFn] = {}  # a file's by the name of the file


def register_reward(name: str, function: RewardFn) -> None:
    """Make a reward function known by name, for `finetune` and `combine`."""
    try:
        fits = callable(function) and bool(inspect.signature(function).bind(*range(4)))
    except TypeError:
        fits = False
    if not fits or name == "own":
        wanted = "a function of (obs, action, next_obs, info), by a name other than 'own'"
        found = (
            f"a function of {inspect.signature(function)}"
            if inspect.isfunction(function)
            else shown(function)
        )
        raise InputError(f"reward {name!r} is {found}; it must be {wanted}")
    REWARDS[name] = function


class RewardEnv:
    """An environment whose reward is a function's."""

    def __init__(self, env: Env, name: str) -> None:
        self.env, self.name, self.reward_fn = env, name, REWARDS[name]
        self.num_envs, self.obs_spec, self.action_dim = env.num_envs, env.obs_spec, env.action_dim
        self.horizon, self.repeat = env.horizon, env.repeat
        self.obs: NDArray[Any] = np.zeros((env.num_envs, *env.obs_spec.shape), env.obs_spec.dtype)

    def reset(self, where: Mask | None = None) -> NDArray[Any]:
        self.obs = self.env.reset(where)
        return self.obs

    def step(self, action: Array) -> Step:
        step = self.env.step(action)
        infos: Sequence[dict[str, Any]] = step.infos or [{}] * self.num_envs
        rows = zip(self.obs, action, step.obs, infos, strict=True)
        acted = [True] * self.num_envs if step.began is None else ~step.began
        reward = [self.evaluate(*row) if a else 0.0 for row, a in zip(rows, acted, strict=True)]
        self.obs = step.obs
        return step._replace(reward=np.array(reward))

    def evaluate(self, *transition: Any) -> float:
        try:
            value = np.asarray(self.reward_fn(*transition), np.float64)
        except Exception as error:  # whatever the user's code raises
            raise RunError(f"reward {self.name} raised {type(error).__name__}: {error}") from error
        if value.shape != () or not np.isfinite(value):
            what = f"shape {value.shape}" if value.shape else f"the value {value}"
            raise RunError(f"reward {self.name} has {what}; it must be one finite number")
        return float(value)

    def positions(self) -> NDArray[np.floating] | None:
        return self.env.positions()

    def state_dict(self) -> dict[str, Any]:
        return {"env": self.env.state_dict(), "obs": self.obs}

    def load_state_dict(self, state: dict[str, Any]) -> NDArray[Any] | None:
        fresh = self.env.load_state_dict(state["env"])
        self.obs = state["obs"] if fresh is None else fresh
        return fresh
