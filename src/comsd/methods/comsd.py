"""ComSD: contrastive dynamic skill discovery (Liu et al., IEEE T-CYB, Sec. IV).

    q(tau, z) = exp(cos(f1(tau), f2(z)) / T)                                   Eq. 6
    L_nce     = log q(tau_i, z_i) - log mean_j q(tau_j, z_i), maximised        Eq. 7
    r_div     = q(tau_i, z_i)                                                  Eq. 8
    r_exp     = mean_k log |h_i - h_i^k|, the k nearest of the batch           Eq. 10
    beta(z)   = the line (f_low, w_low)-(f_high, w_high), clamped              Eq. 11
    r         = r_exp + alpha * beta(z) * r_div                                Eq. 12

tau is the pair (s, s'). Departures from the paper and their reasons: docs/methods/comsd.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from comsd.config import Setting, setting
from comsd.errors import InputError
from comsd.methods.base import Method, MethodConfig
from comsd.nets import MLP, Adam, PairEncoder
from comsd.skills import SkillSpace
from comsd.terms import ParticleEntropy, dynamic_weight, info_nce, info_nce_gradient, log_q, unit
from comsd.types import Batch, Metrics, ObsInfo

PAPER, ERRATUM = "paper, hyper-parameter table", "paper, Eq. 11 with the clamp's bounds in order"


@dataclass(frozen=True)
class ComSDConfig(MethodConfig):
    alpha: float = setting(0.25, "weight of the diversity reward (Eq. 12)", PAPER, low=0)
    temperature: float = setting(0.5, "temperature T (Eq. 6)", PAPER, low=0.03)
    w_low: float = setting(0.0, "lowest dynamic weight (Eq. 11)", ERRATUM, low=0)
    w_high: float = setting(2.0, "highest dynamic weight (Eq. 11)", ERRATUM, low=0)
    f_low: float = setting(0.0, "flag at which the weight leaves w_low", PAPER, low=0, high=1)
    f_high: float = setting(1.0, "flag at which the weight reaches w_high", PAPER, low=0, high=1)
    smw: bool = setting(True, "dynamic weighting; off: the mean weight for all (ablation)", PAPER)
    diversity: bool = setting(True, "use the diversity reward (Eq. 8); off: ablation", PAPER)
    diversity_form: Literal["q", "log-q"] = setting("q", "r_div is q or log q", "paper, Eq. 8")
    exploration: bool = setting(True, "use the exploration reward (Eq. 10); off: ablation", PAPER)
    query: Literal["learned", "identity"] = setting("learned", "f2: a network or z itself", PAPER)
    k: int = setting(16, "nearest neighbours", "CIC's code", low=2)
    knn: Literal["embedding", "trajectory", "observation", "frozen-random"] = setting(
        "embedding",
        "h of Eq. 10: embedding of s', f1(tau), s' itself, or an untrained net (s against s': "
        "all that the released maze code computes)",
        "paper: 'following CIC'",
    )
    knn_form: Literal["log", "log1p"] = setting("log1p", "mean of logs, or CIC's form", "CIC")
    knn_scale: Literal["variance", "mean", "std"] = setting("variance", "for log1p", "CIC's code")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.f_low >= self.f_high or self.w_low > self.w_high:
            raise InputError("f_low must be less than f_high, and w_low at most w_high")
        if not (self.diversity or self.exploration):
            raise InputError("diversity and exploration cannot both be off: no reward is left")

    tuned: ClassVar[dict[str, dict[str, Setting]]] = {
        "maze": {
            "hidden": Setting(128, "authors' maze code"),
            "lr": Setting(1e-3, "authors' maze code"),
            "alpha": Setting(0.1, "measured: above .2 a skill may hold two arms"),
            "w_low": Setting(0.5, "paper, Sec. V-K"),
            "w_high": Setting(1.0, "paper, Sec. V-K"),
            "query": Setting("identity", "authors' maze code (without the line that zeroes it)"),
            "knn": Setting("observation", "measured: with f1(tau) some arms stay unowned"),
            "knn_form": Setting("log", "paper, Eq. 10"),
        },
    }


class Features(NamedTuple):
    state: Tensor | None  # embedding of s'
    pair: Tensor | None  # f1(tau)


class ComSD(Method):
    name = "comsd"
    paper = "Liu et al., balancing state exploration and skill diversity (ComSD)"
    config_class = ComSDConfig

    def __init__(self, config: ComSDConfig, space: SkillSpace, obs: ObsInfo) -> None:
        super().__init__(config, space, obs)
        self.config = c = config
        self.contrasts = c.diversity or (c.exploration and c.knn in ("embedding", "trajectory"))
        if self.contrasts:
            self.f_pair = PairEncoder(obs, c.hidden, space.dim)
            if c.query == "learned":
                self.f_skill = MLP(space.dim, c.hidden, c.hidden, space.dim)
        if c.exploration:
            self.entropy = ParticleEntropy(c.k, c.knn_form, c.knn_scale)
            if c.knn == "frozen-random":
                self.f_frozen = MLP(obs.dim, c.hidden, c.hidden, space.dim).requires_grad_(False)

    def embed(self, batch: Batch) -> Features:
        if not self.contrasts:
            return Features(None, None)
        return Features(*self.f_pair(batch.obs, batch.next_obs))

    def pairs(self, batch: Batch, key: Tensor | None) -> tuple[Tensor, Tensor, Tensor, float]:
        """Skills, trajectories and which belong together, as the contrastive terms take them."""
        assert key is not None
        skills, owner = self.space.distinct(batch.skill)
        if self.config.query == "learned" or not self.space.unit_length:
            skills = unit(self.f_skill(skills) if self.config.query == "learned" else skills)
        return skills, key, owner, self.config.temperature

    def loss(self, batch: Batch, features: Features) -> tuple[Tensor, Metrics]:
        nce = info_nce(*self.pairs(batch, features.pair))  # Eq. 7
        return nce, {"comsd/nce": nce.detach()}

    def fit(self, batch: Batch, optimizer: Adam) -> Metrics:
        if self.config.query == "learned":
            return super().fit(batch, optimizer)
        gradient = lambda key: info_nce_gradient(*self.pairs(batch, key))  # noqa: E731
        nce = self.f_pair.descend(batch.obs, batch.next_obs, gradient, optimizer)
        return {"comsd/nce": nce}

    def beta(self, skill: Tensor) -> Tensor:
        c = self.config
        if not c.smw:
            return torch.full_like(skill[:, 0], (c.w_low + c.w_high) / 2)
        flag = self.space.flag(skill)
        return dynamic_weight(flag, (c.w_low, c.w_high), (c.f_low, c.f_high))  # Eq. 11

    def explore(self, batch: Batch, features: Features) -> Tensor:
        if self.config.knn == "frozen-random":
            return self.entropy(self.f_frozen(batch.obs), self.f_frozen(batch.next_obs))
        h = {"observation": batch.next_obs, "embedding": features.state}.get(
            self.config.knn, features.pair
        )
        assert h is not None
        return self.entropy(h)  # Eq. 10

    def reward(self, batch: Batch, features: Features) -> tuple[Tensor, Metrics]:
        c = self.config
        reward, metrics = torch.zeros_like(batch.skill[:, 0]), Metrics()
        if c.exploration:
            reward += (r_exp := self.explore(batch, features))
            metrics["comsd/r_exp"] = r_exp.mean()
        if c.diversity:
            log_ratio = log_q(*self.pairs(batch, features.pair))  # Eq. 6
            r_div = log_ratio.exp() if c.diversity_form == "q" else log_ratio  # Eq. 8
            reward += (weighted := c.alpha * self.beta(batch.skill) * r_div)  # Eq. 12
            metrics |= {"comsd/r_div": r_div.mean(), "comsd/r_div_weighted": weighted.mean()}
        return reward, metrics
