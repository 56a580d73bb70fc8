"""PPO (Schulman et al. 2017) with a Beta policy, for skill-conditioned on-policy learning.

The policy and the value see [obs, skill], normalised: a bare one-hot is a weak input. Actions
live in [-1, 1]^A: a = 2u - 1 with u ~ Beta, both concentrations above one, so unimodal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from comsd.agents.base import Policy
from comsd.config import Settings, setting
from comsd.encoders import Encoder, Identity
from comsd.nn import (
    MLP,
    Normalizer,
    RunningMoments,
    adam,
    load_optimizer,
    optimizer_state,
    optimizer_step,
)
from comsd.skills import SkillSpace
from comsd.types import Array, Batch, Metrics, ObsSpec

BETA_MARGIN = 1e-6  # samples stay this far inside (0, 1), where the density is finite
CODE = "authors' maze code"


@dataclass(frozen=True)
class PPOConfig(Settings):
    hidden: int = setting(
        128, "width of the two hidden layers of policy and value", CODE, low=1, high=65_536
    )
    lr: float = setting(3e-4, "learning rate", CODE, above=0)
    adam_eps: float = setting(1e-5, "epsilon of Adam", "usual for PPO; authors' code 1e-3", above=0)
    epochs: int = setting(4, "passes over each cycle's data", CODE, low=1, high=1000)
    minibatches: int = setting(10, "minibatches per pass", CODE, low=1, high=100_000)
    discount: float = setting(0.99, "gamma", CODE, low=0, high=1)
    gae_lambda: float = setting(0.98, "lambda of the advantage estimate", CODE, low=0, high=1)
    clip: float = setting(0.2, "clip range of the probability ratio", CODE, above=0)
    entropy: float = setting(0.025, "weight of the mean entropy per action dimension", CODE, low=0)
    concentration: float = setting(1.05, "lower bound of the Beta concentrations", CODE, low=0)


# Concentrations and actions are transposed, (A, B): elementwise work on long rows takes half the
# time of work on short ones.


def beta_log_prob(a: Tensor, b: Tensor, u: Tensor) -> Tensor:
    """log p(u) under Beta(a, b), summed over the A dimensions, (B,)."""
    log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
    return ((a - 1) * u.log() + (b - 1) * (1 - u).log() - log_beta).sum(0)


def beta_entropy(a: Tensor, b: Tensor) -> Tensor:
    """Entropy of Beta(a, b), summed over the A dimensions, (B,)."""
    log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
    own = (a - 1) * a.digamma() + (b - 1) * b.digamma()
    return (log_beta - own + (a + b - 2) * (a + b).digamma()).sum(0)


def discounted_sums(x: Tensor, rate: Tensor) -> Tensor:
    """y_t = x_t + rate_t * y_{t+1} along the first dimension."""
    sums, following = torch.empty_like(x), torch.zeros_like(x[0])
    for t in reversed(range(len(x))):
        following = sums[t] = x[t] + rate[t] * following
    return sums


def advantages(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    ended: Tensor,
    discount: float,
    gae_lambda: float,
) -> Tensor:
    """Generalised advantage estimates, all (T, N).

    next_value: of the true next observation. A terminated episode has no value after its end, a
    truncated one has; nothing flows from one episode into another.
    """
    delta = reward + discount * next_value * ~terminated - value
    return discounted_sums(delta, discount * gae_lambda * (~ended).to(delta.dtype))


class RewardScale(nn.Module):
    """Centres rewards by their running mean, divides by the running std of their returns.

    Intrinsic rewards have a large constant part; left in, the value net would spend its
    time on it. Where episodes terminate they are not centred: a constant is then worth something
    to an agent, which earns it for as long as it survives.
    """

    terminates: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.rewards = RunningMoments()
        self.returns = RunningMoments()
        self.register_buffer("terminates", torch.zeros((), dtype=torch.bool))

    def forward(self, reward: Tensor, discount: Tensor, terminated: Tensor) -> Tensor:
        """All (T, N); the discount is 0 where an episode ends."""
        self.terminates |= terminated.any()
        self.rewards.update(reward)
        mean = self.rewards.mean.to(reward.dtype)
        centred = reward - mean * ~self.terminates
        self.returns.update(discounted_sums(centred, discount))
        return centred / (self.returns.std.to(reward.dtype) + 1e-8)


class BetaPolicy(Policy):
    """The mean of the Beta distribution; sampling draws from it."""

    def __init__(
        self,
        encoder: Encoder,
        normalizer: Normalizer,
        net: MLP,
        concentration: float,
        obs: ObsSpec,
        skill_dim: int,
    ) -> None:
        super().__init__(obs, skill_dim)
        self.encoder, self.normalizer, self.concentration = encoder, normalizer, concentration
        self.net = nn.Sequential(net.hidden, net.out)  # acts in float32, also under bf16

    def concentrations(self, obs: Tensor, skill: Tensor) -> tuple[Tensor, Tensor]:
        x = self.normalizer(torch.cat([self.encoder(obs), skill], -1))
        a, b = (F.softplus(self.net(x)) + self.concentration).chunk(2, -1)
        return a, b

    def mean_action(self, obs: Tensor, skill: Tensor) -> Tensor:
        a, b = self.concentrations(obs, skill)
        return 2 * a / (a + b) - 1

    @torch.no_grad()
    def sample(self, obs: Tensor, skill: Tensor, rng: np.random.Generator) -> Array:
        a, b = (x.cpu().numpy() for x in self.concentrations(obs, skill))
        return (2 * rng.beta(a, b) - 1).astype(np.float32)


class PPO(nn.Module):
    """A skill-conditioned Beta policy, its value, and how they learn.

    It has no critic of actions, so the form a method asks for plays no part.
    """

    def __init__(
        self,
        config: PPOConfig,
        space: SkillSpace,
        obs: ObsSpec,
        actions: int,
        critic: str = "plain",
    ) -> None:
        super().__init__()
        self.config, self.space, self.obs = config, space, obs
        self.encoder = Identity(obs)
        features, skill = self.encoder.spec, np.ones(space.dim, np.float32)
        mean = np.concatenate([features.mean.ravel(), space.mean * skill])
        std = np.concatenate([features.std.ravel(), space.std * skill])
        self.normalizer = Normalizer(mean, std)
        self.actor = MLP(len(mean), config.hidden, config.hidden, 2 * actions, init="uniform")
        self.value = MLP(len(mean), config.hidden, config.hidden, 1, init="uniform")
        self.reward_scale = RewardScale()
        weights = [*self.actor.parameters(), *self.value.parameters()]
        self.optimizer = adam(weights, config.lr, config.adam_eps)

    @property
    def policy(self) -> BetaPolicy:
        """For acting: shares the actor's weights."""
        c = self.config.concentration
        return BetaPolicy(self.encoder, self.normalizer, self.actor, c, self.obs, self.space.dim)

    def concentrations(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = (F.softplus(self.actor(x).T) + self.config.concentration).chunk(2)
        return a, b

    def update(
        self,
        batch: Batch,
        reward: Tensor,
        terminated: Tensor,
        ended: Tensor,
        rng: np.random.Generator,
    ) -> Metrics:
        """Clipped policy steps on one cycle, (T * N) rows in time-major order.

        terminated, ended (T, N): where episodes end, by themselves or also by a time limit.
        """
        c = self.config
        x = self.normalizer(torch.cat([batch.obs, batch.skill], -1))
        u = ((batch.action.T + 1) / 2).clamp(BETA_MARGIN, 1 - BETA_MARGIN)  # (A, B)
        with torch.no_grad():
            old_log_prob = beta_log_prob(*self.concentrations(x), u)
            value = self.value(x).view_as(ended)
            next_value = self.next_values(batch, value, ended)
            discount = c.discount * (~ended).to(x.dtype)
            scaled = self.reward_scale(reward.view_as(ended), discount, terminated)
            gae = c.discount, c.gae_lambda
            advantage = advantages(scaled, value, next_value, terminated, ended, *gae).flatten()
            value_target = advantage + value.flatten()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        rows = x, u.T, old_log_prob, advantage, value_target
        metrics: Metrics = {}
        for minibatch in shuffled(rows, c.epochs, c.minibatches, rng):
            loss, metrics = self.loss(*minibatch)
            optimizer_step(self.optimizer, loss)
        return_std = self.reward_scale.returns.std
        return {"ppo/reward": reward.mean(), "ppo/return_std": return_std, **metrics}

    def next_values(self, batch: Batch, value: Tensor, ended: Tensor) -> Tensor:
        """V of the true next observations: the next row's, except where an episode ends."""
        boundary = ended.clone()
        boundary[-1] = True  # the cycle's last rows have no next row
        rows = boundary.flatten()
        last = self.normalizer(torch.cat([batch.next_obs[rows], batch.skill[rows]], -1))
        next_value = value.roll(-1, 0)
        next_value[boundary] = self.value(last)[:, 0]
        return next_value

    def loss(
        self, x: Tensor, u: Tensor, old_log_prob: Tensor, advantage: Tensor, value_target: Tensor
    ) -> tuple[Tensor, Metrics]:
        """Clipped surrogate, entropy bonus per action dimension and half the squared value error.

        Of a minibatch: inputs (B, I), actions in (0, 1) (B, A), and three of shape (B,).
        """
        c = self.config
        a, b = self.concentrations(x)
        ratio = (beta_log_prob(a, b, u.T) - old_log_prob).exp()
        clipped = ratio.clamp(1 - c.clip, 1 + c.clip)
        surrogate = torch.minimum(ratio * advantage, clipped * advantage).mean()
        entropy = beta_entropy(a, b).mean() / len(a)
        value_loss = 0.5 * F.mse_loss(self.value(x)[:, 0], value_target)
        metrics = {
            "ppo/value_loss": value_loss.detach(),
            "ppo/entropy": entropy.detach(),
            "ppo/clipped": ((ratio.detach() - 1).abs() > c.clip).float().mean(),
        }
        return value_loss - surrogate - c.entropy * entropy, metrics

    def optimizer_state(self) -> dict[str, Any]:
        return optimizer_state(self.optimizer)

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        load_optimizer(self.optimizer, state)


def shuffled(
    data: Iterable[Tensor], epochs: int, minibatches: int, rng: np.random.Generator
) -> Iterator[tuple[Tensor, ...]]:
    """Minibatches of rows that belong together, in a new order every epoch."""
    columns = list(data)
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(columns[0]))).to(columns[0].device)
        split = (x[order].tensor_split(minibatches) for x in columns)
        yield from zip(*split, strict=True)
