"""Double DQN (van Hasselt et al. 2016): a controller that chooses among a few candidate skills.

q        s -> H, LayerNorm, tanh -> H, ReLU -> Q(s, k), one value per candidate
images   x -> 50, LayerNorm, tanh -> H, ReLU -> H, ReLU -> Q(x, k)
target   y = r + d * Q'(s', argmax_k Q(s', k))

A choice lasts `hold` steps, so this is Q-learning on a semi-Markov decision process: r is the
discounted reward of those steps and d = gamma^hold. The action is the skill itself; candidates are
part of the agent's state.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from comsd.agents.base import OffPolicyAgent, OffPolicyConfig, Policy
from comsd.config import setting
from comsd.encoders import Encoder, Identity
from comsd.errors import InputError
from comsd.nn import MLP, adam, optimizer_step, soft_update
from comsd.skills import SkillSpace
from comsd.types import Array, Batch, Metrics, ObsSpec

OURS = "ours"


@dataclass(frozen=True)
class DQNConfig(OffPolicyConfig):
    candidates: int = setting(16, "skills to choose among", OURS, low=2, high=4096)
    hidden: int = setting(256, "width of the two hidden layers", OURS, low=1, high=65_536)
    lr: float = setting(3e-4, "learning rate", OURS, above=0)
    epsilon: float = setting(0.1, "share of random choices in the end", OURS, low=0, high=1)
    epsilon_updates: int = setting(1200, "updates over which it falls from 1", OURS, low=1)
    target_ema: float = setting(
        0.01, "share of Q in its target, per update", "as for DDPG", low=0, high=1
    )


class GreedyPolicy(Policy):
    """The candidate of the highest value; sampling takes a random one now and then."""

    def __init__(self, agent: DQN) -> None:
        super().__init__(agent.obs, agent.space.dim)
        self.encoder, self.config = agent.encoder, agent.config
        self.q = nn.Sequential(agent.q.hidden, agent.q.out)  # acts in float32, also under bf16
        self.register_buffer("candidates", agent.candidates)
        self.register_buffer("updates", agent.updates)

    candidates: Tensor
    updates: Tensor

    def mean_action(self, obs: Tensor, skill: Tensor) -> Tensor:
        return self.candidates[self.q(self.encoder(obs)).argmax(-1)]

    @property
    def epsilon(self) -> float:
        c = self.config
        return max(c.epsilon, 1 - (1 - c.epsilon) * int(self.updates) / c.epsilon_updates)

    @torch.no_grad()
    def sample(self, obs: Tensor, skill: Tensor, rng: np.random.Generator) -> Array:
        chosen = self.mean_action(obs, skill).cpu().numpy()
        anywhere = self.random_candidates(len(obs), rng)
        return np.where(rng.random((len(obs), 1)) < self.epsilon, anywhere, chosen)

    def random_candidates(self, n: int, rng: np.random.Generator) -> Array:
        """(n, Z)"""
        return self.candidates.cpu().numpy()[rng.integers(len(self.candidates), size=n)]


class DQN(OffPolicyAgent):
    """Values of the candidates, and how they learn."""

    config: DQNConfig
    candidates: Tensor  # (K, A)
    updates: Tensor

    def __init__(
        self,
        config: DQNConfig,
        space: SkillSpace,
        obs: ObsSpec,
        actions: int,  # numbers of a candidate
        critic: str = "plain",
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__(config, encoder or Identity(obs))
        self.space, self.obs = space, obs
        features, hidden = self.encoder.spec.dim, config.hidden
        narrow = self.encoder.bottleneck
        widths = (narrow, hidden, hidden) if narrow else (hidden, hidden)
        self.q = MLP(features, *widths, config.candidates, norm=True)
        self.target = copy.deepcopy(self.q).requires_grad_(False)
        self.register_buffer("candidates", torch.zeros(config.candidates, actions))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self.optimizers = {"critic": adam(self.q.parameters(), config.lr)}
        if encoded := self.encoder_parameters():
            self.optimizers["encoder"] = adam(encoded, config.lr)

    @property
    def policy(self) -> GreedyPolicy:
        return GreedyPolicy(self)

    def init_from(self, other: OffPolicyAgent, critic: str) -> None:
        raise InputError("agent is 'dqn', which chooses among skills; it cannot be fine-tuned")

    def compile_losses(self) -> None:
        self.td_target = torch.compile(self.td_target)
        self.loss = torch.compile(self.loss)

    # --- learning -----------------------------------------------------------------------------

    def update(
        self,
        batch: Batch,
        reward: Tensor,
        generator: torch.Generator,
        value_skill: Tensor | None = None,
    ) -> Metrics:
        """One step of the values and their target."""
        y = self.td_target(batch, reward)
        loss, q = self.loss(batch, y)
        optimizer_step(self.optimizers["critic"], loss)
        soft_update(self.target, self.q, self.config.target_ema)
        self.updates += 1
        return {"dqn/reward": reward, "dqn/q": q, "dqn/squared_error": (q - y).square()}

    @torch.no_grad()
    def td_target(self, batch: Batch, reward: Tensor) -> Tensor:
        """y (B,): the online values choose, the target's say what the choice is worth."""
        best = self.q(batch.next_obs).argmax(-1, keepdim=True)
        return reward + batch.discount * self.target(batch.next_obs).gather(-1, best)[:, 0]

    def loss(self, batch: Batch, y: Tensor) -> tuple[Tensor, Tensor]:
        """Mean squared error, and the values (B,) of what was chosen."""
        chosen = (batch.action[:, None] == self.candidates).all(-1)  # (B, K)
        q = self.q(batch.obs).gather(-1, chosen.int().argmax(-1, keepdim=True))[:, 0]
        return F.mse_loss(q, y), q.detach()
