"""ComSD: contrastive dynamic skill discovery (Liu et al., IEEE T-CYB, Sec. IV).

    q(tau, z) = exp(cos(f1(tau), f2(z)) / T)                                   Eq. 6
    L_nce     = log q(tau_i, z_i) - log mean_j q(tau_j, z_i), maximised        Eq. 7
    r_div     = q(tau_i, z_i)                                                  Eq. 8
    r_exp     = mean_k log |h_i - h_i^k|, the k nearest of the batch           Eq. 10
    beta(z)   = the line (f_low, w_low)-(f_high, w_high), clamped              Eq. 11
    r         = r_exp + alpha * beta(z) * r_div                                Eq. 12

tau is the pair (s, s'). Departures and their reasons: docs/methods/comsd.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from comsd.config import Setting, setting, sourced
from comsd.errors import InputError
from comsd.methods.balance import FlagBalance
from comsd.methods.base import Method
from comsd.methods.contrastive import ContrastiveConfig, ContrastiveEncoder, ContrastiveFeatures
from comsd.methods.entropy import FLOOR, ParticleEntropy
from comsd.methods.statistics import by_tercile
from comsd.nn import MLP
from comsd.skills import SkillSpace
from comsd.types import Batch, Metrics, ObsSpec

PAPER, ERRATUM = "paper, hyper-parameter table", "paper, Eq. 11 with the clamp's bounds in order"
IMAGES = "paper, Sec. V-M and a commented line of its table, for Cheetah"
SMW, EQ_12 = "paper, Eq. 11", "paper, Eq. 12"
ALPHAS = {"walker": 0.25, "quadruped": 1e-3, "hopper": 1.25, "cheetah": 1.0}
TABLE = {robot: sourced(PAPER, alpha=alpha) for robot, alpha in ALPHAS.items()}
NARROW = sourced(PAPER, f_low=1 / 3, f_high=2 / 3)
EQ_10 = sourced("paper, Eq. 10", knn="trajectory", knn_form="log", knn_floor=1e-30)
LETTER = EQ_10 | sourced("paper, Algorithm 1", tau="adjacent", reward_after=True)


@dataclass(frozen=True)
class ComSDConfig(ContrastiveConfig):
    alpha: float = setting(0.25, "weight of the diversity reward (Eq. 12)", PAPER, low=0)
    w_low: float = setting(0.0, "lowest dynamic weight (Eq. 11)", ERRATUM, low=0)
    w_high: float = setting(2.0, "highest dynamic weight (Eq. 11)", ERRATUM, low=0)
    f_low: float = setting(0.0, "flag at which the weight leaves w_low", PAPER, low=0, high=1)
    f_high: float = setting(1.0, "flag at which the weight reaches w_high", PAPER, low=0, high=1)
    smw: bool = setting(True, "dynamic weighting; off: the mean weight for all (ablation)", SMW)
    diversity: bool = setting(True, "use the diversity reward (Eq. 8); off: ablation", EQ_12)
    diversity_form: Literal["q", "log-q"] = setting("q", "r_div is q or log q", "paper, Eq. 8")
    exploration: bool = setting(True, "use the exploration reward (Eq. 10); off: ablation", EQ_12)
    knn: Literal["embedding", "trajectory", "observation", "frozen-random"] = setting(
        "embedding", "h of Eq. 10: embedding of s', f1(tau), s' or an untrained net", "CIC's code"
    )
    knn_form: Literal["log", "log1p"] = setting("log1p", "mean of logs, or CIC's form", "CIC")
    knn_scale: Literal["variance", "mean", "std"] = setting("variance", "for log1p", "CIC's code")
    knn_floor: float = setting(FLOOR, "for log: added to distances", "ours: log 0", above=0)
    balance: Literal["paper", "auto"] = setting("paper", "by Eq. 11, or by balance.py", SMW)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.f_low >= self.f_high or self.w_low > self.w_high:
            raise InputError("f_low must be less than f_high, and w_low at most w_high")
        if not (self.diversity or self.exploration):
            raise InputError("diversity and exploration cannot both be off: no reward is left")
        if self.balance == "auto" and not (self.diversity and self.exploration and self.smw):
            raise InputError("balance is 'auto': diversity, exploration and smw must be on")

    def rows_needed(self) -> dict[str, int]:
        return {"k": self.k + (self.knn_form == "log")} if self.exploration else {}

    states_only = {"knn": "observation"}
    tuned: ClassVar[dict[str, dict[str, Setting]]] = {
        "maze": sourced("authors' maze code", hidden=128, lr=1e-3)
        | sourced("measured: above .2 a skill may hold two arms", alpha=0.1)
        | sourced("paper, Sec. V-K", w_low=0.5, w_high=1.0)
        | sourced("authors' maze code (without the line that zeroes it)", query="identity")
        | sourced("measured: with f1(tau) some arms stay unowned", knn="observation")
        | sourced("paper, Eq. 10", knn_form="log"),
        **TABLE,
        "hopper": TABLE["hopper"] | NARROW,
        "cheetah": TABLE["cheetah"] | NARROW,
        "pixels": sourced(IMAGES, alpha=5e-3, neighbour_weight=1.0),
    }

    literal: ClassVar[dict[str, dict[str, Setting]]] = {
        "maze": LETTER | sourced("paper, Eq. 6; Sec. V-K", query="learned", alpha=1.0),
        "robots": LETTER,
        **TABLE,  # one alpha per robot, whatever it observes
    }


class ComSD(Method):
    name = "comsd"
    paper = "Liu et al., balancing state exploration and skill diversity (ComSD)"
    status = "measured: maze, Walker"
    config_class = ComSDConfig
    progress_metrics = {"comsd/r_exp": "r_exp", "comsd/r_div": "r_div", "comsd/variance": "V"}
    flag_orders_skills = True  # by Eq. 11, so (0, 0.5, ..., 0.5) is fine-tuned
    config: ComSDConfig

    def __init__(self, config: ComSDConfig, space: SkillSpace, obs: ObsSpec) -> None:
        super().__init__(c := config, space, obs)
        self.contrasts = c.diversity or (c.exploration and c.knn in ("embedding", "trajectory"))
        if self.contrasts:
            self.encoder = ContrastiveEncoder(obs, space, c)  # Eq. 6, 7
            self.reads = tuple(dict.fromkeys((*self.encoder.reads, "next_obs")))
        else:
            self.reads = ("obs", "next_obs")
        self.reward_uses_skill = c.diversity
        self.balance = FlagBalance() if c.balance == "auto" else None
        if c.exploration:
            self.entropy = ParticleEntropy(c.k, c.knn_form, c.knn_scale, floor=c.knn_floor)
        if c.exploration and c.knn == "frozen-random":
            frozen = MLP(obs.dim, c.hidden, c.hidden, space.dim, init=c.init)
            self.f_frozen = frozen.requires_grad_(False)

    def embed(self, batch: Batch) -> ContrastiveFeatures | None:
        return self.encoder(batch) if self.contrasts else None

    def loss(self, batch: Batch, features: ContrastiveFeatures) -> tuple[Tensor, Metrics]:
        return self.encoder.losses(features, "comsd")

    def beta(self, skill: Tensor) -> Tensor:
        """Eq. 11: the line through (f_low, w_low) and (f_high, w_high), clamped to the weights."""
        c = self.config
        if not c.smw:
            return torch.full_like(skill[:, 0], (c.w_low + c.w_high) / 2)
        slope = (c.w_high - c.w_low) / (c.f_high - c.f_low)
        return (c.w_high + slope * (self.space.flag(skill) - c.f_high)).clamp(c.w_low, c.w_high)

    def explore(self, batch: Batch, features: Any) -> Tensor:
        if self.config.knn == "frozen-random":
            return self.entropy(self.f_frozen(batch.obs), self.f_frozen(batch.next_obs))
        if self.config.knn == "observation":
            return self.entropy(batch.next_obs)
        return self.entropy(features.next_state if self.config.knn == "embedding" else features.key)

    def terms(self, batch: Batch, features: Any) -> dict[str, Tensor]:
        """What the reward is made of, each (B,)."""
        c, terms = self.config, {}
        if c.exploration:
            terms["r_exp"] = self.explore(batch, features)  # Eq. 10
        if c.diversity:
            log = self.encoder.log_q(features)
            terms["r_div"] = log.exp() if c.diversity_form == "q" else log  # Eq. 8
            if self.balance is None:
                terms["r_div_weighted"] = c.alpha * self.beta(batch.skill) * terms["r_div"]
        return terms

    def reward(self, batch: Batch, features: ContrastiveFeatures | None) -> tuple[Tensor, Metrics]:
        terms = self.terms(batch, features)
        metrics = {f"comsd/{name}": value for name, value in terms.items()}
        if self.balance is not None:
            flag = self.space.flag(batch.skill)
            return self.balance(terms["r_exp"], terms["r_div"], flag), metrics
        parts = [terms[name] for name in ("r_exp", "r_div_weighted") if name in terms]
        return torch.stack(parts).sum(0), metrics  # Eq. 12

    def skill_scores(self, batch: Batch) -> Tensor | None:
        return self.encoder.skill_scores(self.encoder(batch)) if self.contrasts else None

    def diagnostics(self, batch: Batch) -> Metrics:
        terms = self.terms(batch, self.embed(batch))
        metrics = by_tercile("comsd", self.space, batch.skill, terms)
        if self.config.exploration and self.config.knn_form == "log1p":
            metrics["comsd/variance"] = self.entropy.moments.variance
        return metrics
