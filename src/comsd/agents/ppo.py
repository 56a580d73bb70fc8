"""PPO (Schulman et al. 2017) with a Beta policy, for skill-conditioned on-policy learning.

The policy and the value see [obs, skill], standardised: a bare one-hot is a weak input. Actions
live in [-1, 1]^A: a = 2u - 1 with u ~ Beta, both concentrations above one, so unimodal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from comsd.agents.base import AgentConfig
from comsd.config import setting
from comsd.envs.base import Array
from comsd.errors import RunError
from comsd.nets import MLP, Adam, Standardise
from comsd.skills import SkillSpace
from comsd.terms import RunningMoments
from comsd.types import Batch, Metrics, ObsInfo

EDGE = 1e-6  # samples stay this far inside (0, 1), where the density is finite

CODE = "authors' maze code"


@dataclass(frozen=True)
class PPOConfig(AgentConfig):
    hidden: int = setting(128, "width of the two hidden layers of policy and value", CODE, low=1)
    lr: float = setting(3e-4, "learning rate", CODE, above=0)
    adam_eps: float = setting(1e-5, "epsilon of Adam", "usual for PPO; authors' code 1e-3", above=0)
    envs: int = setting(50, "episodes per cycle, run side by side", CODE, low=1)
    epochs: int = setting(4, "passes over each cycle's data", CODE, low=1)
    minibatches: int = setting(10, "minibatches per pass", CODE, low=1)
    discount: float = setting(0.99, "gamma", CODE, low=0, high=1)
    gae_lambda: float = setting(0.98, "lambda of the advantage estimate", CODE, low=0, high=1)
    clip: float = setting(0.2, "clip range of the probability ratio", CODE, above=0)
    entropy: float = setting(0.025, "weight of the mean entropy per action dimension", CODE, low=0)
    concentration: float = setting(1.05, "lower bound of the Beta concentrations", CODE, low=0)


def beta_log_density(concentrations: Tensor, log_u: Tensor) -> Tensor:
    """log p(u) under Beta(a, b), summed over the A dimensions, (B,).

    concentrations (B, 2A) = [a, b]; log_u (B, 2A) = [log u, log(1 - u)].
    """
    a, b = concentrations.chunk(2, -1)
    log_beta = concentrations.lgamma().sum(-1) - (a + b).lgamma().sum(-1)
    return ((concentrations - 1) * log_u).sum(-1) - log_beta


def beta_entropy(concentrations: Tensor) -> Tensor:
    """Entropy of Beta(a, b), summed over the dimensions, (B,)."""
    a, b = concentrations.chunk(2, -1)
    log_beta = concentrations.lgamma().sum(-1) - (a + b).lgamma().sum(-1)
    own = ((concentrations - 1) * concentrations.digamma()).sum(-1)
    return log_beta - own + ((a + b - 2) * (a + b).digamma()).sum(-1)


def beta_gradients(concentrations: Tensor, log_u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log p(u), (B,), and the gradients of log p and of the entropy H in [a, b], (B, 2A).

    d log p / da = log u - psi(a) + psi(a+b)
    d H / da     = (a+b-2) psi'(a+b) - (a-1) psi'(a),     psi the digamma function
    """
    c = concentrations.view(len(concentrations), 2, -1)  # (B, 2, A)
    log_u = log_u.view_as(c)
    every = torch.cat([c, c.sum(1, keepdim=True)], 1)  # a, b, a + b
    log_gamma, psi, trigamma = every.lgamma(), every.digamma(), torch.special.polygamma(1, every)
    excess = every - 1
    log_gamma[:, :2].addcmul_(excess[:, :2], log_u, value=-1).neg_()
    log_density = log_gamma.sum((1, 2))
    d_density = log_u - psi[:, :2] + psi[:, 2:]
    slopes = excess.mul_(trigamma)
    d_entropy = slopes[:, 2:] - trigamma[:, 2:] - slopes[:, :2]
    return log_density, d_density.flatten(1), d_entropy.flatten(1)


def to_unit(action: Tensor) -> Tensor:
    """[-1, 1] -> (0, 1), the inverse of what `act` does; (B, 2A) = [log u, log(1 - u)]."""
    u = ((action + 1) / 2).clamp(EDGE, 1 - EDGE)
    return torch.cat([u.log(), (1 - u).log()], -1)


