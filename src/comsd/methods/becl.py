"""BeCL: behaviour contrastive learning (Yang et al., ICML 2023), maximising I(s1; s2) per skill.

    e(i, j) = exp(cos(f(s'_i), f(s'_j)) / T)                                       Eq. 1
    L_i = -log [ e(i, p) / (e(i, p) + sum over j of other skills e(i, j)) ]        Eq. 2
    r_i = exp(-L_i)                                                                Eq. 3

The positive p(i) is the next row of the same skill; its other rows are no negatives. On robots f
ends in a projection head. Numbers are ours; differences to both public codes: docs/methods/becl.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from comsd.config import Setting, setting, sourced
from comsd.methods.base import Method, MethodConfig
from comsd.nets import MLP, Adam, run_back_through, run_through, with_gradient, without_gradient
from comsd.skills import OneHot, SkillSpace
from comsd.terms import normalise, partners, through_norm
from comsd.types import Batch, Metrics, ObsInfo

CODE, MAZE = "BeCL's code", "BeCL authors' maze code"
FAR = 80.0  # e^-FAR is nothing beside e^(-1 / T), and yet no number that exp is slow at


@dataclass(frozen=True)
class BeCLConfig(MethodConfig):
    temperature: float = setting(0.5, "temperature T", CODE, low=0.03)
    head: bool = setting(True, "a projection head after the embedding", CODE)
    denominator: Literal["others", "all"] = setting(
        "others", "beside the positive: rows of other skills, or all (BeCL's robot code)", "paper"
    )
    tuned: ClassVar[dict[str, dict[str, Setting]]] = {
        "maze": sourced(MAZE, hidden=128, lr=1e-3, head=False),
        "robots": sourced(CODE, hidden=1024, lr=1e-4, agent__representation_steps=3)
        | sourced(CODE, run__space="one-hot", run__skills=16, agent__hold=50),
    }


class Features(NamedTuple):
    f: Tensor  # (B, d)  of any length
    u: Tensor  # (B, d)  f as unit vectors
    norm: Tensor  # (B, 1)  length of f
    partner: Tensor  # (B,)  p(i)
    e: Tensor  # (B, B)  e(i, j), zero at what is not in the denominator of Eq. 2
    total: Tensor  # (B,)  that denominator
    ratio: Tensor  # (B,)  that of Eq. 2
    alone: Tensor  # (B,)  no other row of the same skill in the batch: neither loss nor reward


class BeCL(Method):
    name = "becl"
    paper = "Yang et al. 2023, behavior contrastive learning for unsupervised skill discovery"
    status = "measured: maze, Walker"
    config_class = BeCLConfig
    progress_metrics = {"becl/loss": "loss"}
    config: BeCLConfig
    finetuning_rule = "random"
    spaces = (OneHot,)
    reward_uses_order = True  # the positive is the next row of the same skill

    def __init__(self, config: BeCLConfig, space: SkillSpace, obs: ObsInfo) -> None:
        super().__init__(c := config, space, obs)
        self.f = MLP(obs.dim, c.hidden, c.hidden, space.dim, init=c.init)
        self.nets = [self.f]
        if c.head:
            self.head = MLP(space.dim, c.hidden, space.dim, init=c.init)
            self.nets.append(self.head)

    def embed(self, batch: Batch) -> Features:
        f = self.standardise(batch.next_obs)
        for net in self.nets:
            f = net(f)
        return self.compare(f, batch.skill)

    def compare(self, f: Tensor, skill: Tensor) -> Features:
        (u, norm), temperature = normalise(f.detach()), self.config.temperature
        partner = partners(skill.argmax(-1))
        positive = ((u * u[partner]).sum(-1) / temperature).exp_()
        left, right = u / temperature, u
        if self.config.denominator == "others":  # the product sends rows of one skill to e^-FAR
            left, right = torch.cat([left, -FAR * skill], -1), torch.cat([right, skill], -1)
        e = torch.mm(left, right.T).exp_()  # Eq. 1
        e.diagonal().zero_()
        e.scatter_(-1, partner[:, None], positive[:, None])
        total, row = e.sum(-1), torch.arange(len(e), device=e.device)
        return Features(f, u, norm, partner, e, total, positive / total, partner == row)

    def loss(self, batch: Batch, features: Features) -> tuple[Tensor, Metrics]:
        loss, to_f = self.gradient(features)
        return with_gradient(loss, (features.f, to_f)), {"becl/loss": loss}

    @without_gradient
    def descend(self, batch: Batch, optimizer: Adam) -> tuple[Features, Metrics]:
        f, passes = run_through(self.nets, self.standardise(batch.next_obs))
        features = self.compare(f, batch.skill)
        loss, to_f = self.gradient(features)
        optimizer.step(run_back_through(self.nets, passes, to_f))
        return features, {"becl/loss": loss}

    @without_gradient
    def gradient(self, features: Features) -> tuple[Tensor, Tensor]:
        """The mean of Eq. 2 over the rows that are not alone, and its gradient in f."""
        _, u, norm, partner, e, total, ratio, alone = features
        weight = (~alone).float() / (~alone).sum().clamp_min(1)
        loss = -(weight * ratio.log()).sum()
        # d L_i / d cos(i, j) = (e(i, j) / total_i - [j = p(i)]) / T
        share, weight = (weight / total)[:, None], weight[:, None]
        as_i = (e @ u) * share - u[partner] * weight
        as_j = (e.T @ (u * share)).index_add_(0, partner, u * weight, alpha=-1)
        return loss, through_norm((as_i + as_j) / self.config.temperature, u, norm)

    def reward(self, batch: Batch, features: Features) -> tuple[Tensor, Metrics]:
        reward = features.ratio.masked_fill(features.alone, 0)  # Eq. 3
        return reward, {"becl/ratio": reward.mean()}
