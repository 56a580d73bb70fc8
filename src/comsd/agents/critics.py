"""The forms of a critic: twin values (B, 2) of features, skill and action.

plain       Q = f(s, z, a)
successor   Q = z . psi(s, z, a)    psi with a number per coordinate of the skill (APS)
per-skill   Q = f_z(s, a)           a pair of heads per skill, on a trunk that does not see z (CeSD)

states      [s, z, a] -> H, LayerNorm, tanh -> twice: H, ReLU -> Q             as in DrQ-v2
images      [x, z] -> 50, LayerNorm, tanh; with a -> twice: H, ReLU, H, ReLU -> Q

A method names the form it needs as `Method.critic`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from comsd.nn import MLP, Bottleneck, join
from comsd.skills import OneHot, SkillSpace


class Critic(nn.Module, ABC):
    """A trunk with LayerNorm and tanh, and heads (DrQ-v2).

    Of images the trunk is a bottleneck, which the action joins after it; of states it sees all.
    """

    spaces: ClassVar[tuple[type[SkillSpace], ...]] = (SkillSpace,)  # whose skills it can take
    trunk: Bottleneck

    @abstractmethod
    def forward(self, obs: Tensor, skill: Tensor, action: Tensor) -> Tensor:
        """Twin values, (B, 2)."""


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


class SuccessorCritic(TwinCritic):
    """Both heads give a vector psi, which the skill turns into a value."""

    def __init__(
        self, obs: int, skill: int, actions: int, hidden: int, bottleneck: int | None = None
    ) -> None:
        super().__init__(obs, skill, actions, hidden, bottleneck, out=skill)

    def forward(self, obs: Tensor, skill: Tensor, action: Tensor) -> Tensor:
        psi = super().forward(obs, skill, action).unflatten(-1, (2, -1))  # (B, 2, Z)
        return (psi * skill[:, None]).sum(-1)


class PerSkillCritic(Critic):
    """A pair of heads per skill of a one-hot space; each row goes through its own skill's alone.

    Rows are sorted by skill and every pair of heads gets its piece: the work of two heads, whatever
    their number. A skill without rows gets a gradient of zero, as if all heads had been computed.
    """

    spaces = (OneHot,)

    def __init__(
        self, obs: int, skill: int, actions: int, hidden: int, bottleneck: int | None = None
    ) -> None:
        super().__init__()
        self.late_action = bottleneck is not None
        if bottleneck is None:
            width = max(1, hidden // 2)  # as in CeSD's code, 512 below heads of 1024
            self.trunk = Bottleneck(obs + actions, width)
            sizes = width, hidden, 1
        else:
            self.trunk = Bottleneck(obs, bottleneck)
            sizes = bottleneck + actions, hidden, hidden, 1
        self.q1 = nn.ModuleList(MLP(*sizes) for _ in range(skill))
        self.q2 = nn.ModuleList(MLP(*sizes) for _ in range(skill))

    def forward(self, obs: Tensor, skill: Tensor, action: Tensor) -> Tensor:
        index = skill.argmax(-1)
        order, sizes = index.argsort(), index.bincount(minlength=len(self.q1)).tolist()
        if self.late_action:
            h = torch.cat([self.trunk(obs), action], -1)
        else:
            h = self.trunk(torch.cat([obs, action], -1))
        pieces = h[order].split(sizes)
        values = [
            torch.cat([q1(piece), q2(piece)], -1)
            for q1, q2, piece in zip(self.q1, self.q2, pieces, strict=True)
        ]
        return torch.cat(values)[order.argsort()]


CRITICS: dict[str, type[Critic]] = {  # of (features, skill, actions, hidden, bottleneck)
    "plain": TwinCritic,
    "successor": SuccessorCritic,
    "per-skill": PerSkillCritic,
}
