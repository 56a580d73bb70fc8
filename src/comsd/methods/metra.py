"""METRA: metric-aware abstraction (Park, Rybkin, Levine, ICLR 2024).

    r      = (phi(s') - phi(s)) . z                                             Eq. 1
    gap    = 1 - |phi(s') - phi(s)|^2,   at least 0 for all adjacent s, s'      Eq. 2
    L_phi  = -mean[ r + lam * min(eps, gap) ],   lam fixed                      Eq. 3
    L_lam  = log lam * mean[ min(eps, gap) ],    gap fixed                      Eq. 4

A step of time is at most a step of length 1 in phi, so that far along z means many steps away.
Numbers are this file's. Departures from paper and code: docs/methods/metra.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from comsd.config import Setting, setting, sourced
from comsd.methods.base import Method, MethodConfig
from comsd.nets import MLP, Adam
from comsd.skills import OneHot, SkillSpace, Sphere
from comsd.terms import Dual, Moves, cosines, moves, progress
from comsd.types import Batch, Metrics, ObsInfo

CODE = "METRA's code"


@dataclass(frozen=True)
class METRAConfig(MethodConfig):
    dual: float = setting(30.0, "first value of the multiplier lam", CODE, above=0)
    dual_lr: float = setting(1e-4, "learning rate of log lam", CODE, above=0)
    slack: float = setting(1e-3, "eps: the most of a kept constraint that counts", CODE, above=0)
    constraint: Literal["sum", "mean"] = setting(
        "sum", "|.|^2 of Eq. 2: the sum of squares or their mean", "paper; METRA's code: mean"
    )

    tuned: ClassVar[dict[str, dict[str, Setting]]] = {
        "maze": {
            **sourced("as the other methods", hidden=128, lr=1e-3),
            "dual_lr": Setting(1e-3, "equal to lr, as in METRA's code"),
        },
        "robots": {
            "hidden": Setting(1024, CODE),
            "lr": Setting(1e-4, CODE),
            "run.space": Setting("sphere", CODE),
            "run.skills": Setting(4, "METRA's code for Quadruped"),
            "agent.one_skill": Setting(True, "METRA's paper: one skill per episode"),
            "agent.hold": Setting(200, "METRA's code: episodes of 200 steps"),
        },
    }


class METRA(Method):
    name = "metra"
    paper = "Park et al. 2024, METRA: scalable unsupervised RL with metric-aware abstraction"
    status = "measured: Walker"
    config_class = METRAConfig
    progress_metrics = {"metra/progress": "progress", "metra/cosine": "cosine", "metra/dual": "lam"}
    finetuning_rule = "random"
    config: METRAConfig
    spaces = (OneHot, Sphere)  # a box has no direction to move back along

    def __init__(self, config: METRAConfig, space: SkillSpace, obs: ObsInfo) -> None:
        super().__init__(c := config, space, obs)
        self.phi = MLP(obs.dim, c.hidden, c.hidden, space.dim, init=c.init)
        self.dual = Dual(c.dual, c.slack)

    def optimizer(self) -> Adam:
        return Adam([self.phi.flat, self.dual.log], [self.config.lr, self.config.dual_lr])

    def embed(self, batch: Batch) -> Moves:
        return moves(lambda obs: self.phi(self.standardise(obs)), batch)

    def loss(self, batch: Batch, features: Moves) -> tuple[Tensor, Metrics]:
        along = progress(features.step, self.space.direction(batch.skill))  # Eq. 1
        squares = features.step.square()
        squared = squares.sum(-1) if self.config.constraint == "sum" else squares.mean(-1)
        loss = self.dual(1 - squared) - along.mean()  # Eq. 2, 3, 4
        return loss, {"metra/squared_step": squared.detach(), "metra/dual": self.dual.value}

    def reward(self, batch: Batch, features: Moves) -> tuple[Tensor, Metrics]:
        reward = progress(features.whole, self.space.direction(batch.skill))  # Eq. 1
        return reward, {"metra/progress": reward}

    def scores(self, batch: Batch) -> Tensor:
        return cosines(self.space.direction(batch.skill), self.embed(batch).whole)

    def health(self, batch: Batch) -> Metrics:
        return {"metra/cosine": self.scores(batch).diagonal().mean()}
