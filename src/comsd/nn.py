"""Networks: multi-layer perceptrons, normalised inputs, running statistics, optimisers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Init = Literal["orthogonal", "uniform"]


def linear(fan_in: int, fan_out: int, init: Init = "orthogonal") -> nn.Linear:
    """A linear layer; `uniform` is torch's default initialisation."""
    layer = nn.Linear(fan_in, fan_out)
    if init == "orthogonal":
        nn.init.orthogonal_(layer.weight)
        nn.init.zeros_(layer.bias)
    return layer


def join(features: Tensor, skill: Tensor) -> Tensor:
    """Both side by side, in the precision of the features; these are many if they are images'."""
    if skill.shape[-1] == 0:
        return features  # a copy less
    if skill.dtype != features.dtype:
        skill = skill.to(features.dtype)
    return torch.cat([features, skill], -1)


class HasPrecision(nn.Module):
    """A module that runs some of its products in bfloat16 if `bf16` is set."""

    bf16 = False


class Network(HasPrecision):
    """Hidden layers and a linear output layer.

    With `bf16` the hidden layers run under autocast; output layer and output stay float32.
    bfloat16 would round values near 100 to multiples of 0.5.
    """

    hidden: nn.Module
    out: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.run_hidden(x))

    def run_hidden(self, x: Tensor) -> Tensor:
        if not self.bf16:
            return self.hidden(x)
        with torch.autocast(x.device.type, torch.bfloat16):
            h = self.hidden(x)
        return h.float()


class MLP(Network):
    """Linear layers with ReLU between; `norm`: LayerNorm and tanh after the first (DrQ-v2)."""

    def __init__(self, *sizes: int, init: Init = "orthogonal", norm: bool = False) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, (fan_in, fan_out) in enumerate(pairwise(sizes[:-1])):
            layers.append(linear(fan_in, fan_out, init))
            layers += [nn.LayerNorm(fan_out), nn.Tanh()] if norm and i == 0 else [nn.ReLU()]
        self.hidden = nn.Sequential(*layers)
        self.out = linear(sizes[-2], sizes[-1], init)


class Bottleneck(Network):
    """One layer with LayerNorm and tanh (DrQ-v2): what networks first reduce their input to."""

    def __init__(self, fan_in: int, width: int) -> None:
        super().__init__()
        self.hidden = nn.Sequential(linear(fan_in, width), nn.LayerNorm(width), nn.Tanh())
        self.out = nn.Identity()


class Normalizer(nn.Module):
    """x -> (x - mean) / std with fixed statistics."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: NDArray[Any] | Tensor, std: NDArray[Any] | Tensor) -> None:
        super().__init__()
        for name, value in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.as_tensor(value, dtype=torch.float32).clone())

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


class RunningMoments(nn.Module):
    """Mean and variance of everything seen so far, in float64, saved with the module."""

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("count", "mean", "variance"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def update(self, values: Tensor) -> None:
        """Merge a batch (Chan et al. 1979); the population's variance."""
        variance, mean = torch.var_mean(values, correction=0)
        share = values.numel() / (self.count + values.numel())
        delta = mean.double() - self.mean
        self.variance += share * (variance - self.variance + (1 - share) * delta.square())
        self.mean += share * delta
        self.count += values.numel()

    @property
    def std(self) -> Tensor:
        return self.variance.sqrt()


def use_bf16(module: nn.Module) -> None:
    """Run hidden layers and convolutions inside a module in bfloat16 where it learns."""
    for part in module.modules():
        if isinstance(part, HasPrecision):
            part.bf16 = True


@torch.no_grad()
def soft_update(target: nn.Module, source: nn.Module, rate: float) -> None:
    """target <- (1 - rate) target + rate source."""
    for average, parameter in zip(target.parameters(), source.parameters(), strict=True):
        average.lerp_(parameter, rate)


def adam(
    params: Iterable[nn.Parameter] | list[dict[str, Any]], lr: float, eps: float = 1e-8
) -> torch.optim.Adam:
    return torch.optim.Adam(params, lr=lr, eps=eps, fused=True)


def optimizer_step(
    optimizer: torch.optim.Optimizer, loss: Tensor, inputs: list[nn.Parameter] | None = None
) -> None:
    """One step down a loss; `inputs`: compute only their gradients."""
    optimizer.zero_grad()
    loss.backward(inputs=inputs)
    optimizer.step()


def optimizer_state(optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    """Moments by parameter index as text: checkpoints have no integer keys."""
    state = optimizer.state_dict()["state"] if optimizer else {}
    return {str(index): moments for index, moments in state.items()}


def load_optimizer(optimizer: torch.optim.Optimizer | None, state: Mapping[str, Any]) -> None:
    """The inverse; learning rates are those of the config."""
    if optimizer:
        groups = optimizer.state_dict()["param_groups"]
        moments = {int(index): value for index, value in state.items()}
        optimizer.load_state_dict({"state": moments, "param_groups": groups})
