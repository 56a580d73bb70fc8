"""DADS: dynamics-aware discovery of skills (Sharma et al., ICLR 2020), forward form of I(s'; z).

    log q(s' | s, z) = -|d - mu(s, z)|^2 / 2 v              d = s' - s, normalised     Eq. 1
    L = -log q(s' | s, z)                                                              Eq. 2
    r =  log q(s' | s, z) - log (1 / (L + 1)) sum_l q(s' | s, z_l),  z_0 = z           Eq. 3

Eq. 3 (numbered here) compares the skill with L others and is at most log(L + 1). Maze form
(EDL's "forward MI", Campos et al. 2020): log q(s' | z) = -|s' - mu(z)|^2 / 2 v, a point per skill.
One-hot skills are compared with all others, continuous ones with draws: docs/methods/dads.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from comsd.config import Setting, setting, sourced
from comsd.methods.base import Method, MethodConfig
from comsd.nn import MLP
from comsd.skills import SkillSpace
from comsd.types import Batch, Metrics, ObsSpec

CODE, METRA, EDL = "DADS's code", "METRA's code of DADS", "EDL's maze code"
SKILLS_PER_PASS = 10  # alternatives in one forward pass: a hundred at once would take gigabytes
RATIO_BOUND = 50.0  # of log q(s' | s, z_l) - log q(s' | s, z), from DADS's code


@dataclass(frozen=True)
class DADSConfig(MethodConfig):
    conditioned: bool = setting(True, "predict s' - s from (s, z); off: s' from z alone", "paper")
    variance: float = setting(1.0, "v, the fixed variance of q", METRA, above=0)
    alternatives: int = setting(
        100, "skills to compare with, if continuous", CODE, low=1, high=10_000
    )

    tuned: ClassVar[dict[str, dict[str, Setting]]] = {
        "maze": sourced(EDL, hidden=128, lr=1e-3, conditioned=False, variance=0.5),
        "robots": {
            "hidden": Setting(1024, METRA),
            "lr": Setting(1e-4, METRA),
            "run.space": Setting("box", "DADS's code: uniform, there in [-1, 1]"),
            "run.skills": Setting(2, "DADS's code, for the Ant"),
            "train.hold": Setting(200, "DADS's code: an episode of 200 steps per skill"),
        },
    }


def normalised(x: Tensor) -> Tensor:
    """Each column with mean 0 and variance 1 over the batch."""
    return F.batch_norm(x, None, None, training=True)


class DADS(Method):
    name = "dads"
    paper = "Sharma et al. 2020, dynamics-aware unsupervised discovery of skills"
    status = "measured: maze, Walker"
    config_class = DADSConfig
    progress_metrics = {"dads/squared_error": "error"}
    finetuning_rule = "random"
    config: DADSConfig

    def __init__(self, config: DADSConfig, space: SkillSpace, obs: ObsSpec) -> None:
        super().__init__(c := config, space, obs)
        inputs = space.dim + (obs.dim if c.conditioned else 0)
        self.reads = ("obs", "one_step_obs") if c.conditioned else ("next_obs",)
        self.mu = MLP(inputs, c.hidden, c.hidden, obs.dim, init=c.init)

    def embed(self, batch: Batch) -> Tensor:
        """Squared errors of what the compared skills predict, (B, S).

        Conditioned, the row's own skill comes first; otherwise as `unique` lists the skills.
        """
        if not self.config.conditioned:
            skills, _ = self.space.unique(batch.skill)
            # mu works in standardised units
            centres = self.mu(skills) * self.normalizer.std + self.normalizer.mean  # (S, O)
            return (batch.next_obs[:, None] - centres).square().sum(-1)
        own = self.errors(batch, batch.skill[None])
        with torch.no_grad():  # only for the reward, but by the same weights as the own skill's
            others = self.space.alternatives(batch.skill, self.config.alternatives)
            rest = [self.errors(batch, some) for some in others.split(SKILLS_PER_PASS)]
        return torch.cat([own, *rest], 1)

    def errors(self, batch: Batch, skills: Tensor) -> Tensor:
        """(B, S): how far from the change of the row each of its skills (S, B, Z) predicts."""
        obs = normalised(batch.obs)
        # Detached: an encoder of images could lower this loss by features easy to predict.
        change = normalised((batch.one_step_obs - batch.obs).detach())
        x = torch.cat([obs.expand(len(skills), -1, -1), skills], -1)
        predicted = self.mu(x.flatten(0, 1)).view(len(skills), *change.shape)
        return (predicted - change).square().sum(-1).T

    def own(self, batch: Batch, errors: Tensor) -> Tensor:
        """(B,): the errors of each row's own skill."""
        if self.config.conditioned:
            return errors[:, 0]
        _, assignment = self.space.unique(batch.skill)
        return errors.diagonal() if assignment is None else (errors * assignment).sum(-1)

    def loss(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        error = self.own(batch, features).mean()
        return error / (2 * self.config.variance), {"dads/squared_error": error.detach()}  # Eq. 2

    def log_ratio(self, errors: Tensor, own: Tensor) -> Tensor:
        """Eq. 3 from squared errors (B, S) and (B,)."""
        log_q = (own[:, None] - errors) / (2 * self.config.variance)  # Eq. 1, less the own skill's
        if self.config.conditioned:
            log_q = log_q.clamp(-RATIO_BOUND, RATIO_BOUND)
        return math.log(log_q.shape[1]) - log_q.logsumexp(-1)

    def reward(self, batch: Batch, features: Tensor) -> tuple[Tensor, Metrics]:
        own = self.own(batch, features)
        return self.log_ratio(features, own), {"dads/squared_error": own.mean()}
