"""BeCL: behaviour contrastive learning (Yang et al., ICML 2023), maximising I(s1; s2) per skill.

    L_i = -log [ e(i, p) / (e(i, p) + sum over j of other skills e(i, j)) ],
    e(i, j) = exp(cos(f(s'_i), f(s'_j)) / T),  p(i) another state of the same skill
    r_i = exp(-L_i)

The clean form: the positive is the next row of the same skill, so each anchor has another one;
rows of the same skill are no negatives. Differences to the two public codes: docs/methods/becl.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from comsd.config import Setting, setting
from comsd.methods.base import Method, MethodConfig
from comsd.nets import MLP
from comsd.skills import OneHot, SkillSpace
from comsd.terms import unit
from comsd.types import Batch, Metrics, ObsInfo


@dataclass(frozen=True)
class BeCLConfig(MethodConfig):
    temperature: float = setting(0.5, "temperature T", "BeCL's code", above=0)

    tuned: ClassVar[dict[str, dict[str, Setting]]] = {
        "maze": {
            "hidden": Setting(128, "BeCL authors' maze code"),
            "lr": Setting(1e-3, "BeCL authors' maze code"),
        },
    }


def partners(label: Tensor) -> Tensor:
    """For every row the next row with its label, cyclically; a row alone gets itself."""
    order = label.argsort(stable=True)
    grouped = label[order]
    is_last = torch.ones_like(grouped, dtype=torch.bool)
    is_last[:-1] = grouped[:-1] != grouped[1:]
    first = torch.searchsorted(grouped, grouped)  # start of each row's group
    position = torch.arange(len(label), device=label.device)
    following = torch.where(is_last, first, position + 1)
    return torch.empty_like(order).scatter_(0, order, order[following])


class Features(NamedTuple):
    losses: Tensor  # (B,)  L_i
    alone: Tensor  # (B,)  no other row of the same skill in the batch: neither loss nor reward


class BeCL(Method):
    name = "becl"
    paper = "Yang et al. 2023, behavior contrastive learning for unsupervised skill discovery"
    config_class = BeCLConfig
    spaces = (OneHot,)
    reward_uses_order = True  # the positive is the next row of the same skill

    def __init__(self, config: BeCLConfig, space: SkillSpace, obs: ObsInfo) -> None:
        super().__init__(config, space, obs)
        self.config = config
        self.f = MLP(obs.dim, config.hidden, config.hidden, space.dim, init=config.init)

    def embed(self, batch: Batch) -> Features:
        f = unit(self.f(self.standardise(batch.next_obs)))
        label = batch.skill.argmax(-1)
        partner = partners(label)
        similarity = f @ f.T / self.config.temperature  # (B, B)
        same_skill = batch.skill @ batch.skill.T > 0
        others = similarity.masked_fill(same_skill, -torch.inf).logsumexp(-1)
        positive = similarity.gather(-1, partner[:, None])[:, 0]
        alone = partner == torch.arange(len(label), device=label.device)
        return Features(torch.logaddexp(positive, others) - positive, alone)

    def loss(self, batch: Batch, features: Features) -> tuple[Tensor, Metrics]:
        loss = features.losses.masked_fill(features.alone, 0).mean()
        return loss, {"becl/loss": loss.detach()}

    def reward(self, batch: Batch, features: Features) -> tuple[Tensor, Metrics]:
        reward = (-features.losses).exp().masked_fill(features.alone, 0)
        return reward, {"becl/ratio": reward.mean()}
