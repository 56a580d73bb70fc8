"""What DDPG and SAC share: actor, twin critic, target, their optimisers, and the critic's loss."""

from __future__ import annotations

import copy
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from comsd.agents.base import OffPolicyAgent, OffPolicyConfig
from comsd.agents.critics import CRITICS
from comsd.config import setting
from comsd.encoders import Encoder, Identity
from comsd.nn import MLP, adam
from comsd.skills import SkillSpace
from comsd.types import Batch, ObsSpec

PAPER = "paper, hyper-parameter table"


@dataclass(frozen=True)
class ActorCriticConfig(OffPolicyConfig):
    lr: float = setting(1e-4, "learning rate of actor and critic", PAPER, above=0)
    target_ema: float = setting(
        0.01, "share of the critic in its target, per update", PAPER, low=0, high=1
    )


class ActorCritic(OffPolicyAgent):
    """An actor [s, z], a twin critic [s, z, a] of any form, and its average, the target."""

    outputs: ClassVar[int] = 1  # of the actor, per dimension of the action

    def __init__(
        self,
        config: ActorCriticConfig,
        space: SkillSpace,
        obs: ObsSpec,
        actions: int,
        critic: str = "plain",  # its form
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__(config, encoder or Identity(obs))
        self.space, self.obs = space, obs
        features, hidden = self.encoder.spec.dim, config.hidden
        narrow = self.encoder.bottleneck
        widths = (narrow, hidden, hidden) if narrow else (hidden, hidden)
        self.actor = MLP(features + space.dim, *widths, self.outputs * actions, norm=True)
        self.critic = CRITICS[critic](features, space.dim, actions, hidden, narrow)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.optimizers: dict[str, torch.optim.Optimizer] = {
            "actor": adam(self.actor.parameters(), config.lr),
            "critic": adam(self.critic.parameters(), config.lr),
        }
        if encoded := self.encoder_parameters():
            self.optimizers["encoder"] = adam(encoded, config.lr)

    @abstractmethod
    def td_target(self, batch: Batch, reward: Tensor, skill: Tensor, noise: Tensor) -> Tensor:
        """y (B,) for skills whose values learn; the next action is that of the skill that acted."""

    def critic_loss(self, batch: Batch, skill: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Squared errors summed over the heads, and the values (B, 2)."""
        q = self.critic(batch.obs, skill, batch.action)
        return 2 * F.mse_loss(q, y[:, None].expand_as(q)), q.detach()

    @abstractmethod
    def actor_loss(self, obs: Tensor, skill: Tensor, noise: Tensor) -> Any:
        """The loss, and whatever else the agent needs of the same pass."""

    def compile_losses(self) -> None:
        """Replace the losses by the same functions under torch.compile."""
        self.td_target = torch.compile(self.td_target)
        self.critic_loss = torch.compile(self.critic_loss)
        self.actor_loss = torch.compile(self.actor_loss)

    def init_from(self, other: OffPolicyAgent, critic: str) -> None:
        """Start from another agent: encoder, actor and of its critic `trunk`, `none` or `full`."""
        assert isinstance(other, type(self))
        self.encoder.load_state_dict(other.encoder.state_dict())
        self.actor.load_state_dict(other.actor.state_dict())
        if critic == "full":
            self.critic.load_state_dict(other.critic.state_dict())
        elif critic == "trunk":
            self.critic.trunk.load_state_dict(other.critic.trunk.state_dict())
        self.target.load_state_dict(self.critic.state_dict())
