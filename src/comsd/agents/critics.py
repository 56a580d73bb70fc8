"""The forms of a critic: twin values (B, 2) of features, skill and action.

plain       Q = f(s, z, a)
successor   Q = z . psi(s, z, a)    psi with a number per coordinate of the skill (APS)
per-skill   Q = f_z(s, a)           a pair of heads per skill, on a trunk that does not see z (CeSD)

A method names the form it needs as `Method.critic`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from comsd.agents.critic import Critic, TwinCritic
from comsd.nn import MLP, Bottleneck
from comsd.skills import OneHot


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
