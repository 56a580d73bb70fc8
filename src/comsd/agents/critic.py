"""The critic of DrQ-v2: twin values (B, 2) of features, skill and action on a shared trunk.

states   [s, z, a] -> H, LayerNorm, tanh -> twice: H, ReLU -> Q
images   [x, z] -> 50, LayerNorm, tanh; with a -> twice: H, ReLU, H, ReLU -> Q
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from comsd.nn import MLP, Bottleneck, join
from comsd.skills import SkillSpace


class Critic(nn.Module):
    """A trunk with LayerNorm and tanh, and heads (DrQ-v2).

    Of images the trunk is a bottleneck, which the action joins after it; of states it sees all.
    """

    spaces: ClassVar[tuple[type[SkillSpace], ...]] = (SkillSpace,)  # whose skills it can take
    trunk: Bottleneck

    def forward(self, obs: Tensor, skill: Tensor, action: Tensor) -> Tensor:
        """Twin values, (B, 2)."""
        raise AssertionError("a form says how")


class TwinCritic(Critic):
    """Two heads on one trunk."""

    def __init__(
        self,
        obs: int,
        skill: int,
        actions: int,
        hidden: int,
        bottleneck: int | None = None,
        out: int = 1,
    ) -> None:
        super().__init__()
        self.late_action = bottleneck is not None
        if bottleneck is None:
            self.trunk = Bottleneck(obs + skill + actions, hidden)
            sizes = hidden, hidden, out
        else:
            self.trunk = Bottleneck(obs + skill, bottleneck)
            sizes = bottleneck + actions, hidden, hidden, out
        self.q1, self.q2 = MLP(*sizes), MLP(*sizes)

    def forward(self, obs: Tensor, skill: Tensor, action: Tensor) -> Tensor:
        if self.late_action:
            h = torch.cat([self.trunk(join(obs, skill)), action], -1)
        else:
            h = self.trunk(torch.cat([obs, skill, action], -1))
        return torch.cat([self.q1(h), self.q2(h)], -1)
