"""PPO (Schulman et al. 2017) with a Beta policy, for skill-conditioned on-policy learning.

The policy and the value see [obs, skill], standardised: a bare one-hot is a weak input. Actions
live in [-1, 1]^A: a = 2u - 1 with u ~ Beta, both concentrations above one, so unimodal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from comsd.config import Settings, setting
from comsd.envs.base import Array
from comsd.errors import RunError
from comsd.nets import MLP, Adam, Standardise, without_gradient
from comsd.skills import SkillSpace
from comsd.terms import RunningMoments
from comsd.types import Batch, Metrics, ObsInfo

EDGE = 1e-6  # samples stay this far inside (0, 1), where the density is finite

CODE = "authors' maze code"


@dataclass(frozen=True)
class PPOConfig(Settings):
    hidden: int = setting(128, "width of the two hidden layers of policy and value", CODE, low=1)
    lr: float = setting(3e-4, "learning rate", CODE, above=0)
    adam_eps: float = setting(1e-5, "epsilon of Adam", "usual for PPO; authors' code 1e-3", above=0)
    epochs: int = setting(4, "passes over each cycle's data", CODE, low=1)
    minibatches: int = setting(10, "minibatches per pass", CODE, low=1)
    discount: float = setting(0.99, "gamma", CODE, low=0, high=1)
    gae_lambda: float = setting(0.98, "lambda of the advantage estimate", CODE, low=0, high=1)
    clip: float = setting(0.2, "clip range of the probability ratio", CODE, above=0)
    entropy: float = setting(0.025, "weight of the mean entropy per action dimension", CODE, low=0)
    concentration: float = setting(1.05, "lower bound of the Beta concentrations", CODE, low=0)


# Concentrations c (2A, B) = [a, b] and log_u (2A, B) = [log u, log(1 - u)] have a row per number:
# work on long rows takes half the time of work on short ones.


def beta_log_density(c: Tensor, log_u: Tensor) -> Tensor:
    """log p(u) under Beta(a, b), summed over the A dimensions, (B,)."""
    a, b = c.chunk(2)
    log_beta = c.lgamma().sum(0) - (a + b).lgamma().sum(0)
    return ((c - 1) * log_u).sum(0) - log_beta


def beta_entropy(c: Tensor) -> Tensor:
    """Entropy of Beta(a, b), summed over the dimensions, (B,)."""
    a, b = c.chunk(2)
    log_beta = c.lgamma().sum(0) - (a + b).lgamma().sum(0)
    own = ((c - 1) * c.digamma()).sum(0)
    return log_beta - own + ((a + b - 2) * (a + b).digamma()).sum(0)


def beta_density_and_slope(
    c: Tensor, log_u: Tensor
) -> tuple[Tensor, Callable[[Tensor, float], Tensor]]:
    """log p(u), (B,), and what gives the gradient of w log p + h H in [a, b], (2A, B).

    d log p / da = log u - psi(a) + psi(a+b)
    d H / da     = (a+b-2) psi'(a+b) - (a-1) psi'(a),     psi the digamma function
    """
    shape = 2, len(c) // 2, -1
    c, log_u = c.view(shape), log_u.view(shape)
    every = torch.cat([c, c.sum(0, keepdim=True)])  # a, b, a + b
    log_gamma, psi, trigamma = every.lgamma(), every.digamma(), torch.special.polygamma(1, every)
    excess = every.sub_(ones_and_two(every.dtype, every.device))  # a - 1, b - 1, a + b - 2
    own = torch.addcmul(log_gamma[:2], excess[:2], log_u, value=-1)
    log_density = log_gamma[2].sum(0) - own.sum((0, 1))

    def slope(w: Tensor, h: float) -> Tensor:
        parts = (psi * w).add_(excess * trigamma, alpha=h)
        return (parts[2] - parts[:2]).addcmul_(log_u, w).flatten(0, 1)

    return log_density, slope


@cache
def ones_and_two(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor([1, 1, 2], dtype=dtype, device=device)[:, None, None]


def to_unit(action: Tensor) -> Tensor:
    """[-1, 1] -> (0, 1), the inverse of what `act` does; from (B, A) to (2A, B)."""
    u = ((action.t() + 1) / 2).clamp(EDGE, 1 - EDGE)
    return torch.cat([u.log(), (1 - u).log()])


@cache
def discounts(steps: int, rate: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """rate ** (j - i) where j >= i, otherwise 0; (steps, steps)."""
    at = torch.arange(steps, device=device)
    power = (at[None] - at[:, None]).clamp_min(0)
    return torch.triu(rate ** power.to(dtype))


def discounted_sums(x: Tensor, rate: float) -> Tensor:
    """y_t = x_t + rate * y_{t+1} along the first dimension."""
    return discounts(len(x), rate, x.dtype, x.device) @ x


def advantages(reward: Tensor, value: Tensor, discount: float, gae_lambda: float) -> Tensor:
    """Generalised advantages of whole episodes, (T, N), from rewards (T, N), values (T + 1, N).

    Every column is one episode that ends by time limit: the last value is bootstrapped, and
    nothing flows from one episode into another.
    """
    delta = reward + discount * value[1:] - value[:-1]
    return discounted_sums(delta, discount * gae_lambda)


class RewardScale(nn.Module):
    """Centres rewards by their running mean, divides by the running std of their returns.

    Intrinsic rewards have a large constant part; left in, the value net would spend its
    time on it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rewards = RunningMoments()
        self.returns = RunningMoments()

    def forward(self, reward: Tensor, discount: float) -> Tensor:
        self.rewards.update(reward)
        centred = reward - self.rewards.mean.to(reward.dtype)
        self.returns.update(discounted_sums(centred, discount))
        return centred / (self.returns.std.to(reward.dtype) + 1e-8)


