"""Inputs in units that networks and distances can use."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from comsd.types import ObsInfo


class Standardise(nn.Module):
    """x -> (x - mean) / std with fixed statistics, kept with the network they belong to."""

    mean: Tensor
    std: Tensor
    scale: Tensor
    shift: Tensor

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        self.register_buffer("scale", None, persistent=False)
        self.register_buffer("shift", None, persistent=False)
        self.prepare()
        self.register_load_state_dict_post_hook(lambda module, _: module.prepare())

    def prepare(self) -> None:
        """One multiplication and one addition instead of three steps."""
        self.scale, self.shift = 1 / self.std, -self.mean / self.std
        self.nothing_to_do = bool((self.mean == 0).all() and (self.std == 1).all())

    def forward(self, x: Tensor) -> Tensor:
        return x if self.nothing_to_do else torch.addcmul(self.shift, x, self.scale)


class Units(nn.Module):
    """x -> (x - mean) / std by the statistics of the first rows observed, fixed from then on.

    For methods whose distances depend on the units of the states.
    """

    FLOOR = 1e-2  # least standard deviation, for coordinates that hardly ever change

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, obs: ObsInfo, rows: int) -> None:
        """rows: how many to observe; 0 keeps the statistics known beforehand."""
        super().__init__()
        self.rows = rows
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", obs.mean.clone())
        self.register_buffer("variance", obs.std.square())

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
