"""Networks: multi-layer perceptrons, normalised inputs, running statistics, optimisers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

Init = Literal["orthogonal", "uniform"]


def linear(fan_in: int, fan_out: int, init: Init = "orthogonal") -> nn.Linear:
    """A linear layer; `uniform` is torch's default initialisation."""
    layer = nn.Linear(fan_in, fan_out)
    if init == "orthogonal":
        nn.init.orthogonal_(layer.weight)
        nn.init.zeros_(layer.bias)
    return layer


class Network(nn.Module):
    """Hidden layers and a linear output layer.

    With `bf16` the hidden layers run under autocast; input, output layer and output stay float32.
    A value of 100 would be rounded to 0.5 by bfloat16.
    """

    bf16 = False
    hidden: nn.Module
    out: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.run_hidden(x))

    def run_hidden(self, x: Tensor) -> Tensor:
        if not self.bf16:
            return self.hidden(x)
        with torch.autocast(x.device.type, torch.bfloat16):
            return self.hidden(x).to(x.dtype)


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


class SpectralLinear(nn.Linear):
    """A linear layer divided by its largest singular value (Miyato et al. 2018).

    The singular vectors come from a power iteration that goes on from step to step. It runs on a
    block of vectors: a single one stays behind when another direction grows to be the largest,
    and the Lipschitz constant then reaches 1.4 for a while instead of 1.06 (1024 wide).
    """

    BLOCK = 16
    WARM_UP = 20  # iterations before the first step

    block: Tensor  # (out, n)  spans the largest left singular vectors

    def __init__(self, fan_in: int, fan_out: int, init: Init) -> None:
        super().__init__(fan_in, fan_out)
        self.load_state_dict(linear(fan_in, fan_out, init).state_dict())
        self.register_buffer("block", torch.randn(fan_out, min(self.BLOCK, fan_in, fan_out)))
        for _ in range(self.WARM_UP):
            self.power_iteration()

    @torch.no_grad()
    def singular_vectors(self) -> tuple[Tensor, Tensor, Tensor]:
        """First left and right singular vector, and the block after one iteration."""
        right, _ = torch.linalg.qr(self.weight.T @ self.block)
        block = self.weight @ right
        largest = torch.linalg.eigh(block.T @ block).eigenvectors[:, -1]
        return F.normalize(block @ largest, dim=0), right @ largest, block

    def power_iteration(self) -> None:
        """Keep one iteration; once per optimiser step."""
        self.block.copy_(self.singular_vectors()[2])

    def forward(self, x: Tensor) -> Tensor:
        u, v, _ = self.singular_vectors()
        sigma = u @ self.weight @ v  # differentiable: gradients flow through W / sigma(W)
        return F.linear(x, self.weight / sigma, self.bias)


class SpectralMLP(Network):
    """An MLP with Lipschitz constant 1: |f(a) - f(b)| <= |a - b|."""

    def __init__(self, *sizes: int, init: Init = "uniform") -> None:
        super().__init__()
        layers = [SpectralLinear(*pair, init) for pair in pairwise(sizes)]
        self.hidden = nn.Sequential(*(m for layer in layers[:-1] for m in (layer, nn.ReLU())))
        self.out = layers[-1]

    def power_iteration(self) -> None:
        for layer in self.modules():
            if isinstance(layer, SpectralLinear):
                layer.power_iteration()


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


class WarmupNormalizer(nn.Module):
    """x -> (x - mean) / std by the statistics of the first rows observed, fixed from then on.

    For methods whose distances depend on the units of the states.
    """

    FLOOR = 1e-2  # smallest standard deviation, for coordinates that hardly ever change

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, mean: NDArray[Any], std: NDArray[Any], rows: int) -> None:
        """rows: how many to observe; 0 keeps the statistics known beforehand."""
        super().__init__()
        self.rows = rows
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float32).clone())
        self.register_buffer("variance", torch.as_tensor(std, dtype=torch.float32).square())

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Merge a batch (Chan et al. 1979), unless enough has been seen."""
        share = (self.count < self.rows) * len(x) / (self.count + len(x))
        variance, mean = torch.var_mean(x, 0, correction=0)
        delta = mean - self.mean
        self.variance += share * (variance - self.variance + (1 - share) * delta.square())
        self.mean += share * delta
        self.count += len(x)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.variance.sqrt().clamp_min(self.FLOOR)


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
    """Run the hidden layers of all networks inside a module in bfloat16."""
    for network in module.modules():
        if isinstance(network, Network):
            network.bf16 = True


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


def all_finite(tensors: Iterable[Tensor]) -> bool:
    return all(bool(torch.isfinite(t).all()) for t in tensors)
