"""CeSD: constrained ensemble exploration for skill discovery (Bai et al., ICML 2024).

    h, L_nce = CIC's embedding of states and its contrast with the skills            Eq. 1
    p(c | s) = softmax_c(cos(h(s), m_c) / 0.1),  a prototype m_c per skill           Eq. 2
    L_proto  = -mean sum_c q(c | s') log p(c | s),  q the balanced p (Sinkhorn)      Eq. 3
    c        ~ p(. | s')                         the partition a transition is in    Eq. 4
    r_ent    = log(1 + mean_k max(|h_i - h_i^k| / V - 5e-4, 0)),  within c           Eq. 5
    r_con    = weight / (1 + rows of c whose skill is another than c)                Eq. 6
    r        = r_ent + r_con, for the value of skill c                               Eq. 7

L_nce trains h, L_proto the prototypes. Whoever acted, the heads of skill c learn from rows in c.
V is the running variance of the distances. Numbers are ours; departures: docs/methods/cesd.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from comsd.config import Setting, setting, sourced
from comsd.methods.base import Method
from comsd.methods.contrastive import ContrastiveConfig, ContrastiveEncoder, ContrastiveFeatures
from comsd.methods.entropy import ParticleEntropy
from comsd.skills import OneHot, SkillSpace
from comsd.types import Batch, Metrics, ObsSpec

CODE, MAZE = "CeSD's code", "as the other methods in the maze"


@dataclass(frozen=True)
class CeSDConfig(ContrastiveConfig):
    weight: float = setting(1.0, "weight of the constraint reward (Eq. 6)", CODE, low=0)
    sharpness: float = setting(0.1, "temperature of the prototypes (Eq. 2)", CODE, low=0.03)
    rounds: int = setting(
        6, "Sinkhorn iterations (Eq. 3)", "CeSD's code, for Walker", low=1, high=1000
    )
    outside: Literal["credit", "nothing"] = setting(
        "credit", "outside its skill's partition a row earns for that one's skill, or nothing", CODE
    )
    on_policy = {"outside": "nothing"}
    tuned: ClassVar[dict[str, dict[str, Setting]]] = {
        "robots": sourced(CODE, run__space="one-hot", run__skills=16),
        "quadruped": sourced(CODE, rounds=5),
        "maze": {
            **sourced(MAZE, hidden=128, lr=1e-3, query="identity"),
            "outside": Setting("nothing", "PPO can only teach the skill that acted"),
        },
    }


@torch.no_grad()
def sinkhorn(logits: Tensor, rounds: int) -> Tensor:
    """(B, K), rows that sum to one: exp(logits) scaled such that all columns weigh the same."""
    table = (logits - logits.amax()).exp()
    row, column = torch.ones_like(table[:, 0]), torch.ones_like(table[0])
    for _ in range(rounds):
        column = 1 / (row @ table)
        row = 1 / (table @ column)
    return row[:, None] * table * column


class Features(NamedTuple):
    embedded: ContrastiveFeatures
    partition: Tensor  # (B, K)  one-hot, c


class CeSD(Method):
    name = "cesd"
    paper = "Bai et al. 2024, constrained ensemble exploration for unsupervised skill discovery"
    status = "measured: maze, Walker"
    config_class = CeSDConfig
    progress_metrics = {"cesd/r_ent": "r_ent", "cesd/own": "own"}
    config: CeSDConfig
    spaces = (OneHot,)
    reward_uses_order = True  # partitions are drawn row by row
    critic = "per-skill"
    finetuning_rule = "random"

    def __init__(self, config: CeSDConfig, space: SkillSpace, obs: ObsSpec) -> None:
        super().__init__(config, space, obs)
        self.encoder = ContrastiveEncoder(obs, space, config)
        self.reads = self.encoder.reads
        self.prototypes = nn.Parameter(nn.init.orthogonal_(torch.empty(space.dim, space.dim)))
        self.entropy = ParticleEntropy(config.k, "log1p", "variance")

    def logits(self, state: Tensor) -> Tensor:
        cosine = F.normalize(state.detach(), dim=-1) @ F.normalize(self.prototypes, dim=-1).T
        return cosine / self.config.sharpness  # Eq. 2

    @torch.no_grad()
    def assigned(self, embedded: ContrastiveFeatures) -> Features:
        """Eq. 4: drawn in training (adding Gumbel noise is drawing), otherwise the likeliest."""
        logits = self.logits(embedded.next_state)
        if self.training:
            logits = logits - torch.empty_like(logits).exponential_().log()
        return Features(embedded, F.one_hot(logits.argmax(-1), self.space.dim).float())

    def embed(self, batch: Batch) -> Features:
        return self.assigned(self.encoder(batch))

    def prototype_loss(self, embedded: ContrastiveFeatures) -> Tensor:
        q = sinkhorn(self.logits(embedded.next_state), self.config.rounds)
        return F.cross_entropy(self.logits(embedded.state), q)  # Eq. 3

    def loss(self, batch: Batch, features: Features) -> tuple[Tensor, Metrics]:
        nce, terms = self.encoder.losses(features.embedded, "cesd")
        proto = self.prototype_loss(features.embedded)
        return nce + proto, terms | {"cesd/proto": proto.detach()}

    def reward(self, batch: Batch, features: Features) -> tuple[Tensor, Metrics]:
        embedded, partition = features
        own = (partition * batch.skill).sum(-1)
        strangers = partition.T @ (1 - own)  # (K,)
        r_ent = self.entropy(embedded.next_state, group=partition.argmax(-1))  # Eq. 5
        r_con = partition @ (self.config.weight / (1 + strangers))  # Eq. 6
        reward = r_ent + r_con  # Eq. 7
        parts = {"cesd/r_ent": r_ent, "cesd/r_con": r_con, "cesd/own": own}
        parts["cesd/variance"] = self.entropy.moments.variance
        return reward * own if self.config.outside == "nothing" else reward, parts

    def value_skill(self, batch: Batch, features: Features) -> Tensor | None:
        return features.partition if self.config.outside == "credit" else None

    def skill_scores(self, batch: Batch) -> Tensor:
        return self.encoder.skill_scores(self.encoder(batch))
