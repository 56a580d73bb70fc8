"""CIC: contrastive intrinsic control (Laskin et al., NeurIPS 2022).

    L = log sum_j exp(cos(g_p(tau_j), g_z(z_i)) / T) - cos(g_p(tau_i), g_z(z_i)) / T
    r = log(1 + mean_k max(|h_i - h_i^k| / V - 5e-4, 0)),   h = g_s(s')

The skill enters through the representation only: the reward itself does not depend on z.
V is the running variance of the distances. Departures: docs/methods/cic.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from comsd.config import Setting, sourced
from comsd.methods.base import Method
from comsd.methods.contrastive import ContrastiveConfig, ContrastiveEncoder, ContrastiveFeatures
from comsd.methods.entropy import ParticleEntropy
from comsd.methods.statistics import by_tercile
from comsd.skills import SkillSpace
from comsd.types import Batch, Metrics, ObsSpec


@dataclass(frozen=True)
class CICConfig(ContrastiveConfig):
    tuned: ClassVar[dict[str, dict[str, Setting]]] = {
        "maze": {
            **sourced("BeCL authors' maze code", hidden=128, lr=1e-3),
            "query": Setting("identity", "BeCL authors' maze code, its zeroed query restored"),
        },
    }


class CIC(Method):
    name = "cic"
    paper = "Laskin et al. 2022, contrastive intrinsic control"
    status = "measured: maze, Walker"
    config_class = CICConfig
    progress_metrics = {"cic/r_exp": "r_exp", "cic/variance": "V"}
    reward_uses_skill = False

    def __init__(self, config: CICConfig, space: SkillSpace, obs: ObsSpec) -> None:
        super().__init__(config, space, obs)
        c = config
        self.encoder = ContrastiveEncoder(obs, space, c)  # g_s, g_p, g_z
        self.reads = self.encoder.reads
        self.entropy = ParticleEntropy(c.k, "log1p", "variance")

    def embed(self, batch: Batch) -> ContrastiveFeatures:
        return self.encoder(batch)

    def loss(self, batch: Batch, features: ContrastiveFeatures) -> tuple[Tensor, Metrics]:
        return self.encoder.losses(features, "cic")

    def reward(self, batch: Batch, features: ContrastiveFeatures) -> tuple[Tensor, Metrics]:
        reward = self.entropy(features.next_state)
        return reward, {"cic/r_exp": reward, "cic/variance": self.entropy.moments.variance}

    def skill_scores(self, batch: Batch) -> Tensor:
        return self.encoder.skill_scores(self.embed(batch))

    def diagnostics(self, batch: Batch) -> Metrics:
        reward = self.entropy(self.embed(batch).next_state)
        return by_tercile("cic", self.space, batch.skill, {"r_exp": reward})
