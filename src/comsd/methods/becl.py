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
from torch import Tensor, nn
from torch.nn import functional as F

from comsd.config import Setting, setting, sourced
from comsd.methods.base import Method, MethodConfig
from comsd.nn import MLP
from comsd.skills import OneHot, SkillSpace
from comsd.types import Batch, Metrics, ObsSpec

CODE, MAZE = "BeCL's code", "BeCL authors' maze code"


@dataclass(frozen=True)
class BeCLConfig(MethodConfig):
    temperature: float = setting(0.5, "temperature T", CODE, low=0.03)
    head: bool = setting(True, "a projection head after the embedding", CODE)
    denominator: Literal["others", "all"] = setting(
        "others", "beside the positive: rows of other skills, or all (BeCL's robot code)", "paper"
    )
    tuned: ClassVar[dict[str, dict[str, Setting]]] = {
        "maze": sourced(MAZE, hidden=128, lr=1e-3, head=False),
        "robots": sourced(CODE, hidden=1024, lr=1e-4, train__representation_steps=3)
        | sourced(CODE, run__space="one-hot", run__skills=16, train__hold=50),
    }


def next_of_same_skill(label: Tensor) -> Tensor:
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
    log_ratio: Tensor  # (B,)  log of the ratio in Eq. 2
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
    reads = ("next_obs",)
    reward_uses_order = True  # the positive is the next row of the same skill

    def __init__(self, config: BeCLConfig, space: SkillSpace, obs: ObsSpec) -> None:
        super().__init__(c := config, space, obs)
        self.f = MLP(obs.dim, c.hidden, c.hidden, space.dim, init=c.init)
        head = MLP(space.dim, c.hidden, space.dim, init=c.init) if c.head else nn.Identity()
        self.head = head

    def embed(self, batch: Batch) -> Features:
        u = F.normalize(self.head(self.f(self.normalizer(batch.next_obs))), dim=-1)
        label = batch.skill.argmax(-1)
        row, partner = torch.arange(len(u), device=u.device), next_of_same_skill(label)
        log_e = u @ u.T / self.config.temperature  # Eq. 1
        others = self.config.denominator == "others"
        left_out = label[:, None] == label if others else row[:, None] == row
        left_out[row, partner] = False
        total = log_e.masked_fill(left_out, -torch.inf).logsumexp(-1)
        return Features(log_e[row, partner] - total, partner == row)

    def loss(self, batch: Batch, features: Features) -> tuple[Tensor, Metrics]:
        paired = (~features.alone).float()
        loss = -(paired * features.log_ratio).sum() / paired.sum().clamp_min(1)  # Eq. 2
        return loss, {"becl/loss": loss.detach()}

    def reward(self, batch: Batch, features: Features) -> tuple[Tensor, Metrics]:
        reward = features.log_ratio.exp().masked_fill(features.alone, 0)  # Eq. 3
        return reward, {"becl/ratio": reward.mean()}
