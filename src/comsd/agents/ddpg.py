"""DDPG (Lillicrap et al. 2016) as in DrQ-v2 and URLB, for skill-conditioned off-policy learning.

actor    [s, z]    -> H, LayerNorm, tanh -> H, ReLU -> tanh = mu
critic   [s, z, a] -> H, LayerNorm, tanh -> twice: H, ReLU -> Q      (other forms: critics.py)
target   y = r + d * min(Q1', Q2')(s', z, a'),    a' = mu(s', z) + clipped noise
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from comsd.agents.base import EDGE, OffPolicyAgent, OffPolicyConfig, Policy
from comsd.agents.critics import CRITICS
from comsd.config import setting
from comsd.encoders import Encoder, Identity
from comsd.nn import MLP, adam, optimizer_step, soft_update
from comsd.skills import SkillSpace
from comsd.types import Array, Batch, Metrics, ObsSpec

PAPER = "paper, hyper-parameter table"


@dataclass(frozen=True)
class DDPGConfig(OffPolicyConfig):
    lr: float = setting(1e-4, "learning rate of actor and critic", PAPER, above=0)
    noise: float = setting(0.2, "standard deviation of the exploration noise", PAPER, low=0)
    noise_clip: float = setting(0.3, "bound of the noise in the losses", PAPER, low=0)
    target_ema: float = setting(
        0.01, "share of the critic in its target, per update", PAPER, low=0, high=1
    )


class DeterministicPolicy(Policy):
    """mu(s, z); sampling adds Gaussian noise."""

    def __init__(
        self, encoder: Encoder, actor: MLP, obs: ObsSpec, skill_dim: int, noise: float
    ) -> None:
        super().__init__(obs, skill_dim)
        self.encoder, self.noise = encoder, noise
        self.actor = nn.Sequential(actor.hidden, actor.out)  # acts in float32, also under bf16

    def mean_action(self, obs: Tensor, skill: Tensor) -> Tensor:
        return self.actor(torch.cat([self.encoder(obs), skill], -1)).tanh()

    @torch.no_grad()
    def sample(self, obs: Tensor, skill: Tensor, rng: np.random.Generator) -> Array:
        mean = self.mean_action(obs, skill).cpu().numpy()
        noise = rng.standard_normal(mean.shape, dtype=np.float32)
        return np.clip(mean + self.noise * noise, -EDGE, EDGE)


class DDPG(OffPolicyAgent):
    """A deterministic skill-conditioned policy, its twin critic, and how they learn."""

    config: DDPGConfig

    def __init__(
        self,
        config: DDPGConfig,
        space: SkillSpace,
        obs: ObsSpec,
        actions: int,
        critic: str = "plain",  # its form
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__(config, encoder or Identity(obs))
        self.space, self.obs = space, obs
        features, hidden = self.encoder.spec.dim, config.hidden
        self.actor = MLP(features + space.dim, hidden, hidden, actions, norm=True)
        self.critic = CRITICS[critic](features, space.dim, actions, hidden)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        encoded = list(self.encoder.parameters()) if config.encoder_from != "none" else []
        self.optimizers: dict[str, torch.optim.Optimizer] = {
            "actor": adam(self.actor.parameters(), config.lr),
            "critic": adam(self.critic.parameters(), config.lr),
        }
        if encoded:
            self.optimizers["encoder"] = adam(encoded, config.lr)

    @property
    def policy(self) -> DeterministicPolicy:
        return DeterministicPolicy(
            self.encoder, self.actor, self.obs, self.space.dim, self.config.noise
        )

    def init_from(self, other: OffPolicyAgent, critic: str) -> None:
        assert isinstance(other, DDPG)
        self.encoder.load_state_dict(other.encoder.state_dict())
        self.actor.load_state_dict(other.actor.state_dict())
        if critic == "full":
            self.critic.load_state_dict(other.critic.state_dict())
        elif critic == "trunk":
            self.critic.trunk.load_state_dict(other.critic.trunk.state_dict())
        self.target.load_state_dict(self.critic.state_dict())

    def compile_losses(self) -> None:
        self.td_target = torch.compile(self.td_target)
        self.critic_loss = torch.compile(self.critic_loss)
        self.actor_loss = torch.compile(self.actor_loss)

    # --- learning -----------------------------------------------------------------------------

    def update(
        self,
        batch: Batch,
        reward: Tensor,
        generator: torch.Generator,
        value_skill: Tensor | None = None,
    ) -> Metrics:
        """One step of critic, actor and target."""
        valued = batch.skill if value_skill is None else value_skill
        now, later = self.clipped_noise(2, batch.action, generator)
        y = self.td_target(batch, reward, valued, later)
        critic_loss, q = self.critic_loss(batch, valued, y)
        optimizer_step(self.optimizers["critic"], critic_loss)

        actor_loss = self.actor_loss(batch.obs.detach(), batch.skill, now)
        optimizer_step(self.optimizers["actor"], actor_loss, list(self.actor.parameters()))
        soft_update(self.target, self.critic, self.config.target_ema)
        return {
            "ddpg/reward": reward,
            "ddpg/q": q,
            "ddpg/squared_error": (q - y[:, None]).square(),
        }

    def clipped_noise(self, n: int, like: Tensor, generator: torch.Generator) -> Tensor:
        """Noise for the actions inside the losses, (n, B, A)."""
        std, bound = self.config.noise, self.config.noise_clip
        noise = torch.empty(n, *like.shape, dtype=like.dtype, device=like.device)
        return noise.normal_(0, std, generator=generator).clamp_(-bound, bound)

    @torch.no_grad()
    def td_target(self, batch: Batch, reward: Tensor, skill: Tensor, noise: Tensor) -> Tensor:
        """y (B,); the next action is that of the skill that acted."""
        action = self.actor(torch.cat([batch.next_obs, batch.skill], -1)).tanh() + noise
        q = self.target(batch.next_obs, skill, action.clamp(-EDGE, EDGE))
        return reward + batch.discount * q.amin(-1)

    def critic_loss(self, batch: Batch, skill: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Squared errors summed over the heads, and the values (B, 2)."""
        q = self.critic(batch.obs, skill, batch.action)
        return 2 * F.mse_loss(q, y[:, None].expand_as(q)), q.detach()

    def actor_loss(self, obs: Tensor, skill: Tensor, noise: Tensor) -> Tensor:
        """Minus the lesser value; the gradient passes the clamp as if it were not there."""
        action = self.actor(torch.cat([obs, skill], -1)).tanh() + noise
        action = action + (action.clamp(-EDGE, EDGE) - action).detach()
        return -self.critic(obs, skill, action).amin(-1).mean()
