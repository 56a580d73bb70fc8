"""Encoders: from observations to the features that everything learns from.

The agent owns one. Methods, critic and actor only ever see its features (B, F); states are their
own features. Several losses may train it (`encoder_from`), with one backward pass for all: each
leaves its gradient on the features, which are leaves of the graph, and `EncodedBatch.step` carries
the sum through the encoder.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from comsd.types import Batch, ObsSpec

EncoderFrom = Literal["critic", "method", "both", "none"]


class Encoder(nn.Module):
    """Base class: `spec` describes the features."""

    spec: ObsSpec


class Identity(Encoder):
    """For states."""

    def __init__(self, obs: ObsSpec) -> None:
        super().__init__()
        self.spec = obs

    def forward(self, obs: Tensor) -> Tensor:
        return obs


class EncodedBatch:
    """A batch with features in place of observations, as the method and as the critic see it."""

    def __init__(
        self,
        batch: Batch,
        encoder: Encoder,
        optimizer: torch.optim.Optimizer | None,
        trained_by: EncoderFrom,
    ) -> None:
        self.for_method = self.for_critic = batch
        self.optimizer = optimizer
        if isinstance(encoder, Identity):
            return
        by_method, by_critic = trained_by in ("method", "both"), trained_by in ("critic", "both")
        with torch.set_grad_enabled(by_method or by_critic):
            obs = encoder(batch.obs)
        # The critic's loss needs no gradient at s', whose value is part of the target.
        with torch.set_grad_enabled(by_method):
            self.features = {"obs": obs, "next_obs": encoder(batch.next_obs)}
            if batch.one_step_obs is not batch.next_obs:
                self.features["one_step_obs"] = encoder(batch.one_step_obs)
        self.leaves = {
            name: x.detach().requires_grad_(x.requires_grad) for name, x in self.features.items()
        }
        frozen = {name: x.detach() for name, x in self.features.items()}

        def with_features(columns: dict[str, Tensor]) -> Batch:
            return batch._replace(**{"one_step_obs": columns["next_obs"], **columns})

        self.for_method = with_features(self.leaves if by_method else frozen)
        self.for_critic = with_features(self.leaves if by_critic else frozen)

    def step(self) -> None:
        """Train the encoder by what the losses left on the features."""
        if self.optimizer is None:
            return
        trained = [name for name, leaf in self.leaves.items() if leaf.grad is not None]
        if not trained:
            return
        self.optimizer.zero_grad()
        torch.autograd.backward(
            [self.features[name] for name in trained], [self.leaves[name].grad for name in trained]
        )
        self.optimizer.step()
