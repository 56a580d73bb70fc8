"""What all agents share: the policy as a module, and how it acts in an environment."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from comsd.config import Settings, setting
from comsd.encoders import OBSERVATIONS, EncodedBatch, Encoder, EncoderFrom, plain_spec
from comsd.errors import InputError
from comsd.nn import Bottleneck, HasPrecision, load_optimizer, optimizer_state
from comsd.types import Array, Batch, Metrics, ObsSpec, PolicyFn

Rows = TypeVar("Rows", Tensor, NDArray[Any])

ACTION_LIMIT = 1 - 1e-6  # sampled actions stay this far inside [-1, 1]


@dataclass(frozen=True)
class OffPolicyConfig(Settings):
    """Settings of every agent that learns from replayed transitions."""

    hidden: int = setting(
        1024,
        "width of the hidden layers",
        "URLB's code, which the paper follows",
        low=1,
        high=65_536,
    )
    discount: float = setting(0.99, "gamma", "paper, hyper-parameter table", low=0, high=1)
    encoder_from: EncoderFrom = setting(
        "both", "the losses that train an encoder; states have none to train", "ours"
    )
    compile: bool = setting(False, "torch.compile the losses; needs a C++ compiler", "this library")


class Policy(nn.Module):
    """A skill-conditioned policy for inference: `policy(obs, skill) -> action` in [-1, 1].

    Takes arrays or tensors, one row or many; a single skill serves any number of observations.
    """

    def __init__(self, obs: ObsSpec, skill_dim: int) -> None:
        super().__init__()
        self.obs_shape, self.skill_dim = tuple(obs.shape), skill_dim

    @abstractmethod
    def mean_action(self, obs: Tensor, skill: Tensor) -> Tensor:
        """For rows of both, (..., A)."""

    @abstractmethod
    def sample(self, obs: Tensor, skill: Tensor, rng: np.random.Generator) -> Array:
        """An action with exploration, (N, A); randomness from NumPy, which is quicker for few."""

    def forward(self, obs: Rows, skill: Rows) -> Rows:
        if isinstance(obs, np.ndarray):
            with torch.no_grad():
                return self(torch.as_tensor(obs, device=self.device), skill).cpu().numpy()
        assert isinstance(obs, Tensor)
        skill = torch.as_tensor(skill, device=obs.device)
        rows = obs.shape[: obs.dim() - len(self.obs_shape)]
        if obs.shape[len(rows) :] != self.obs_shape:
            raise InputError(
                f"obs has shape {tuple(obs.shape)}; it must end in {self.obs_shape}, "
                "one row or many"
            )
        fits = skill.shape[-1:] == (self.skill_dim,) and skill.shape[:-1] in (rows, ())
        if not fits:
            raise InputError(
                f"skill has shape {tuple(skill.shape)}; it must be ({self.skill_dim},) or a row of "
                f"{self.skill_dim} numbers for each of the {tuple(rows)} observations"
            )
        dtype = next(self.parameters()).dtype
        obs = obs.to(dtype) if obs.is_floating_point() else obs  # images stay integers
        return self.mean_action(obs, skill.to(dtype).expand(*rows, self.skill_dim))

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device


class OffPolicyAgent(HasPrecision):
    """What off-policy training asks of an agent."""

    optimizers: dict[str, torch.optim.Optimizer]  # `encoder` among them if it is trained

    def __init__(self, config: OffPolicyConfig, encoder: Encoder) -> None:
        super().__init__()
        self.config, self.encoder = config, encoder
        narrow, features = encoder.bottleneck, encoder.spec.dim
        # Of images, methods see what this makes of the features; their loss trains it.
        self.method_bottleneck = Bottleneck(features, narrow) if narrow else nn.Identity()

    @property
    def method_spec(self) -> ObsSpec:
        """What a method sees in place of observations."""
        narrow = self.encoder.bottleneck
        return plain_spec(narrow) if narrow else self.encoder.spec

    def encoder_parameters(self) -> list[nn.Parameter]:
        """What `optimizers["encoder"]` is to train; nothing for states."""
        frozen = self.config.encoder_from == "none"
        convolutions = [] if frozen else list(self.encoder.parameters())
        return [*convolutions, *self.method_bottleneck.parameters()]

    @property
    @abstractmethod
    def policy(self) -> Policy:
        """For acting: shares the weights of the encoder and the actor."""

    @abstractmethod
    def update(
        self,
        batch: Batch,
        reward: Tensor,
        generator: torch.Generator,
        value_skill: Tensor | None = None,
    ) -> Metrics:
        """One step of all that it trains but the encoder, for rewards (B,).

        value_skill: the skills (B, Z) whose values learn, if not those that acted.
        """

    @abstractmethod
    def init_from(self, other: OffPolicyAgent, critic: str) -> None:
        """Start from another agent: encoder, actor and of its critic `trunk`, `none` or `full`."""

    @abstractmethod
    def compile_losses(self) -> None:
        """Replace the losses by the same functions under torch.compile."""

    def encode(self, batch: Batch, reads: Collection[str] = OBSERVATIONS) -> EncodedBatch:
        """Features in place of observations; reads: of which the method needs them."""
        optimizer, trained_by = self.optimizers.get("encoder"), self.config.encoder_from
        parts = self.encoder, self.method_bottleneck, optimizer
        return EncodedBatch(batch, *parts, trained_by, reads, self.bf16)

    def set_step(self, steps: int) -> None:
        """Adjust what depends on the environment steps done so far."""

    def optimizer_state(self) -> dict[str, Any]:
        return {name: optimizer_state(optimizer) for name, optimizer in self.optimizers.items()}

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        for name, optimizer in self.optimizers.items():
            load_optimizer(optimizer, state[name])


def make_policy_fn(policy: Policy, skill: Tensor, rng: np.random.Generator | None) -> PolicyFn:
    """Act for skills (N, Z) that stay; with a generator actions are sampled, else the mean."""
    device = policy.device
    skill = skill.to(device, torch.float32)

    @torch.no_grad()
    def policy_fn(obs: NDArray[Any]) -> Array:
        rows = torch.from_numpy(obs).to(device)
        if rng is None:
            return policy.mean_action(rows, skill).cpu().numpy()
        return policy.sample(rows, skill, rng)

    return policy_fn
