"""What the settings of all agents have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from comsd.config import Settings, setting
from comsd.envs.base import Array, PolicyFn


@dataclass(frozen=True)
class AgentConfig(Settings):
    envs: int = setting(1, "environments that run side by side", "one, as in the papers", low=1)


class Policy(Protocol):
    def act(
        self, obs: Tensor | Array, skill: Tensor, rng: np.random.Generator | None = None
    ) -> Tensor: ...

    def player(
        self, skill: Tensor, rng: np.random.Generator | None
    ) -> Callable[[Array], Array]: ...


def make_policy_fn(policy: Policy, skill: Tensor, rng: np.random.Generator | None) -> PolicyFn:
    return policy.player(skill, rng)
