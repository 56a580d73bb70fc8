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
from comsd.nets import MLP
from comsd.skills import OneHot, SkillSpace
from comsd.terms import unit
from comsd.types import Batch, Metrics, ObsInfo

CODE, MAZE = "BeCL's code", "BeCL authors' maze code"


@dataclass(frozen=True)
class BeCLConfig(MethodConfig):
    temperature: float = setting(0.5, "temperature T", CODE, above=0)
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
    losses: Tensor  # (B,)  L_i of Eq. 2
    alone: Tensor  # (B,)  no other row of the same skill in the batch: neither loss nor reward


class BeCL(Method):
    name = "becl"
    paper = "Yang et al. 2023, behavior contrastive learning for unsupervised skill discovery"
    status = "measured: maze"
    config_class = BeCLConfig
    finetuning_rule = "random"
    spaces = (OneHot,)
    reward_uses_order = True  # the positive is the next row of the same skill

    def __init__(self, config: BeCLConfig, space: SkillSpace, obs: ObsInfo) -> None:
        super().__init__(config, space, obs)
        self.config = c = config
        self.f = MLP(obs.dim, c.hidden, c.hidden, space.dim, init=c.init)
        self.head = MLP(space.dim, c.hidden, space.dim, init=c.init) if c.head else None

    def embed(self, batch: Batch) -> Features:
        f = self.f(self.standardise(batch.next_obs))
        f = unit(f if self.head is None else self.head(f))
        label = batch.skill.argmax(-1)
        partner = partners(label)
        row = torch.arange(len(label), device=label.device)
        similarity = f @ f.T / self.config.temperature  # (B, B)  log of Eq. 1
        left_out = batch.skill @ batch.skill.T > 0  # rows of the same skill
        if self.config.denominator == "all":  # the positive is added below
            left_out = (row[:, None] == row) | (partner[:, None] == row)
        others = similarity.masked_fill(left_out, -torch.inf).logsumexp(-1)
        positive = similarity.gather(-1, partner[:, None])[:, 0]
        losses = torch.logaddexp(positive, others) - positive  # Eq. 2
        return Features(losses, partner == row)

    def loss(self, batch: Batch, features: Features) -> tuple[Tensor, Metrics]:
        loss = features.losses.masked_fill(features.alone, 0).mean()
        return loss, {"becl/loss": loss.detach()}

    def reward(self, batch: Batch, features: Features) -> tuple[Tensor, Metrics]:
        reward = (-features.losses).exp().masked_fill(features.alone, 0)  # Eq. 3
        return reward, {"becl/ratio": reward.mean()}
