"""DIAYN: diversity is all you need (Eysenbach et al., ICLR 2019), the reverse form of I(s; z).

L = -log q(z | s')                          a classifier of skills
r =  log q(z | s') - log p(z)               Eq. 3, p(z) uniform: + log K

Departures and the values for robots and mazes: docs/methods/diayn.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from comsd.config import Setting, sourced
from comsd.methods.base import Method, MethodConfig
from comsd.nn import MLP
from comsd.skills import OneHot, SkillSpace
from comsd.types import Batch, Metrics, ObsSpec

URLB = "URLB's code"


@dataclass(frozen=True)
class DIAYNConfig(MethodConfig):
    tuned: ClassVar[dict[str, dict[str, Setting]]] = {
        "maze": sourced("EDL's maze code", hidden=128, lr=1e-3),
        "robots": sourced(
            URLB, hidden=1024, lr=1e-4, run__space="one-hot", run__skills=16, train__hold=50
        ),
    }


class DIAYN(Method):
    name = "diayn"
    paper = "Eysenbach et al. 2019, diversity is all you need"
    status = "measured: maze, Walker"
    config_class = DIAYNConfig
    progress_metrics = {"diayn/accuracy": "accuracy"}
    finetuning_rule = "resample"
    spaces = (OneHot,)
    reads = ("next_obs",)

    def __init__(self, config: DIAYNConfig, space: SkillSpace, obs: ObsSpec) -> None:
        super().__init__(config, space, obs)
        widths = obs.dim, config.hidden, config.hidden, space.dim
        self.classifier = MLP(*widths, init=config.init)

    def embed(self, batch: Batch) -> Tensor:
        return self.classifier(self.normalizer(batch.next_obs))  # logits

    def skill_scores(self, batch: Batch) -> Tensor:
        return batch.skill @ self.embed(batch).log_softmax(-1).T

    def loss(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        loss = F.cross_entropy(features, batch.skill)
        return loss, {"diayn/cross_entropy": loss.detach()}

    def reward(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        log_likelihood = (features.log_softmax(-1) * batch.skill).sum(-1)
        hits = (features * batch.skill).sum(-1) == features.amax(-1)
        reward = log_likelihood + math.log(self.space.dim)  # Eq. 3
        return reward, {"diayn/accuracy": hits.float()}
