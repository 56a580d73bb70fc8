"""A task of dm_control in the Gymnasium API, without time limit."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


def load_suite() -> Any:
    """dm_control's suite, an extra."""
    with warnings.catch_warnings():  # of a display that is missing and not needed
        warnings.simplefilter("ignore")
        from dm_control import suite
    return suite


def task_names() -> list[str]:
    return [f"{domain}-{task}" for domain, task in load_suite().ALL_TASKS]


def box(spec: Any) -> spaces.Box:
    low, high = getattr(spec, "minimum", -np.inf), getattr(spec, "maximum", np.inf)
    return spaces.Box(
        np.broadcast_to(low, spec.shape), np.broadcast_to(high, spec.shape), spec.shape, spec.dtype
    )


class DMCEnv(gymnasium.Env):
    def __init__(self, name: str, **task_kwargs: Any) -> None:
        domain, _, task = name.partition("-")
        task_kwargs = {"time_limit": float("inf"), **task_kwargs}
        self.env = load_suite().load(domain, task, task_kwargs)
        self.physics = self.env.physics
        self.action_space = box(self.env.action_spec())
        parts: dict[str, Any] = {n: box(spec) for n, spec in self.env.observation_spec().items()}
        self.observation_space = spaces.Dict(parts)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.env.task.random.seed(seed % 2**32)
        return dict(self.env.reset().observation), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        step = self.env.step(action)
        return dict(step.observation), float(step.reward or 0), step.last(), False, {}
