"""SMM: state marginal matching (Lee et al., 2019), a mixture of policies that covers the states.

    r = log p*(s) - log rho_z(s) + log d(z | s) - log p(z)                        Eq. 1
         uniform: 0   density       discriminator  log K

    -log rho_z(s) ~ |x - x'|^2,  x = (s, z), x' its reconstruction by a VAE       Eq. 2
    L_vae = beta KL(N(m, v) || N(0, 1)) + mean (x - x')^2,  x' = D(m + e sqrt v)  Eq. 3
    L_d   = -log d(z | s)                                                         Eq. 4

Numbered here. As URLB's code (and the authors') has it, the reward adds -log d(z | s) instead of
log d(z | s); `--method.skill-term log-likelihood` restores Eq. 1. Details: docs/methods/smm.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from comsd.config import Setting, setting
from comsd.methods.base import Method, MethodConfig
from comsd.nn import MLP, adam
from comsd.skills import OneHot, SkillSpace
from comsd.types import Batch, Metrics, ObsSpec

URLB = "URLB's code"


@dataclass(frozen=True)
class SMMConfig(MethodConfig):
    hidden: int = setting(
        1024, "width of the discriminator's hidden layers", URLB, low=1, high=65_536
    )
    lr: float = setting(1e-3, "learning rate of the discriminator", URLB, above=0)
    vae_hidden: int = setting(150, "width of the VAE's hidden layers", URLB, low=1, high=65_536)
    vae_lr: float = setting(1e-2, "learning rate of the VAE", URLB, above=0)
    code: int = setting(128, "dimensions of the VAE's code", URLB, low=1, high=65_536)
    beta: float = setting(0.5, "weight of the KL divergence (Eq. 3)", URLB, low=0)
    density_weight: float = setting(1.0, "weight of the density's term (Eq. 1)", URLB, low=0)
    skill_weight: float = setting(1.0, "weight of the discriminator's term (Eq. 1)", URLB, low=0)
    density_trains_input: bool = setting(
        False, "images: the VAE's loss trains what it reconstructs, too", "ours; URLB's code: True"
    )
    skill_term: Literal["cross-entropy", "log-likelihood"] = setting(
        "cross-entropy", "-log d(z | s) as released, or log d(z | s) as in Eq. 1", URLB
    )

    tuned: ClassVar[dict[str, dict[str, Setting]]] = {
        "robots": {
            "run.space": Setting("one-hot", URLB),
            "run.skills": Setting(4, URLB),
            "train.hold": Setting(1000, "URLB's code: one skill per episode"),
        },
    }


class Features(NamedTuple):
    squares: Tensor  # (B, O + Z)  (x - x')^2
    kl: Tensor  # (B,)  of the code from a standard normal
    cross_entropy: Tensor  # (B,)  -log d(z | s)


class SMM(Method):
    name = "smm"
    paper = "Lee et al. 2019, efficient exploration via state marginal matching"
    status = "measured: Walker"
    config_class = SMMConfig
    progress_metrics = {"smm/density": "density", "smm/cross_entropy": "CE"}
    finetuning_rule = "resample"
    config: SMMConfig
    spaces = (OneHot,)
    reads = ("obs",)
    reward_uses_order = True  # the rows of a batch get their noise in order

    def __init__(self, config: SMMConfig, space: SkillSpace, obs: ObsSpec) -> None:
        super().__init__(c := config, space, obs)
        x, wide = obs.dim + space.dim, (c.vae_hidden, c.vae_hidden)
        self.encoder = MLP(x, *wide, 2 * c.code, init=c.init)  # mean and log variance
        self.decoder = MLP(c.code, *wide, x, init=c.init)
        self.discriminator = MLP(obs.dim, c.hidden, c.hidden, space.dim, init=c.init)

    def optimizer(self) -> torch.optim.Optimizer:
        vae = [*self.encoder.parameters(), *self.decoder.parameters()]
        groups = [{"params": vae, "lr": self.config.vae_lr}]
        return adam([*groups, {"params": self.discriminator.parameters()}], self.config.lr)

    def embed(self, batch: Batch) -> Features:
        s = self.normalizer(batch.obs)
        # Detached: an encoder of images could lower this loss by features easy to reconstruct.
        vae_state = s if self.config.density_trains_input else s.detach()
        x = torch.cat([vae_state, batch.skill], -1)
        mean, log_variance = self.encoder(x).chunk(2, -1)
        code = mean  # what is logged apart from training takes no noise
        if self.training:
            code = torch.addcmul(mean, torch.randn_like(mean), (log_variance / 2).exp())
        squares = (x - self.decoder(code)).square()  # Eq. 2
        kl = (mean.square() + log_variance.exp() - log_variance - 1).sum(-1) / 2
        return Features(squares, kl, -(self.log_d(s) * batch.skill).sum(-1))

    def log_d(self, s: Tensor) -> Tensor:
        """log d(z | s) of every skill, (B, K)."""
        return F.log_softmax(self.discriminator(s), -1)

    def loss(self, batch: Batch, features: Features) -> tuple[Tensor, Metrics]:
        reconstruction, kl = features.squares.mean(), features.kl.mean()
        vae = self.config.beta * kl + reconstruction  # Eq. 3
        cross_entropy = features.cross_entropy.mean()  # Eq. 4
        metrics = {"smm/vae": vae, "smm/kl": kl, "smm/cross_entropy": cross_entropy}
        # The two share no parameter, so the gradient of the sum is that of each.
        return vae + cross_entropy, {name: value.detach() for name, value in metrics.items()}

    def reward(self, batch: Batch, features: Features) -> tuple[Tensor, Metrics]:
        c = self.config
        density = c.density_weight * features.squares.sum(-1)
        sign = 1 if c.skill_term == "cross-entropy" else -1
        skill = sign * c.skill_weight * features.cross_entropy
        reward = density + skill + math.log(self.space.dim)  # Eq. 1; log p*(s) is constant
        return reward, {"smm/density": density, "smm/skill": skill}

    def skill_scores(self, batch: Batch) -> Tensor:
        return batch.skill @ self.log_d(self.normalizer(batch.obs)).T
