"""LSD: Lipschitz-constrained skill discovery (Park et al., ICLR 2022).

    |phi(a) - phi(b)| <= |a - b|   for all states a, b                          Eq. 1
    r = (phi(s') - phi(s)) . z                                                  Eq. 2
    L = -mean r                                                                 Eq. 3

Spectral normalisation of every layer of phi keeps Eq. 1, so that far along z means far in states.
The units of the states decide what is far. Numbers are this file's; departures from paper and
code: docs/methods/lsd.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from comsd.config import Setting, setting
from comsd.methods.base import Method, MethodConfig
from comsd.nets import Lipschitz, Units
from comsd.skills import OneHot, SkillSpace, Sphere
from comsd.terms import displacement, progress, unit
from comsd.types import Batch, Metrics, ObsInfo

CODE = "LSD's code"


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
            "hidden": Setting(128, "as the other methods"),
            "lr": Setting(1e-3, "as the other methods"),
            "units_from": Setting(0, "the maze's extent is known"),
        },
        "robots": {
            "run.space": Setting("sphere", "METRA's code for LSD"),
            "run.skills": Setting(4, "METRA's code for Quadruped"),
            "agent.n_step": Setting(1, "paper: adjacent states"),
            "agent.one_skill": Setting(True, "paper: one skill per episode"),
            "agent.hold": Setting(200, "LSD's code: episodes of 200 steps"),
        },
    }


class LSD(Method):
    name = "lsd"
    paper = "Park et al. 2022, Lipschitz-constrained unsupervised skill discovery"
    config_class = LSDConfig
    spaces = (OneHot, Sphere)  # a box has no direction to move back along

    def __init__(self, config: LSDConfig, space: SkillSpace, obs: ObsInfo) -> None:
        super().__init__(c := config, space, obs)
        self.units = Units(obs, c.units_from)
        self.phi = Lipschitz(obs.dim, c.hidden, c.hidden, space.dim, init=c.init)  # Eq. 1

    def embed(self, batch: Batch) -> Tensor:
        """phi(s') - phi(s), (B, Z)."""
        return displacement(self.phi, self.units(batch.obs), self.units(batch.next_obs))

    def loss(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        loss = -progress(features, self.space.direction(batch.skill)).mean()  # Eq. 3
        self.phi.settle()
        return loss, {"lsd/squared_step": features.detach().square().sum(-1)}

    def reward(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        if self.training:
            self.units.observe(batch.obs)
        reward = progress(features, self.space.direction(batch.skill))  # Eq. 2
        return reward, {"lsd/progress": reward}

    def scores(self, batch: Batch) -> Tensor:
        return self.space.direction(batch.skill) @ unit(self.embed(batch)).T

    def health(self, batch: Batch) -> Metrics:
        """How much of each step is along z, and how much of the slope that Eq. 1 allows is used."""
        step = self.embed(batch)
        moved = (self.units(batch.next_obs) - self.units(batch.obs)).norm(dim=-1)
        direction = unit(self.space.direction(batch.skill))
        return {
            "lsd/cosine": progress(unit(step), direction).mean(),
            "lsd/slope": (step.norm(dim=-1) / moved.clamp_min(1e-12)).mean(),
        }
