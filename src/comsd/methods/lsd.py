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
from typing import ClassVar, NamedTuple

from torch import Tensor

from comsd.config import Setting, setting, sourced
from comsd.methods.base import Method, MethodConfig
from comsd.methods.latent import (
    LatentSteps,
    WarmupNormalizer,
    cosines,
    directional_reward,
    latent_steps,
)
from comsd.methods.spectral import SingularVectors, SpectralMLP
from comsd.skills import OneHot, SkillSpace, Sphere
from comsd.types import Batch, Metrics, ObsSpec


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
            "train.one_skill": Setting(True, "LSD's paper: one skill per episode"),
            "train.hold": Setting(200, "LSD's code: episodes of 200 steps"),
        },
    }


class LSDFeatures(NamedTuple):
    steps: LatentSteps
    vectors: list[SingularVectors]  # of phi's layers: costly, so both passes and `loss` share them


class LSD(Method):
    name = "lsd"
    paper = "Park et al. 2022, Lipschitz-constrained unsupervised skill discovery"
    status = "measured: Walker"
    config_class = LSDConfig
    progress_metrics = {"lsd/progress": "progress", "lsd/cosine": "cosine"}
    finetuning_rule = "random"
    spaces = (OneHot, Sphere)  # a box has no direction to move back along

    def __init__(self, config: LSDConfig, space: SkillSpace, obs: ObsSpec) -> None:
        super().__init__(c := config, space, obs)
        self.units = WarmupNormalizer(obs.mean, obs.std, c.units_from)
        self.phi = SpectralMLP(obs.dim, c.hidden, c.hidden, space.dim, init=c.init)  # Eq. 1

    def embed(self, batch: Batch) -> LSDFeatures:
        vectors = self.phi.singular_vectors()
        # Detached: an encoder of images could make every step long, and Eq. 1 would bound nothing.
        steps = latent_steps(lambda obs: self.phi(self.units(obs.detach()), vectors), batch)
        return LSDFeatures(steps, vectors)

    def loss(self, batch: Batch, features: LSDFeatures) -> tuple[Tensor, Metrics]:
        step = features.steps.one_step
        loss = -directional_reward(step, self.space.direction(batch.skill)).mean()  # Eq. 3
        self.phi.power_iteration(features.vectors)
        return loss, {"lsd/squared_step": step.detach().square().sum(-1)}

    def reward(self, batch: Batch, features: LSDFeatures) -> tuple[Tensor, Metrics]:
        if self.training:
            self.units.observe(batch.obs)
        direction = self.space.direction(batch.skill)
        reward = directional_reward(features.steps.n_step, direction)  # Eq. 2
        return reward, {"lsd/progress": reward}

    def skill_scores(self, batch: Batch) -> Tensor:
        return cosines(self.space.direction(batch.skill), self.embed(batch).steps.n_step)

    def diagnostics(self, batch: Batch) -> Metrics:
        moved = (self.units(batch.one_step_obs) - self.units(batch.obs)).norm(dim=-1)
        step = self.embed(batch).steps.one_step
        slope = step.norm(dim=-1) / moved.clamp_min(1e-12)  # Eq. 1: at most 1
        return {"lsd/cosine": self.skill_scores(batch).diagonal().mean(), "lsd/slope": slope.mean()}
