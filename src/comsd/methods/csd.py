"""CSD: controllability-aware skill discovery (Park, Lee, Lee, Abbeel, ICML 2023).

    q(ds | s) = N(mu(s), diag sigma(s)^2),   ds = s' - s,   by maximum likelihood    Eq. 1
    w_i    = [ (1 / sigma_i) / geometric mean_j (1 / sigma_j) ]^2                    Eq. 2
    d      = mean_i w_i (ds_i - mu_i)^2,   mean over the coordinates of s            Eq. 3
    r      = (phi(s') - phi(s)) . z                                                  Eq. 4
    gap    = d - mean_i (phi_i(s') - phi_i(s))^2,   at least 0                       Eq. 5
    L_phi  = -mean[ r + lam * min(eps, gap) ],   lam and d fixed                     Eq. 6
    L_lam  = log lam * mean[ min(eps, gap) ],    gap fixed                           Eq. 7

What the density predicts well counts little, what is rarely achieved much. The weights' product is
1: another unit of a coordinate changes d by one common factor, not how coordinates compare.
Numbers are this file's; departures: docs/methods/csd.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from comsd.config import Setting, setting, sourced
from comsd.methods.base import Method, MethodConfig
from comsd.methods.latent import (
    DualVariable,
    LatentSteps,
    WarmupNormalizer,
    cosines,
    directional_reward,
    latent_steps,
)
from comsd.nn import MLP, adam
from comsd.skills import OneHot, SkillSpace, Sphere
from comsd.types import Batch, Metrics, ObsSpec

CODE = "CSD's code"
LOG_STD = math.log(1e-6), math.log(1e6)  # bounds of the density's, as in CSD's code


@dataclass(frozen=True)
class CSDConfig(MethodConfig):
    dual: float = setting(3000.0, "first value of the multiplier lam", CODE, above=0)
    dual_lr: float = setting(1e-4, "learning rate of log lam", CODE, above=0)
    slack: float = setting(1e-6, "eps: the most of a kept constraint that counts", CODE, above=0)
    scale: float = setting(10.0, "factor of the reward, not of the loss", CODE, above=0)
    units_from: int = setting(
        100_000,
        "replayed states whose spread sets the units of all; 0: the environment's own units",
        "ours; CSD's code: fixed values per robot",
        low=0,
    )

    tuned: ClassVar[dict[str, dict[str, Setting]]] = {
        "maze": {
            **sourced("as the other methods", hidden=128, lr=1e-3),
            "dual_lr": Setting(1e-3, "equal to lr, as in CSD's code"),
            "units_from": Setting(0, "the maze's extent is known"),
        },
        "robots": {
            "hidden": Setting(1024, "as the other methods; CSD's code: 512"),
            **sourced(CODE, lr=1e-4, run__space="one-hot", run__skills=16),
            "train.one_skill": Setting(True, "CSD's paper: one skill per episode"),
            "train.hold": Setting(200, "CSD's code: episodes of 200 steps"),
        },
    }


def relative_weights(log_std: Tensor) -> Tensor:
    """Eq. 2: positive, with product 1 over the last axis."""
    return (2 * (log_std.mean(-1, keepdim=True) - log_std)).exp()


class CSD(Method):
    name = "csd"
    paper = "Park et al. 2023, controllability-aware unsupervised skill discovery"
    status = "measured: Walker"
    config_class = CSDConfig
    progress_metrics = {"csd/progress": "progress", "csd/cosine": "cosine", "csd/dual": "lam"}
    finetuning_rule = "random"
    config: CSDConfig
    spaces = (OneHot, Sphere)  # a box has no direction to move back along

    def __init__(self, config: CSDConfig, space: SkillSpace, obs: ObsSpec) -> None:
        super().__init__(c := config, space, obs)
        self.units = WarmupNormalizer(obs.mean, obs.std, c.units_from)
        self.phi = MLP(obs.dim, c.hidden, c.hidden, space.dim, init=c.init)
        self.density = MLP(obs.dim, c.hidden, c.hidden, 2 * obs.dim, init=c.init)
        self.dual = DualVariable(c.dual, c.slack)

    def optimizer(self) -> torch.optim.Optimizer:
        networks = [*self.phi.parameters(), *self.density.parameters()]
        dual = {"params": self.dual.parameters(), "lr": self.config.dual_lr}
        return adam([{"params": networks}, dual], self.config.lr)

    def embed(self, batch: Batch) -> LatentSteps:
        return latent_steps(lambda obs: self.phi(self.units(obs)), batch)

    def surprise(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """-log q(ds | s) and the distance d without gradient, each (B,)."""
        # Detached: an encoder of images could lower this loss by features easy to predict.
        state, after = self.units(batch.obs.detach()), self.units(batch.one_step_obs.detach())
        mean, log_std = self.density(state).chunk(2, -1)
        log_std = log_std.clamp(*LOG_STD)
        error = after - state - mean
        normal = (error / log_std.exp()).square() + math.log(2 * math.pi)
        nll = (normal / 2 + log_std).sum(-1)  # Eq. 1
        weighted = relative_weights(log_std.detach()) * error.detach().square()
        return nll, weighted.mean(-1)  # Eq. 3

    def loss(self, batch: Batch, features: LatentSteps) -> tuple[Tensor, Metrics]:
        nll, distance = self.surprise(batch)
        along = directional_reward(features.one_step, self.space.direction(batch.skill))  # Eq. 4
        gap = distance - features.one_step.square().mean(-1)  # Eq. 5
        loss = self.dual(gap) - along.mean() + nll.mean()  # Eq. 6, 7, 1: each its own weights
        metrics = {"nll": nll, "distance": distance, "gap": gap, "dual": self.dual.value}
        return loss, {f"csd/{name}": value.detach() for name, value in metrics.items()}

    def reward(self, batch: Batch, features: LatentSteps) -> tuple[Tensor, Metrics]:
        if self.training:
            self.units.observe(batch.obs)
        along = directional_reward(features.n_step, self.space.direction(batch.skill))  # Eq. 4
        return self.config.scale * along, {"csd/progress": along}

    def skill_scores(self, batch: Batch) -> Tensor:
        return cosines(self.space.direction(batch.skill), self.embed(batch).n_step)

    def diagnostics(self, batch: Batch) -> Metrics:
        return {"csd/cosine": self.skill_scores(batch).diagonal().mean()}
