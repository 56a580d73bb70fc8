"""Networks of bounded slope."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from comsd.nets.mlp import MLP, Init, Scratch


class Normalised(NamedTuple):
    """What is known of the layers of a `Lipschitz` network."""

    version: int  # of the parameter
    found: list[tuple[Tensor, Tensor, Tensor]]  # see `Lipschitz.iterate`
    sizes: list[Tensor]  # largest singular values


class Lipschitz(MLP):
    """An MLP of slope at most 1: |f(a) - f(b)| <= |a - b|.

    Spectral normalisation (Miyato et al. 2018): every weight is divided by its largest singular
    value, which one power iteration per step keeps up to date as the weight changes. It runs on a
    block of vectors: a single one stays behind when another direction grows to be the largest,
    and the slope then reaches 1.4 for a while instead of 1.06 (1024 wide, `uniform`; `orthogonal`
    starts with all singular values alike, and reaches 1.2 in any case).
    """

    BLOCK = 16
    FIRST = 20  # iterations before the first step

    left: Tensor  # of all layers: what spans their largest left singular vectors, as last settled

    def __init__(self, *sizes: int, init: Init = "uniform") -> None:
        super().__init__(*sizes, init=init)
        self.register_buffer("left", torch.randn(sum(out * n for out, n in self.blocks)))
        for _ in range(self.FIRST):
            self.settle()

    def __deepcopy__(self, memo: dict[int, Any]) -> Lipschitz:
        twin = super().__deepcopy__(memo)
        twin.register_buffer("left", self.left.clone())
        return twin  # pyright: ignore[reportReturnType]

    def running(self) -> Tensor:
        """The layers that run are copies, scaled by `normalise`."""
        self.known: Normalised | None = None
        return torch.empty_like(self.flat.detach())

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """The shape of each layer's part of `left`."""
        return [(out, min(self.BLOCK, out, below)) for out, below in self.shapes]

    @torch.no_grad()
    def iterate(self, flat: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Of every layer: the first singular vectors u and v, and the block they come from."""
        found = []
        lefts = self.left.split([out * n for out, n in self.blocks])
        for (weight, _), left, block in zip(self.views(flat)[0], lefts, self.blocks, strict=True):
            right, _ = torch.linalg.qr(weight.t() @ left.view(block))
            after = weight @ right
            largest = torch.linalg.eigh(after.t() @ after).eigenvectors[:, -1]
            found.append((F.normalize(after @ largest, dim=0), right @ largest, after))
        return found

    @torch.no_grad()
    def normalise(self) -> Normalised:
        """Divide the layers that run by their singular values, once for each change of weights."""
        version = self.flat._version
        if self.known is None or self.known.version != version:
            found, sizes = self.iterate(self.flat.detach()), []
            weights = self.views(self.flat.detach())[0]
            for (u, v, _), own, scaled in zip(found, weights, self.layers, strict=True):
                sizes.append(u @ own[0] @ v)
                torch.div(own[0], sizes[-1], out=scaled[0])
                scaled[1].copy_(own[1])
            self.known = Normalised(version, found, sizes)
        return self.known

    @torch.no_grad()
    def settle(self) -> None:
        """Keep the iteration; once per step, since a forward pass changes nothing."""
        compiled = torch.compiler.is_compiling()
        found = self.iterate(self.flat.detach()) if compiled else self.normalise().found
        self.left.copy_(torch.cat([block.flatten() for *_, block in found]))
        self.known = None

    def run(self, x: Tensor) -> tuple[Tensor, Scratch]:
        known = self.normalise()
        y, scratch = super().run(x)
        scratch.route = known
        return y, scratch

    def run_back(self, grad: Tensor, scratch: Scratch, weights: bool = True) -> Tensor:
        """As `MLP.run_back`; a gradient G in W / s becomes (G - <G, W / s> u v') / s in W."""
        grad = super().run_back(grad, scratch, weights)
        if weights:
            known: Normalised = scratch.route
            parts = zip(known.found, known.sizes, scratch.layer_grads, self.layers, strict=True)
            for (u, v, _), size, (own, _), (scaled, _) in parts:
                along = torch.dot(own.flatten(), scaled.flatten())
                own.addr_(u, v * -along).div_(size)
        return grad

    def plain(self, x: Tensor, flat: Tensor) -> Tensor:
        layers, _ = self.views(flat)
        for i, ((weight, bias), (u, v, _)) in enumerate(
            zip(layers, self.iterate(flat.detach()), strict=True)
        ):
            x = F.linear(x, weight / (u @ weight @ v), bias)
            if i < len(layers) - 1:
                x = x.relu()
        return x
