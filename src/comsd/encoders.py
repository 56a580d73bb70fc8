"""Encoders: from observations to the features that everything learns from.

The agent owns one. Critic and actor only ever see its features (B, F); states are their own
features. Methods see features too, those of images through a bottleneck. Several losses may train
the encoder (`encoder_from`), with one backward pass for all: each leaves its gradient on the
features, which are leaves of the graph, and `EncodedBatch.step` carries the sum through it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from comsd.config import Settings, setting
from comsd.errors import InputError
from comsd.types import Batch, ObsSpec

EncoderFrom = Literal["critic", "method", "both", "none"]
OBSERVATIONS = ("obs", "next_obs", "one_step_obs")  # of a batch

DRQV2 = "DrQ-v2"
KERNEL = 3


@dataclass(frozen=True)
class PixelSettings(Settings):
    """What images look like, and what reads them."""

    size: int = setting(84, "rows and columns of an image of a robot", DRQV2, low=8, high=1024)
    render: Literal["full", "near", "fast"] = setting(
        "full", "quality of the images, docs/pixels.md; runs of one report have the same", "paper"
    )
    stack: int = setting(3, "frames of an observation", DRQV2, low=1, high=16)
    repeat: int = setting(2, "environment steps for which an action acts", DRQV2, low=1)
    pad: int = setting(4, "random shift of sampled images: at most so many pixels", DRQV2, low=0)
    channels: int = setting(32, "channels of every convolution", DRQV2, low=1)
    strides: str = setting("2,1,1,1", "of the convolutions, one after the other", DRQV2)
    features: int = setting(
        50,
        "width of the bottleneck before actor, critic and method",
        "DrQ-v2; CIC's code: 1024",
        low=1,
    )
    memory: float = setting(
        8.0, "GB of frames kept in memory; a larger replay stays in the run's files", "ours", low=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(stride.isdecimal() and int(stride) for stride in self.strides.split(",")):
            raise InputError(
                f"strides is {self.strides!r}; it must be numbers from 1 on such as 2,1,1,1"
            )


class Encoder(nn.Module):
    """Base class: `spec` describes the features."""

    spec: ObsSpec
    bottleneck: int | None = None  # width to which networks first reduce them; None: they do not


class Identity(Encoder):
    """For states."""

    def __init__(self, obs: ObsSpec) -> None:
        super().__init__()
        self.spec = obs

    def forward(self, obs: Tensor) -> Tensor:
        return obs


def plain_spec(dim: int) -> ObsSpec:
    """Features that networks take as they are."""
    return ObsSpec((dim,), "float32", np.zeros(dim, np.float32), np.ones(dim, np.float32))


class ConvEncoder(Encoder):
    """The convolutions of DrQ-v2 on stacked images (..., C, H, W) of uint8."""

    def __init__(self, obs: ObsSpec, settings: PixelSettings) -> None:
        super().__init__()
        strides = [int(stride) for stride in settings.strides.split(",")]
        sizes = [obs.shape[0], *[settings.channels] * len(strides)]
        layers: list[nn.Module] = []
        for (fan_in, fan_out), stride in zip(pairwise(sizes), strides, strict=True):
            layer = nn.Conv2d(fan_in, fan_out, KERNEL, stride)
            nn.init.orthogonal_(layer.weight, nn.init.calculate_gain("relu"))
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
            layers += [layer, nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)
        side = list(obs.shape[1:])
        for stride in strides:
            side = [(length - KERNEL) // stride + 1 for length in side]
            if min(side) < 1:
                raise InputError(
                    f"pixels.strides is {settings.strides}: images of {obs.shape[1]} x "
                    f"{obs.shape[2]} are too small for so many"
                )
        self.spec = plain_spec(settings.channels * side[0] * side[1])
        self.bottleneck = settings.features

    def forward(self, obs: Tensor) -> Tensor:
        """Features in the precision of the convolutions."""
        rows, device = obs.shape[:-3], obs.device.type
        autocast = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if autocast else torch.float32
        # Convolutions on CPUs are fastest with the channels innermost.
        x = obs.reshape(-1, *obs.shape[-3:]).contiguous(memory_format=torch.channels_last)
        x = x.to(dtype, copy=True)
        # In place, as memory costs more than arithmetic; in this order, as bfloat16 holds all of
        # -127.5 to 127.5 exactly: x / 255 - 0.5 is rounded once.
        x = self.layers(x.sub_(127.5).div_(255))
        # The order of features does not matter, and this one needs no copy.
        return x.permute(0, 2, 3, 1).reshape(*rows, self.spec.dim)


class EncodedBatch:
    """A batch with features in place of observations, as the method and as the critic see it."""

    def __init__(
        self,
        batch: Batch,
        encoder: Encoder,
        bottleneck: nn.Module,
        optimizer: torch.optim.Optimizer | None,
        trained_by: EncoderFrom,
        reads: Collection[str] = OBSERVATIONS,
        bf16: bool = False,
    ) -> None:
        """bottleneck, reads: through what the method sees features, and of which observations."""
        self.for_method = self.for_critic = batch
        self.optimizer = optimizer
        self.leaves: dict[str, Tensor] = {}
        if isinstance(encoder, Identity):
            return
        if "one_step_obs" in reads and batch.one_step_obs is batch.next_obs:
            reads = {*reads, "next_obs"}  # which stands for it
        learns = torch.is_grad_enabled()
        by_method = learns and trained_by in ("method", "both")
        by_critic = learns and trained_by in ("critic", "both")
        # The critic's loss needs no gradient at s', whose value is part of the target.
        trained = set(reads) if by_method else set()
        trained |= {"obs"} if by_critic else set()
        names = ["obs", "next_obs"]
        if "one_step_obs" in reads and batch.one_step_obs is not batch.next_obs:
            names.append("one_step_obs")
        self.features: dict[str, Tensor] = {}
        for name in names:
            x = getattr(batch, name)
            with (
                torch.set_grad_enabled(name in trained),
                torch.autocast(x.device.type, torch.bfloat16, enabled=bf16),
            ):
                self.features[name] = encoder(x)
        self.leaves = {
            name: x.detach().requires_grad_(x.requires_grad) for name, x in self.features.items()
        }
        frozen = {name: x.detach() for name, x in self.features.items()}
        of_method = self.leaves if by_method else frozen
        of_method = {name: bottleneck(x) if name in reads else x for name, x in of_method.items()}

        def with_features(columns: dict[str, Tensor]) -> Batch:
            return batch._replace(**{"one_step_obs": columns["next_obs"], **columns})

        self.for_method = with_features(of_method)
        self.for_critic = with_features(self.leaves if by_critic else frozen)
        if optimizer is not None and learns:
            optimizer.zero_grad()

    def step(self) -> None:
        """Train the encoder by what the losses left on the features; the bottleneck, too."""
        if self.optimizer is None or not self.leaves:
            return
        trained = [name for name, leaf in self.leaves.items() if leaf.grad is not None]
        if trained:
            torch.autograd.backward(
                [self.features[name] for name in trained],
                [self.leaves[name].grad for name in trained],
            )
        self.optimizer.step()