def discounted_sums(x: Tensor, rate: float) -> Tensor:
    """y_t = x_t + rate * y_{t+1} along the first dimension."""
    steps = torch.arange(len(x), device=x.device)
    power = (steps[None] - steps[:, None]).clamp_min(0)
    return torch.triu(rate ** power.to(x.dtype)) @ x


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
        self.policy = MLP(len(mean), config.hidden, config.hidden, 2 * actions, init="uniform")
        self.value = MLP(len(mean), config.hidden, config.hidden, 1, init="uniform")
        self.reward_scale = RewardScale()
        weights = [*self.policy.parameters(), *self.value.parameters()]
        self.optimizer = Adam(weights, config.lr, config.adam_eps)

    @property
    def device(self) -> torch.device:
        return self.inputs.mean.device

    def concentrations(self, x: Tensor) -> Tensor:
        return F.softplus(self.policy(x)) + self.config.concentration

    def act(self, obs: Tensor, skill: Tensor, rng: np.random.Generator | None = None) -> Tensor:
        """Actions (N, A) in [-1, 1]; without a generator the mean action."""
        return torch.from_numpy(self.player(skill, rng)(obs.cpu().numpy())).to(self.device)

    def player(self, skill: Tensor, rng: np.random.Generator | None) -> Callable[[Array], Array]:
        """`act` for one skill per environment that stays: from observations to actions.

        All but the network works on a few rows in NumPy, at a fraction of torch's cost per call.
        """
        shift, scale = self.inputs.shift.cpu().numpy(), self.inputs.scale.cpu().numpy()
        seen = len(shift) - skill.shape[1]
        x = np.empty((len(skill), len(shift)), dtype=np.float32)
        x[:, seen:] = skill.cpu().numpy() * scale[seen:] + shift[seen:]

        @torch.no_grad()
        def play(obs: Array) -> Array:
            np.multiply(obs, scale[:seen], out=x[:, :seen])
            x[:, :seen] += shift[:seen]
            out = self.policy(torch.from_numpy(x).to(self.device)).cpu().numpy()
            concentrations = np.logaddexp(np.float32(0), out) + self.config.concentration
            a, b = np.split(concentrations, 2, -1)
            u = a / (a + b) if rng is None else rng.beta(a, b)
            return (2 * u - 1).astype(np.float32)

        return play

    def update(
        self, batch: Batch, reward: Tensor, num_envs: int, rng: np.random.Generator
    ) -> Metrics:
        """Clipped policy steps on one cycle, (T * N) rows in time-major order."""
        c = self.config
        with torch.no_grad():
            x = self.inputs(torch.cat([batch.obs, batch.skill], -1))
            last = self.inputs(torch.cat([batch.next_obs, batch.skill], -1)[-num_envs:])
            log_u = to_unit(batch.action)
            old = beta_log_density(self.concentrations(x), log_u)
            value = self.value(torch.cat([x, last])).view(-1, num_envs)
            scaled = self.reward_scale(reward.view(-1, num_envs), c.discount)
            advantage = advantages(scaled, value, c.discount, c.gae_lambda)
            target = (advantage + value[:-1]).flatten()
            advantage = advantage.flatten()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            data = torch.cat([x, log_u, torch.stack([old, advantage, target], -1)], -1)
        sizes = [x.shape[1], log_u.shape[1], 1, 1, 1]
        columns: list[Tensor] = []
        for rows in shuffled(data, c.epochs, c.minibatches, rng):
            columns = list(rows.split(sizes, -1))
            self.step(*columns)
        if not all(bool(torch.isfinite(p).all()) for p in self.parameters()):
            raise RunError("the weights of the policy or its value hold NaN or infinity")
        with torch.no_grad():
            metrics = self.loss(*columns)[1]
        spread = self.reward_scale.returns.std
        return {"ppo/reward": reward.mean(), "ppo/return_std": spread, **metrics}

    def loss(
        self, x: Tensor, log_u: Tensor, old: Tensor, advantage: Tensor, target: Tensor
    ) -> tuple[Tensor, Metrics]:
        """Clipped surrogate, entropy bonus per action dimension and half the squared value error.

        Columns of a minibatch: input, [log u, log(1 - u)], and three of width one.
        """
        c, dims = self.config, log_u.shape[1] // 2
        concentrations = self.concentrations(x)
        ratio = (beta_log_density(concentrations, log_u) - old[:, 0]).exp()
        clipped = ratio.clamp(1 - c.clip, 1 + c.clip)
        surrogate = torch.minimum(ratio * advantage[:, 0], clipped * advantage[:, 0]).mean()
        entropy = beta_entropy(concentrations).mean() / dims
        value_loss = 0.5 * F.mse_loss(self.value(x), target)
        metrics = {
            "ppo/value_loss": value_loss.detach(),
            "ppo/entropy": entropy.detach(),
            "ppo/clipped": (ratio != clipped).float().mean(),
        }
        return value_loss - surrogate - c.entropy * entropy, metrics

    @torch.no_grad()
    def step(
        self, x: Tensor, log_u: Tensor, old: Tensor, advantage: Tensor, target: Tensor
    ) -> None:
        """One step down `loss`, its gradient written out, which takes half the time of autograd.

        The surrogate's gradient is ratio * advantage * d log p where the clip does not bind.
        """
        c, rows = self.config, len(x)
        (out, policy_pass), (value, value_pass) = self.policy.run(x), self.value.run(x)
        concentrations = F.softplus(out) + c.concentration
        log_density, d_density, d_entropy = beta_gradients(concentrations, log_u)
        ratio = (log_density[:, None] - old).exp_()
        gain = ratio * advantage
        bound = ratio.clamp_(1 - c.clip, 1 + c.clip).mul_(advantage)
        weight = gain.masked_fill_(gain > bound, 0)
        bonus = 2 * c.entropy / log_u.shape[1]
        d_out = (weight * d_density).add_(d_entropy, alpha=bonus)
        d_out.mul_(out.sigmoid_()).div_(-rows)  # through the softplus, the mean, downwards
        d_value = value.sub_(target).div_(rows)
        self.policy.run_back(d_out, policy_pass)
        self.value.run_back(d_value, value_pass)
        self.optimizer.step([policy_pass.flat_grad, value_pass.flat_grad])
        self.policy.give_back(policy_pass)
        self.value.give_back(value_pass)


def shuffled(
    data: Tensor, epochs: int, minibatches: int, rng: np.random.Generator
) -> Iterator[Tensor]:
    """Minibatches of the rows of `data`, in a new order every epoch."""
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(data))).to(data.device)
        yield from data[order].chunk(minibatches)
