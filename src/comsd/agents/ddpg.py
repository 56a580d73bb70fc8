"""DDPG (Lillicrap et al. 2016) as in DrQ-v2 and URLB, for skill-conditioned off-policy learning.

actor    [s, z]    -> H, LayerNorm, tanh -> H, ReLU -> tanh = mu
critic   [s, z, a] -> H, LayerNorm, tanh -> twice: H, ReLU -> Q      (other forms: critics.py)
target   y = r + d * min(Q1', Q2')(s', z, a'),    a' = mu(s', z) + clipped noise
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from comsd.agents.critics import CRITICS
from comsd.config import Settings, setting
from comsd.envs.base import Array
from comsd.nets import MLP, Adam, without_gradient
from comsd.skills import SkillSpace
from comsd.types import Batch, Metrics, ObsInfo

PAPER, CODE = "paper, hyper-parameter table", "URLB's code, which the paper follows"
EDGE = 1 - 1e-6  # actions stay this far inside [-1, 1]


@dataclass(frozen=True)
class DDPGConfig(Settings):
    hidden: int = setting(1024, "width of the hidden layers of actor and critic", CODE, low=1)
    lr: float = setting(1e-4, "learning rate of actor and critic", PAPER, above=0)
    discount: float = setting(0.99, "gamma", PAPER, low=0, high=1)
    noise: float = setting(0.2, "standard deviation of the exploration noise", PAPER, low=0)
    noise_clip: float = setting(0.3, "bound of the noise in the losses", PAPER, low=0)
    target_ema: float = setting(
        0.01, "share of the critic in its target, per update", PAPER, low=0, high=1
    )
    compile: bool = setting(False, "torch.compile the losses; needs a C++ compiler", "this library")


class DDPG(nn.Module):
    """A deterministic skill-conditioned policy, its twin critic, and how they learn."""

    def __init__(
        self,
        config: DDPGConfig,
        space: SkillSpace,
        obs: ObsInfo,
        actions: int,
        critic: str = "plain",  # its form
    ) -> None:
        super().__init__()
        self.config, self.obs_dim = config, obs.dim
        seen, h = obs.dim + space.dim, config.hidden
        self.actor = MLP(seen, h, h, actions, norm=True)
        self.critic = CRITICS[critic](obs.dim, space.dim, actions, h)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.actor_optimizer = Adam(self.actor.parameters(), config.lr)
        self.critic_optimizer = Adam(self.critic.parameters(), config.lr)

    @property
    def device(self) -> torch.device:
        return self.actor.flat.device

    def init_from(self, other: DDPG, critic: str) -> None:
        """Take over the actor and of the critic its trunk, nothing, or all (`full`)."""
        self.actor.load_state_dict(other.actor.state_dict())
        if critic == "full":
            self.critic.load_state_dict(other.critic.state_dict())
        elif critic == "trunk":
            self.critic.copy_trunk(other.critic)
        self.target.load_state_dict(self.critic.state_dict())

    @property
    def policy(self) -> DDPG:
        return self

    # --- acting -------------------------------------------------------------------------------

    def act(
        self, obs: Tensor | Array, skill: Tensor, rng: np.random.Generator | None = None
    ) -> Tensor:
        """Actions (N, A) in [-1, 1]; without a generator the mean action."""
        seen = torch.as_tensor(obs).cpu().numpy()
        return torch.from_numpy(self.player(skill, rng)(seen)).to(self.device)

    def player(self, skill: Tensor, rng: np.random.Generator | None) -> Callable[[Array], Array]:
        """`act` for one skill per environment that stays: from observations to actions."""
        x = torch.cat([torch.zeros(len(skill), self.obs_dim), skill.cpu().float()], -1)
        seen = x[:, : self.obs_dim].numpy()

        def play(obs: Array) -> Array:
            seen[:] = obs
            mean = self.actor.quick(x.to(self.device)).tanh_().cpu().numpy()
            if rng is None:
                return mean
            noise = rng.standard_normal(mean.shape, dtype=np.float32)
            return np.clip(mean + self.config.noise * noise, -EDGE, EDGE)

        return play

    # --- learning -----------------------------------------------------------------------------

    @torch.no_grad()
    def update(
        self,
        batch: Batch,
        reward: Tensor,
        generator: torch.Generator,
        credit: Tensor | None = None,
    ) -> Metrics:
        """One step of critic, actor and target, for rewards (B,).

        credit: the skills (B, Z) whose values learn, if not those that acted.
        """
        x = torch.cat([batch.obs, batch.skill], -1)
        next_x = torch.cat([batch.next_obs, batch.skill], -1)
        now, then = self.smoothing(2, batch.action, generator)

        y = self.bootstrap(next_x, then, reward, batch.discount, credit)
        q, errors = self.critic_step(torch.cat([self.valued(x, credit), batch.action], -1), y)
        self.actor_step(x, now)
        self.target.flat.lerp_(self.critic.flat, self.config.target_ema)
        return {
            "ddpg/reward": reward,
            "ddpg/q": q,
            "ddpg/squared_error": errors.square_(),
        }

    @without_gradient
    def smoothing(self, n: int, like: Tensor, generator: torch.Generator) -> Tensor:
        """Clipped noise for the actions inside the losses, (n, B, A)."""
        std, bound = self.config.noise, self.config.noise_clip
        noise = torch.empty(n, *like.shape, device=like.device)
        return noise.normal_(0, std, generator=generator).clamp_(-bound, bound)

    def valued(self, x: Tensor, credit: Tensor | None) -> Tensor:
        """[s, z] with the skill whose value it is about."""
        return x if credit is None else torch.cat([x[:, : self.obs_dim], credit], -1)

    @without_gradient
    def bootstrap(
        self,
        next_x: Tensor,
        noise: Tensor,
        reward: Tensor,
        discount: Tensor,
        credit: Tensor | None = None,
    ) -> Tensor:
        action = self.actor(next_x).tanh_().add_(noise).clamp_(-EDGE, EDGE)
        q = self.target(torch.cat([self.valued(next_x, credit), action], -1))  # (B, 2)
        return torch.addcmul(reward, discount, q.amin(-1))

    # The two steps have their gradients written out, which takes two thirds of autograd's time;
    # `critic_loss` and `actor_loss` say what they descend (tests hold one to the other).

    @without_gradient
    def critic_step(self, x_action: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Values and errors before the step, each (B, 2)."""
        q, taken = self.critic.run(x_action)
        errors = q - y[:, None]
        self.critic_optimizer.step_in_pieces(self.critic.gradients(errors * (2 / len(q)), taken))
        self.critic.give_back(taken)
        return q, errors

    @without_gradient
    def actor_step(self, x: Tensor, noise: Tensor) -> None:
        mean, taken = self.actor.run(x)
        action = (mean.tanh_() + noise).clamp_(-EDGE, EDGE)
        q, valued = self.critic.run(torch.cat([x, action], -1))
        slope = mean.square().sub_(1).div_(len(q))  # of -tanh, and the mean over the rows
        self.actor.run_back(self.critic.to_action(q, valued).mul_(slope), taken)
        self.actor_optimizer.step([taken.flat_grad])
        self.critic.give_back(valued)
        self.actor.give_back(taken)

    def critic_loss(self, x_action: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Squared errors summed over the heads, and the values (B, 2)."""
        q = self.critic(x_action)
        return 2 * F.mse_loss(q, y[:, None].expand_as(q)), q.detach()

    def actor_loss(self, x: Tensor, noise: Tensor) -> Tensor:
        """Minus the lesser value; the gradient passes the clamp as if it were not there."""
        action = self.actor(x).tanh() + noise
        action = action + (action.clamp(-EDGE, EDGE) - action).detach()
        return -self.critic(torch.cat([x, action], -1), frozen=True).amin(-1).mean()
