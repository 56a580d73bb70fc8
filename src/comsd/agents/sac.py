"""SAC, soft actor-critic (Haarnoja et al. 2018), for skill-conditioned off-policy learning.

actor         [s, z] -> H, LayerNorm, tanh -> H, ReLU -> mu, log sigma
policy        a = tanh(u), u ~ N(mu, sigma)
critic        as DDPG's (critics.py)
target        y = r + d * (min(Q1', Q2')(s', z, a') - alpha log pi(a' | s', z))
actor loss    E[alpha log pi(a | s, z) - min(Q1, Q2)(s, z, a)]
temperature   E[-alpha (log pi(a | s, z) + H)],  which lets the entropy of the policy be H = -|A|

In a window of n steps the entropy counts at the end only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from comsd.agents.actor_critic import ActorCritic, ActorCriticConfig
from comsd.agents.base import Policy
from comsd.config import setting
from comsd.encoders import Encoder
from comsd.nn import MLP, adam, join, optimizer_step, soft_update
from comsd.skills import SkillSpace
from comsd.types import Array, Batch, Metrics, ObsSpec

PAPER, CODE = "SAC paper", "pytorch_sac (Yarats and Kostrikov), on the suite's robots"
LOG_STD = -5.0, 2.0  # bounds of log sigma, as there


@dataclass(frozen=True)
class SACConfig(ActorCriticConfig):
    target_ema: float = setting(
        0.005, "share of the critic in its target, per update", PAPER, low=0, high=1
    )
    temperature: float = setting(0.1, "alpha at the start", CODE, above=0)
    temperature_lr: float = setting(1e-4, "learning rate of log alpha; 0: alpha stays", CODE, low=0)


def mean_and_log_std(output: Tensor) -> tuple[Tensor, Tensor]:
    """mu and log sigma (..., A) from the actor's output (..., 2A)."""
    mean, x = output.chunk(2, -1)
    low, high = LOG_STD
    return mean, low + (high - low) * (x.tanh() + 1) / 2


def squashed_log_prob(u: Tensor, log_std: Tensor, noise: Tensor) -> Tensor:
    """log pi(tanh(u)) (B,) for u = mean + std * noise: log N(u) - sum log(1 - tanh(u)^2).

    The last term as 2 (log 2 - u - softplus(-2u)), which is exact where tanh(u) rounds to 1.
    """
    normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
    squash = 2 * (math.log(2) - u - F.softplus(-2 * u))
    return (normal - squash).sum(-1)


class GaussianPolicy(Policy):
    """tanh of the Gaussian's mean; sampling draws from it."""

    def __init__(self, encoder: Encoder, actor: MLP, obs: ObsSpec, skill_dim: int) -> None:
        super().__init__(obs, skill_dim)
        self.encoder = encoder
        self.actor = nn.Sequential(actor.hidden, actor.out)  # acts in float32, also under bf16

    def gaussian(self, obs: Tensor, skill: Tensor) -> tuple[Tensor, Tensor]:
        return mean_and_log_std(self.actor(join(self.encoder(obs), skill)))

    def mean_action(self, obs: Tensor, skill: Tensor) -> Tensor:
        return self.gaussian(obs, skill)[0].tanh()

    @torch.no_grad()
    def sample(self, obs: Tensor, skill: Tensor, rng: np.random.Generator) -> Array:
        mean, log_std = (x.cpu().numpy() for x in self.gaussian(obs, skill))
        noise = rng.standard_normal(mean.shape, dtype=np.float32)
        return np.tanh(mean + np.exp(log_std) * noise)


class SAC(ActorCritic):
    """A squashed Gaussian skill-conditioned policy, its twin critic, and how they learn."""

    config: SACConfig
    outputs = 2

    def __init__(
        self,
        config: SACConfig,
        space: SkillSpace,
        obs: ObsSpec,
        actions: int,
        critic: str = "plain",  # its form
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__(config, space, obs, actions, critic, encoder)
        self.target_entropy = -actions
        self.log_temperature = nn.Parameter(torch.tensor(math.log(config.temperature)))
        self.optimizers["temperature"] = adam([self.log_temperature], config.temperature_lr)

    @property
    def policy(self) -> GaussianPolicy:
        return GaussianPolicy(self.encoder, self.actor, self.obs, self.space.dim)

    def update(
        self,
        batch: Batch,
        reward: Tensor,
        generator: torch.Generator,
        value_skill: Tensor | None = None,
    ) -> Metrics:
        """One step of critic, actor, temperature and target."""
        value_skill = batch.skill if value_skill is None else value_skill
        shape = 2, *batch.action.shape
        actor_noise, target_noise = torch.randn(shape, generator=generator, device=generator.device)
        y = self.td_target(batch, reward, value_skill, target_noise)
        critic_loss, q = self.critic_loss(batch, value_skill, y)
        optimizer_step(self.optimizers["critic"], critic_loss)

        actor_loss, log_prob = self.actor_loss(batch.obs.detach(), batch.skill, actor_noise)
        optimizer_step(self.optimizers["actor"], actor_loss, list(self.actor.parameters()))
        optimizer_step(self.optimizers["temperature"], self.temperature_loss(log_prob))
        soft_update(self.target, self.critic, self.config.target_ema)
        return {
            "sac/reward": reward,
            "sac/q": q,
            "sac/squared_error": (q - y[:, None]).square(),
            "sac/entropy": -log_prob,
            "sac/temperature": self.temperature,
        }

    @property
    def temperature(self) -> Tensor:
        """alpha, without a gradient."""
        return self.log_temperature.detach().exp()

    def act(self, obs: Tensor, skill: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """An action (B, A) and its log-probability (B,), from standard normal numbers (B, A)."""
        mean, log_std = mean_and_log_std(self.actor(join(obs, skill)))
        u = mean + log_std.exp() * noise
        return u.tanh(), squashed_log_prob(u, log_std, noise)

    @torch.no_grad()
    def td_target(self, batch: Batch, reward: Tensor, skill: Tensor, noise: Tensor) -> Tensor:
        """y (B,); the next action is that of the skill that acted."""
        action, log_prob = self.act(batch.next_obs, batch.skill, noise)
        q = self.target(batch.next_obs, skill, action).amin(-1)
        return reward + batch.discount * (q - self.temperature * log_prob)

    def actor_loss(self, obs: Tensor, skill: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and the log-probabilities (B,)."""
        action, log_prob = self.act(obs, skill, noise)
        q = self.critic(obs, skill, action).amin(-1)
        return (self.temperature * log_prob - q).mean(), log_prob.detach()

    def temperature_loss(self, log_prob: Tensor) -> Tensor:
        return -(self.log_temperature.exp() * (log_prob + self.target_entropy)).mean()
