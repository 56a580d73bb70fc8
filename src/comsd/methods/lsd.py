"""LSD: Lipschitz-constrained skill discovery (Park et al., ICLR 2022).

    |phi(a) - phi(b)| <= |a - b|   for all states a, b                          Eq. 1
    r = (phi(s') - phi(s)) . z                                                  Eq. 2
    L = -mean r,   for s' the next state                                        Eq. 3

Spectral normalisation of every layer of phi keeps Eq. 1, so that far along z means far in states.
The units of the states decide what is far. Numbers are this file's; departures from paper and
code: docs/methods/lsd.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from comsd.config import Setting, setting, sourced
from comsd.methods.base import Method, MethodConfig
from comsd.nets import Lipschitz, Units
from comsd.skills import OneHot, SkillSpace, Sphere
from comsd.terms import Moves, cosines, moves, progress
from comsd.types import Batch, Metrics, ObsInfo


@dataclass(frozen=True)
class LSDConfig(MethodConfig):
    units_from: int = setting(
        100_000,
        "replayed states whose spread sets the units of all; 0: the environment's own units",
        "ours; LSD's code: fixed values per robot",
        low=0,
    )

    tuned: ClassVar[dict[str, dict[str, Setting]]] = {
        "maze": {
            **sourced("as the other methods", hidden=128, lr=1e-3),
            "units_from": Setting(0, "the maze's extent is known"),
        },
        "robots": {
            "hidden": Setting(1024, "LSD's code"),
            "lr": Setting(1e-4, "METRA's code for LSD"),
            "init": Setting("uniform", "ours: torch's default; LSD's code: Xavier uniform"),
            "run.space": Setting("sphere", "METRA's code for LSD"),
            "run.skills": Setting(4, "as METRA"),
            "agent.one_skill": Setting(True, "LSD's paper: one skill per episode"),
            "agent.hold": Setting(200, "LSD's code: episodes of 200 steps"),
        },
    }


class LSD(Method):
    name = "lsd"
    paper = "Park et al. 2022, Lipschitz-constrained unsupervised skill discovery"
    status = "measured: Walker"
    config_class = LSDConfig
    progress_metrics = {"lsd/progress": "progress", "lsd/cosine": "cosine"}
    finetuning_rule = "random"
    spaces = (OneHot, Sphere)  # a box has no direction to move back along

    def __init__(self, config: LSDConfig, space: SkillSpace, obs: ObsInfo) -> None:
        super().__init__(c := config, space, obs)
        self.units = Units(obs, c.units_from)
        self.phi = Lipschitz(obs.dim, c.hidden, c.hidden, space.dim, init=c.init)  # Eq. 1

    def embed(self, batch: Batch) -> Moves:
        return moves(lambda obs: self.phi(self.units(obs)), batch)

    def loss(self, batch: Batch, features: Moves) -> tuple[Tensor, Metrics]:
        loss = -progress(features.step, self.space.direction(batch.skill)).mean()  # Eq. 3
        self.phi.settle()
        return loss, {"lsd/squared_step": features.step.detach().square().sum(-1)}

    def reward(self, batch: Batch, features: Moves) -> tuple[Tensor, Metrics]:
        if self.training:
            self.units.observe(batch.obs)
        reward = progress(features.whole, self.space.direction(batch.skill))  # Eq. 2
        return reward, {"lsd/progress": reward}

    def scores(self, batch: Batch) -> Tensor:
        return cosines(self.space.direction(batch.skill), self.embed(batch).whole)

    def health(self, batch: Batch) -> Metrics:
        moved = (self.units(batch.near) - self.units(batch.obs)).norm(dim=-1)
        slope = self.embed(batch).step.norm(dim=-1) / moved.clamp_min(1e-12)  # Eq. 1: at most 1
        return {"lsd/cosine": self.scores(batch).diagonal().mean(), "lsd/slope": slope.mean()}
