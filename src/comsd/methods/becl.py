"""BeCL: behaviour contrastive learning (Yang et al., ICML 2023), maximising I(s1; s2) per skill.

    e(i, j) = exp(cos(f(s'_i), f(s'_j)) / T)                                       Eq. 1
    L_i = -log [ e(i, p) / (e(i, p) + sum over j of other skills e(i, j)) ]        Eq. 2
    r_i = exp(-L_i)                                                                Eq. 3

The clean form (numbered here): the positive p(i) is the next row of the same skill, so each
anchor has another one; rows of the same skill are no negatives. On robots f ends in a projection
head, and takes three steps per update. Differences to the two public codes: docs/methods/becl.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from comsd.config import Setting, setting
from comsd.methods.base import Method, MethodConfig
from comsd.nets import MLP, with_gradient
from comsd.skills import OneHot, SkillSpace
from comsd.terms import normalise, partners, through_norm, unit
from comsd.types import Batch, Metrics, ObsInfo

CODE, MAZE = "BeCL's code", "BeCL authors' maze code"


@dataclass(frozen=True)
class BeCLConfig(MethodConfig):
    temperature: float = setting(0.5, "temperature T", CODE, low=0.03)
    head: bool = setting(True, "a projection head after the embedding", CODE)
    denominator: Literal["others", "all"] = setting(
        "others",
        "beside the positive: the rows of other skills, or all rows as in BeCL's robot code",
        "paper",
    )

    tuned: ClassVar[dict[str, dict[str, Setting]]] = {
        "maze": {
            "hidden": Setting(128, MAZE),
            "lr": Setting(1e-3, MAZE),
            "head": Setting(False, MAZE),
        },
        "robots": {
            "hidden": Setting(1024, CODE),
            "lr": Setting(1e-4, CODE),
            "run.space": Setting("one-hot", CODE),
            "run.skills": Setting(16, CODE),
            "agent.hold": Setting(50, CODE),
            "agent.representation_steps": Setting(3, CODE),
        },
    }


class Features(NamedTuple):
    f: Tensor  # (B, d)  of any length
    partner: Tensor  # (B,)  p(i)
    shares: Tensor  # (B, B)  e(i, j) over the denominator of Eq. 2, zero at what is not in it
    alone: Tensor  # (B,)  no other row of the same skill in the batch: neither loss nor reward

    @property
    def ratio(self) -> Tensor:
        """(B,): that of Eq. 2."""
        return self.shares.gather(-1, self.partner[:, None])[:, 0]


class BeCL(Method):
    name = "becl"
    paper = "Yang et al. 2023, behavior contrastive learning for unsupervised skill discovery"
    status = "measured: maze, Walker"
    config_class = BeCLConfig
    config: BeCLConfig
    finetuning_rule = "random"
    spaces = (OneHot,)
    reward_uses_order = True  # the positive is the next row of the same skill

    def __init__(self, config: BeCLConfig, space: SkillSpace, obs: ObsInfo) -> None:
        super().__init__(config, space, obs)
        c = config
        self.f = MLP(obs.dim, c.hidden, c.hidden, space.dim, init=c.init)
        self.head = MLP(space.dim, c.hidden, space.dim, init=c.init) if c.head else None

    def embed(self, batch: Batch) -> Features:
        f = self.f(self.standardise(batch.next_obs))
        f = f if self.head is None else self.head(f)
        return Features(f, *self.compare(f.detach(), batch.skill.argmax(-1)))

    def compare(self, f: Tensor, label: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        partner, row = partners(label), torch.arange(len(label), device=label.device)
        who = label if self.config.denominator == "others" else row
        u, p = unit(f), partner[:, None]
        e = torch.mm(u, u.T / self.config.temperature).exp_()  # Eq. 1
        positive = e.gather(-1, p)
        e = e.masked_fill_(who[:, None] == who, 0).scatter_(-1, p, positive)
        return partner, e.div_(e.sum(-1, keepdim=True)), partner == row

    def loss(self, batch: Batch, features: Features) -> tuple[Tensor, Metrics]:
        loss, to_f = self.gradient(features)
        return with_gradient(loss, (features.f, to_f)), {"becl/loss": loss}

    @torch.no_grad()
    def gradient(self, features: Features) -> tuple[Tensor, Tensor]:
        """The mean of Eq. 2 over the rows that are not alone, and its gradient in f.

        d L_i / d cos(i, j) = (share(i, j) - [j = p(i)]) / T
        """
        f, partner, shares, alone = features
        u, norm = normalise(f)
        weight = (~alone).float() / (~alone).sum().clamp_min(1)
        loss = -(weight * features.ratio.log()).sum()
        weighted = u * weight[:, None]
        as_i = (shares @ u - u[partner]) * weight[:, None]
        as_j = (shares.T @ weighted).index_add_(0, partner, weighted, alpha=-1)
        return loss, through_norm((as_i + as_j) / self.config.temperature, u, norm)

    def reward(self, batch: Batch, features: Features) -> tuple[Tensor, Metrics]:
        reward = features.ratio.masked_fill(features.alone, 0)  # Eq. 3
        return reward, {"becl/ratio": reward.mean()}
