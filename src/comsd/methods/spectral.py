"""Networks with Lipschitz constant 1, by spectral normalisation (Miyato et al. 2018)."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from comsd.nn import Init, Network, linear


class SingularVectors(NamedTuple):
    """Of a weight, (out, in), by one power iteration."""

    left: Tensor  # (out,)  the first
    right: Tensor  # (in,)  the first
    block: Tensor  # (out, n)  spans the largest left ones: where the next iteration starts


class SpectralLinear(nn.Linear):
    """A linear layer divided by its largest singular value (Miyato et al. 2018).

    The singular vectors come from a power iteration that goes on from step to step. It runs on a
    block of vectors: a single one stays behind when another direction grows to be the largest,
    and the Lipschitz constant then reaches 1.4 for a while instead of 1.06 (1024 wide).
    """

    BLOCK = 16
    WARM_UP = 20  # iterations before the first step

    block: Tensor

    def __init__(self, fan_in: int, fan_out: int, init: Init) -> None:
        super().__init__(fan_in, fan_out)
        self.load_state_dict(linear(fan_in, fan_out, init).state_dict())
        self.register_buffer("block", torch.randn(fan_out, min(self.BLOCK, fan_in, fan_out)))
        for _ in range(self.WARM_UP):
            self.block.copy_(self.singular_vectors().block)

    @torch.no_grad()
    def singular_vectors(self) -> SingularVectors:
        right, _ = torch.linalg.qr(self.weight.T @ self.block)
        block = self.weight @ right
        largest = torch.linalg.eigh(block.T @ block).eigenvectors[:, -1]
        return SingularVectors(F.normalize(block @ largest, dim=0), right @ largest, block)

    def forward(self, input: Tensor, vectors: SingularVectors | None = None) -> Tensor:
        """vectors: those of the weight as it is, for passes that share them."""
        left, right, _ = vectors or self.singular_vectors()
        with torch.autocast(input.device.type, enabled=False):  # in float32, also under bf16
            sigma = left @ self.weight @ right  # differentiable: gradients flow through it, too
        return F.linear(input, self.weight / sigma, self.bias)


class SpectralMLP(Network):
    """An MLP with Lipschitz constant 1: |f(a) - f(b)| <= |a - b|."""

    def __init__(self, *sizes: int, init: Init = "uniform") -> None:
        super().__init__()
        layers = [SpectralLinear(*pair, init) for pair in pairwise(sizes)]
        self.hidden = nn.Sequential(*(m for layer in layers[:-1] for m in (layer, nn.ReLU())))
        self.out = layers[-1]

    @property
    def layers(self) -> list[SpectralLinear]:
        return [layer for layer in self.modules() if isinstance(layer, SpectralLinear)]

    def singular_vectors(self) -> list[SingularVectors]:
        return [layer.singular_vectors() for layer in self.layers]

    def forward(self, x: Tensor, vectors: list[SingularVectors] | None = None) -> Tensor:
        """vectors: those of the weights as they are, for passes that share them."""
        *hidden, last = zip(self.layers, vectors or self.singular_vectors(), strict=True)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bf16):
            for layer, own in hidden:
                x = F.relu(layer(x, own))
        layer, own = last
        return layer(x.float() if self.bf16 else x, own)

    def power_iteration(self, vectors: list[SingularVectors]) -> None:
        """Keep one iteration; once per optimiser step."""
        for layer, own in zip(self.layers, vectors, strict=True):
            layer.block.copy_(own.block)
