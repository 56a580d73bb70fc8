"""The critic of DrQ-v2: twin values (B, 2) of features, skill and action on a shared trunk."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from comsd.nn import MLP, Network, linear
from comsd.skills import SkillSpace


class Critic(nn.Module):
    """A trunk with LayerNorm and tanh, and heads of one hidden layer (DrQ-v2)."""

    spaces: ClassVar[tuple[type[SkillSpace], ...]] = (SkillSpace,)  # whose skills it can take
    trunk: Trunk

    def forward(self, obs: Tensor, skill: Tensor, action: Tensor) -> Tensor:
        """Twin values, (B, 2)."""
        raise AssertionError("a form says how")


class Trunk(Network):
    """The first layer, shared by all heads."""

    def __init__(self, fan_in: int, width: int) -> None:
        super().__init__()
        self.hidden = nn.Sequential(linear(fan_in, width), nn.LayerNorm(width), nn.Tanh())
        self.out = nn.Identity()


class TwinCritic(Critic):
    """Two heads on one trunk that sees all."""

    def __init__(self, obs: int, skill: int, actions: int, hidden: int, out: int = 1) -> None:
        super().__init__()
        self.trunk = Trunk(obs + skill + actions, hidden)
        self.q1, self.q2 = MLP(hidden, hidden, out), MLP(hidden, hidden, out)

    def forward(self, obs: Tensor, skill: Tensor, action: Tensor) -> Tensor:
        h = self.trunk(torch.cat([obs, skill, action], -1))
        return torch.cat([self.q1(h), self.q2(h)], -1)
