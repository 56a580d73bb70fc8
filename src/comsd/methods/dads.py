"""DADS in its maze form: the forward form of I(s'; z) (EDL's "forward MI", Campos et al. 2020).

    log q(s' | z) = -|s' - mu(z)|^2                                    a point per skill
    L = -log q(s' | z)
    r =  log q(s' | z) - log (1 / K) sum_k q(s' | k)                   at most log K

DADS (Sharma et al., ICLR 2020) predicts s' from (s, z); the maze literature drops s, which makes
every skill an attractor. All K skills are summed, none sampled. Details: docs/methods/dads.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from comsd.config import Setting
from comsd.methods.base import Method, MethodConfig
from comsd.nets import MLP
from comsd.skills import OneHot, SkillSpace
from comsd.types import Batch, Metrics, ObsInfo


@dataclass(frozen=True)
class DADSConfig(MethodConfig):
    tuned: ClassVar[dict[str, dict[str, Setting]]] = {
        "maze": {
            "hidden": Setting(128, "EDL's maze code"),
            "lr": Setting(1e-3, "EDL's maze code"),
        },
    }


class DADS(Method):
    name = "dads"
    paper = "Sharma et al. 2020, dynamics-aware unsupervised discovery of skills (maze form)"
    config_class = DADSConfig
    spaces = (OneHot,)

    def __init__(self, config: DADSConfig, space: SkillSpace, obs: ObsInfo) -> None:
        super().__init__(config, space, obs)
        widths = space.dim, config.hidden, config.hidden, obs.dim
        self.mu = MLP(*widths, init=config.init)  # standardised units

    def embed(self, batch: Batch) -> Tensor:
        """Squared distances of s' to the point of every skill, (B, K)."""
        skills, _ = self.space.distinct(batch.skill)
        centres = self.mu(skills) * self.standardise.std + self.standardise.mean  # (K, O)
        return (batch.next_obs[:, None] - centres).square().sum(-1)

    def loss(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        loss = (features * batch.skill).sum(-1).mean()
        return loss, {"dads/squared_error": loss.detach()}

    def reward(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        log_q = -(features * batch.skill).sum(-1)
        log_mean = (-features).logsumexp(-1) - math.log(self.space.dim)  # no underflow far away
        return log_q - log_mean, {"dads/squared_error": -log_q.mean()}
