"""APS: active pretraining with successor features (Liu & Abbeel, ICML 2021), as in URLB's code.

    u     = phi(s') / |phi(s')|                                               Eq. 1
    L     = -mean w . u                                                       Eq. 2
    r_sf  = w . u                                                             Eq. 3
    r_ent = log(1 + mean_k max(|phi_i - phi_i^k| / M - 1e-4, 0))              Eq. 4
    r     = r_ent + r_sf                                                      Eq. 5
    Q     = w . psi(s, w, a)                              the critic's form   Eq. 6
    w*    = (U'U + l I)^-1 U'R, made a skill               a task's skill     Eq. 7

The skill w is a unit vector; phi^k are the 12 nearest of the batch, itself among them, and M is the
running mean of such distances. Numbers are ours; departures: docs/methods/aps.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from comsd.config import Setting, setting, sourced
from comsd.methods.base import Method, MethodConfig
from comsd.methods.entropy import ParticleEntropy
from comsd.nn import MLP
from comsd.skills import OneHot, SkillSpace, Sphere
from comsd.types import Batch, Metrics, ObsSpec

CODE, MAZE = "URLB's code", "as the other methods in the maze"


@dataclass(frozen=True)
class APSConfig(MethodConfig):
    k: int = setting(12, "nearest neighbours, the point itself among them (Eq. 4)", CODE, low=2)
    ridge: float = setting(
        1e-3, "l of Eq. 7, as a share of the mean square of a feature", "ours", above=0
    )

    def rows_needed(self) -> dict[str, int]:
        return {"k": self.k}

    tuned: ClassVar[dict[str, dict[str, Setting]]] = {
        "robots": sourced(CODE, run__space="sphere", run__skills=10, train__hold=5),
        "maze": sourced(MAZE, hidden=128, lr=1e-3),
    }


class APS(Method):
    name = "aps"
    paper = "Liu & Abbeel 2021, active pretraining with successor features"
    status = "measured: Walker"
    config_class = APSConfig
    progress_metrics = {"aps/r_ent": "r_ent", "aps/r_sf": "r_sf"}
    config: APSConfig
    spaces = (Sphere, OneHot)  # unit vectors
    reads = ("next_obs",)
    critic = "successor"  # Eq. 6
    finetuning_rule = "regress"

    def __init__(self, config: APSConfig, space: SkillSpace, obs: ObsSpec) -> None:
        super().__init__(config, space, obs)
        widths = obs.dim, config.hidden, config.hidden, space.dim
        self.phi = MLP(*widths, init=config.init)
        self.entropy = ParticleEntropy(config.k, "log1p", "mean", clip=1e-4)

    def embed(self, batch: Batch) -> Tensor:
        return self.phi(self.normalizer(batch.next_obs))

    def loss(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        loss = -(batch.skill * F.normalize(features, dim=-1)).sum(-1).mean()  # Eq. 1, 2
        return loss, {"aps/loss": loss.detach()}

    def reward(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        r_sf = (batch.skill * F.normalize(features, dim=-1)).sum(-1)  # Eq. 3
        r_ent = self.entropy(features)  # Eq. 4
        parts = {"aps/r_sf": r_sf, "aps/r_ent": r_ent, "aps/mean": self.entropy.moments.mean}
        return r_ent + r_sf, parts  # Eq. 5

    @torch.no_grad()
    def regress_skill(self, batch: Batch) -> Tensor:
        """Eq. 7; rewards that are all zero ask for nothing, so then the skill is random."""
        u = F.normalize(self.embed(batch), dim=-1).double()
        moments = u.T @ u
        moments.diagonal().add_(self.config.ridge * moments.trace() / len(moments))
        w = torch.linalg.solve(moments, u.T @ batch.reward.double()).float()
        return self.space.decode(w if bool(w.any()) else torch.randn_like(w))

    def skill_scores(self, batch: Batch) -> Tensor:
        return batch.skill @ F.normalize(self.embed(batch), dim=-1).T
