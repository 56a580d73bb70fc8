"""CIC: contrastive intrinsic control (Laskin et al., NeurIPS 2022).

    L = log sum_j exp(cos(g_p(tau_j), g_z(z_i)) / T) - cos(g_p(tau_i), g_z(z_i)) / T
    r = log(1 + mean_k max(|h_i - h_i^k| / V - 5e-4, 0)),   h = g_s(s')

The skill enters through the representation only: the reward itself does not depend on z.
V is the running variance of the distances. Departures: docs/methods/cic.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from torch import Tensor

from comsd.config import Setting, setting
from comsd.methods.base import Method, MethodConfig
from comsd.nets import MLP, Adam, PairEncoder
from comsd.skills import SkillSpace
from comsd.terms import ParticleEntropy, info_nce, info_nce_gradient, unit
from comsd.types import Batch, Metrics, ObsInfo

CODE = "CIC's code"


@dataclass(frozen=True)
class CICConfig(MethodConfig):
    temperature: float = setting(0.5, "temperature T", CODE, low=0.03)
    k: int = setting(16, "nearest neighbours, the point itself among them", CODE, low=2)
    query: Literal["learned", "identity"] = setting("learned", "g_z: a network or z itself", CODE)

    tuned: ClassVar[dict[str, dict[str, Setting]]] = {
        "maze": {
            "hidden": Setting(128, "BeCL authors' maze code"),
            "lr": Setting(1e-3, "BeCL authors' maze code"),
            "query": Setting("identity", "BeCL authors' maze code, its zeroed query restored"),
        },
    }


class Features(NamedTuple):
    state: Tensor  # g_s(s')
    pair: Tensor  # g_p(tau)


class CIC(Method):
    name = "cic"
    paper = "Laskin et al. 2022, contrastive intrinsic control"
    config_class = CICConfig
    reward_uses_skill = False

    def __init__(self, config: CICConfig, space: SkillSpace, obs: ObsInfo) -> None:
        super().__init__(config, space, obs)
        self.config = c = config
        self.g_pair = PairEncoder(obs, c.hidden, space.dim)
        if c.query == "learned":
            self.g_skill = MLP(space.dim, c.hidden, c.hidden, space.dim)
        self.entropy = ParticleEntropy(c.k, "log1p", "variance")

    def embed(self, batch: Batch) -> Features:
        return Features(*self.g_pair(batch.obs, batch.next_obs))

    def pairs(self, batch: Batch, key: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
        """Skills, trajectories and which belong together, as the contrastive terms take them."""
        skills, owner = self.space.distinct(batch.skill)
        if self.config.query == "learned" or not self.space.unit_length:
            skills = unit(self.g_skill(skills) if self.config.query == "learned" else skills)
        return skills, key, owner, self.config.temperature

    def loss(self, batch: Batch, features: Features) -> tuple[Tensor, Metrics]:
        nce = info_nce(*self.pairs(batch, features.pair))
        return nce, {"cic/nce": nce.detach()}

    def fit(self, batch: Batch, optimizer: Adam) -> Metrics:
        if self.config.query == "learned":
            return super().fit(batch, optimizer)
        gradient = lambda key: info_nce_gradient(*self.pairs(batch, key))  # noqa: E731
        nce = self.g_pair.descend(batch.obs, batch.next_obs, gradient, optimizer)
        return {"cic/nce": nce}

    def reward(self, batch: Batch, features: Features) -> tuple[Tensor, Metrics]:
        reward = self.entropy(features.state)
        return reward, {"cic/variance": self.entropy.moments.variance}