class PPO(nn.Module):
    """A skill-conditioned Beta policy, its value, and how they learn.

    It has no critic of actions, so the form a method asks for plays no part.
    """

    def __init__(
        self,
        config: PPOConfig,
        space: SkillSpace,
        obs: ObsInfo,
        actions: int,
        critic: str = "plain",
    ) -> None:
        super().__init__()
        self.config = config
        skill = torch.ones(space.dim, device=obs.mean.device)
        mean = torch.cat([obs.mean, space.mean * skill])
        self.inputs = Standardise(mean, torch.cat([obs.std, space.std * skill]))
        self.actor = MLP(len(mean), config.hidden, config.hidden, 2 * actions, init="uniform")
        self.value = MLP(len(mean), config.hidden, config.hidden, 1, init="uniform")
        self.reward_scale = RewardScale()
        weights = [*self.actor.parameters(), *self.value.parameters()]
        self.optimizer = Adam(weights, config.lr, config.adam_eps)

    @property
    def device(self) -> torch.device:
        return self.inputs.mean.device

    @property
    def policy(self) -> PPO:
        return self

    def concentrations(self, x: Tensor) -> Tensor:
        """[a, b], (2A, B)."""
        return F.softplus(self.actor(x).t()) + self.config.concentration

    def act(
        self, obs: Tensor | Array, skill: Tensor, rng: np.random.Generator | None = None
    ) -> Tensor:
        """Actions (N, A) in [-1, 1]; without a generator the mean action."""
        seen = torch.as_tensor(obs).cpu().numpy()
        return torch.from_numpy(self.player(skill, rng)(seen)).to(self.device)

    def player(self, skill: Tensor, rng: np.random.Generator | None) -> Callable[[Array], Array]:
        """`act` for one skill per environment that stays: from observations to actions.

        All but the network works on a few rows in NumPy, at a fraction of torch's cost per call.
        """
        shift, scale = self.inputs.shift.cpu().numpy(), self.inputs.scale.cpu().numpy()
        seen = len(shift) - skill.shape[1]
        x = np.empty((len(skill), len(shift)), dtype=np.float32)
        actions = self.actor.shapes[-1][0] // 2
        x[:, seen:] = skill.cpu().numpy() * scale[seen:] + shift[seen:]
        inputs, shift, scale, device = torch.from_numpy(x), shift[:seen], scale[:seen], self.device

        def play(obs: Array) -> Array:
            x[:, :seen] = obs * scale + shift
            out = self.actor.quick(inputs.to(device)).cpu().numpy()
            concentrations = np.logaddexp(np.float32(0), out) + self.config.concentration
            a, b = concentrations[:, :actions], concentrations[:, actions:]
            u = a / (a + b) if rng is None else rng.beta(a, b)
            return (2 * u - 1).astype(np.float32)

        return play

    @without_gradient
    def update(
        self, batch: Batch, reward: Tensor, num_envs: int, rng: np.random.Generator
    ) -> Metrics:
        """Clipped policy steps on one cycle, (T * N) rows in time-major order."""
        c = self.config
        x = self.inputs(torch.cat([batch.obs, batch.skill], -1))
        ends = batch.next_obs[-num_envs:], batch.skill[-num_envs:]
        last = self.inputs(torch.cat(ends, -1))
        log_u = to_unit(batch.action)
        old = beta_log_density(self.concentrations(x), log_u)
        value = self.value(torch.cat([x, last])).view(-1, num_envs)
        scaled = self.reward_scale(reward.view(-1, num_envs), c.discount)
        advantage = advantages(scaled, value, c.discount, c.gae_lambda)
        target = (advantage + value[:-1]).flatten()
        advantage = advantage.flatten()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        most = advantage + c.clip * advantage.abs()
        data = x.t().contiguous(), log_u, old, advantage, most, target
        columns: tuple[Tensor, ...] = ()
        for columns in shuffled(data, c.epochs, c.minibatches, rng, dim=-1):
            self.step(*columns)
        if not all(bool(torch.isfinite(p).all()) for p in self.parameters()):
            raise RunError("the weights of the policy or its value hold NaN or infinity")
        metrics = self.loss(*columns)[1]
        spread = self.reward_scale.returns.std
        return {"ppo/reward": reward.mean(), "ppo/return_std": spread, **metrics}

    def loss(
        self, x: Tensor, log_u: Tensor, old: Tensor, advantage: Tensor, most: Tensor, target: Tensor
    ) -> tuple[Tensor, Metrics]:
        """Clipped surrogate, entropy bonus per action dimension and half the squared value error.

        Of a minibatch: inputs (I, B), [log u, log(1 - u)] (2A, B), and four of shape (B,). `most`
        is what the surrogate can be: clip(ratio) * advantage <= advantage + clip |advantage|.
        """
        c, dims = self.config, len(log_u) // 2
        concentrations, value = self.concentrations(x.t()), self.value(x.t())[:, 0]
        ratio = (beta_log_density(concentrations, log_u) - old).exp()
        surrogate = torch.minimum(ratio * advantage, most).mean()
        entropy = beta_entropy(concentrations).mean() / dims
        value_loss = 0.5 * F.mse_loss(value, target)
        metrics = {
            "ppo/value_loss": value_loss.detach(),
            "ppo/entropy": entropy.detach(),
            "ppo/clipped": ((ratio - 1).abs() > c.clip).float().mean(),
        }
        return value_loss - surrogate - c.entropy * entropy, metrics

    @without_gradient
    def step(
        self, x: Tensor, log_u: Tensor, old: Tensor, advantage: Tensor, most: Tensor, target: Tensor
    ) -> None:
        """One step down `loss`, its gradient written out, which takes half the time of autograd.

        The surrogate's gradient is ratio * advantage * d log p where the clip does not bind.
        """
        c, rows = self.config, len(target)
        policy_net, value_net, x = self.actor, self.value, x.t()
        out, policy_pass = policy_net.run_by_columns(x)
        value, value_pass = value_net.run_by_columns(x)
        out, value = out.t(), value[:, 0]
        concentrations = F.softplus(out) + c.concentration
        log_density, slope = beta_density_and_slope(concentrations, log_u)
        gain = (log_density - old).exp_().mul_(advantage)
        weight = gain.masked_fill_(gain > most, 0)
        d_out = slope(weight, 2 * c.entropy / len(log_u))
        d_out.mul_(out.sigmoid_()).div_(-rows)  # through the softplus, the mean, downwards
        d_value = value.sub_(target).div_(rows)
        policy_net.run_back(d_out.t(), policy_pass)
        value_net.run_back(d_value[:, None], value_pass)
        self.optimizer.step([policy_pass.flat_grad, value_pass.flat_grad])
        policy_net.give_back(policy_pass)
        value_net.give_back(value_pass)


def shuffled(
    data: Iterable[Tensor],
    epochs: int,
    minibatches: int,
    rng: np.random.Generator,
    *,
    dim: int = 0,
) -> Iterator[tuple[Tensor, ...]]:
    """Minibatches of data that belongs together along a dimension, in a new order every epoch."""
    parts = list(data)
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(parts[0].shape[dim])).to(parts[0].device)
        split = (x.index_select(dim, order).chunk(minibatches, dim) for x in parts)
        yield from zip(*split, strict=True)
