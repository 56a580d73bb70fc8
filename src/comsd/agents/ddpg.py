"""DDPG (Lillicrap et al. 2016) as in DrQ-v2 and URLB, for skill-conditioned off-policy learning.

actor    [s, z]    -> H, LayerNorm, tanh -> H, ReLU -> tanh = mu
critic   [s, z, a] -> H, LayerNorm, tanh -> twice: H, ReLU -> Q      (other forms: critics.py)
images   [x, z]    -> 50, LayerNorm, tanh -> H, ReLU -> H, ReLU -> tanh = mu
target   y = r + d * min(Q1', Q2')(s', z, a'),    a' = mu(s', z) + clipped noise
losses   E[(Q1 - y)^2 + (Q2 - y)^2] and E[-min(Q1, Q2)(s, z, mu(s, z) + clipped noise)]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from comsd.agents.actor_critic import PAPER, ActorCritic, ActorCriticConfig
from comsd.agents.base import ACTION_LIMIT, Policy
from comsd.config import setting
from comsd.encoders import Encoder
from comsd.nn import MLP, join, optimizer_step, soft_update
from comsd.skills import SkillSpace
from comsd.types import Array, Batch, Metrics, ObsSpec

SATURATED = 0.99  # beyond this tanh has hardly a gradient: an actor that is there stays there


@dataclass(frozen=True)
class DDPGConfig(ActorCriticConfig):
    noise: float = setting(0.2, "standard deviation of the exploration noise", PAPER, low=0)
    noise_start: float = setting(
        1.0, "its value at the first step, if noise_steps is not 0", "DrQ-v2's code", low=0
    )
    noise_steps: int = setting(
        0, "environment steps in which it falls from noise_start; 0: it is constant", "URLB", low=0
    )
    noise_clip: float = setting(0.3, "bound of the noise in the losses", PAPER, low=0)
    saturation_penalty: float = setting(
        0.0,
        "weight in the actor's loss of the mean square of what tanh is applied to",
        "ours",
        low=0,
    )


@dataclass
class Noise:
    """Exploration noise, which agent and policy share."""

    std: float


class DeterministicPolicy(Policy):
    """mu(s, z); sampling adds Gaussian noise."""

    def __init__(
        self, encoder: Encoder, actor: MLP, obs: ObsSpec, skill_dim: int, noise: Noise
    ) -> None:
        super().__init__(obs, skill_dim)
        self.encoder, self.noise = encoder, noise
        self.actor = nn.Sequential(actor.hidden, actor.out)  # acts in float32, also under bf16

    def mean_action(self, obs: Tensor, skill: Tensor) -> Tensor:
        return self.actor(join(self.encoder(obs), skill)).tanh()

    @torch.no_grad()
    def sample(self, obs: Tensor, skill: Tensor, rng: np.random.Generator) -> Array:
        mean = self.mean_action(obs, skill).cpu().numpy()
        noise = rng.standard_normal(mean.shape, dtype=np.float32)
        return np.clip(mean + self.noise.std * noise, -ACTION_LIMIT, ACTION_LIMIT)


class DDPG(ActorCritic):
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
        super().__init__(config, space, obs, actions, critic, encoder)
        self.noise = Noise(config.noise_start if config.noise_steps else config.noise)

    @property
    def policy(self) -> DeterministicPolicy:
        return DeterministicPolicy(self.encoder, self.actor, self.obs, self.space.dim, self.noise)

    def set_step(self, steps: int) -> None:
        """The exploration noise falls linearly."""
        if (c := self.config).noise_steps:
            done = min(1.0, steps / c.noise_steps)
            self.noise.std = c.noise_start + done * (c.noise - c.noise_start)

    def update(
        self,
        batch: Batch,
        reward: Tensor,
        generator: torch.Generator,
        value_skill: Tensor | None = None,
    ) -> Metrics:
        """One step of critic, actor and target."""
        value_skill = batch.skill if value_skill is None else value_skill
        actor_noise, target_noise = self.clipped_noise(2, batch.action, generator)
        y = self.td_target(batch, reward, value_skill, target_noise)
        critic_loss, q = self.critic_loss(batch, value_skill, y)
        optimizer_step(self.optimizers["critic"], critic_loss)

        actor_loss, mean = self.actor_loss(batch.obs.detach(), batch.skill, actor_noise)
        optimizer_step(self.optimizers["actor"], actor_loss, list(self.actor.parameters()))
        soft_update(self.target, self.critic, self.config.target_ema)
        return {
            "ddpg/reward": reward,
            "ddpg/q": q,
            "ddpg/squared_error": (q - y[:, None]).square(),
            "ddpg/saturation": (mean.abs() > SATURATED).float().mean(-1),
        }

    def clipped_noise(self, n: int, like: Tensor, generator: torch.Generator) -> Tensor:
        """Noise for the actions inside the losses, (n, B, A)."""
        std, bound = self.noise.std, self.config.noise_clip
        noise = torch.empty(n, *like.shape, dtype=like.dtype, device=like.device)
        return noise.normal_(0, std, generator=generator).clamp_(-bound, bound)

    @torch.no_grad()
    def td_target(self, batch: Batch, reward: Tensor, skill: Tensor, noise: Tensor) -> Tensor:
        """y (B,); the next action is that of the skill that acted."""
        action = self.actor(join(batch.next_obs, batch.skill)).tanh() + noise
        q = self.target(batch.next_obs, skill, action.clamp(-ACTION_LIMIT, ACTION_LIMIT))
        return reward + batch.discount * q.amin(-1)

    def actor_loss(self, obs: Tensor, skill: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Minus the lesser value, and the mean actions (B, A).

        The gradient passes the clamp as if it were not there.
        """
        raw = self.actor(join(obs, skill))
        mean = raw.tanh()
        action = mean + noise
        action = action + (action.clamp(-ACTION_LIMIT, ACTION_LIMIT) - action).detach()
        loss = -self.critic(obs, skill, action).amin(-1).mean()
        if weight := self.config.saturation_penalty:
            loss = loss + weight * raw.square().mean()
        return loss, mean.detach()
