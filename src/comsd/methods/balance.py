"""Automatic balance: exploration and diversity mixed by the flag, without a weight per robot.

    r = (1 - f) e + f d,   e, d: r_exp and r_div, each minus its moving mean, over its moving
                           standard deviation; f the flag of the skill

Flag 0 only explores, flag 1 only makes skills differ, and every balance lies in between, whatever
the scales of the two rewards are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from comsd.nn import RunningMoments

EMA_RATE = 0.01  # share of the newest batch in moving means


class MovingMoments(RunningMoments):
    """Exponential moving mean and variance of batches."""

    @torch.no_grad()
    def update(self, values: Tensor) -> None:
        self.count += 1
        share = self.count.reciprocal().clamp_min(EMA_RATE)  # at first the mean of all batches
        variance, mean = torch.var_mean(values.double(), correction=0)
        self.mean.lerp_(mean, share)
        self.variance.lerp_(variance, share)

    def standardise(self, values: Tensor) -> Tensor:
        return ((values - self.mean) / self.std.clamp_min(1e-8)).to(values.dtype)


class FlagBalance(nn.Module):
    """The reward of both terms, each (B,), for skills of these flags, (B,)."""

    def __init__(self) -> None:
        super().__init__()
        self.r_exp, self.r_div = MovingMoments(), MovingMoments()

    @torch.no_grad()
    def forward(self, r_exp: Tensor, r_div: Tensor, flag: Tensor) -> Tensor:
        if self.training:
            self.r_exp.update(r_exp)
            self.r_div.update(r_div)
        return torch.lerp(self.r_exp.standardise(r_exp), self.r_div.standardise(r_div), flag)
