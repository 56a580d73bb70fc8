"""Moving along the skill in a latent space: what METRA, LSD and CSD share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from comsd.types import Batch


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


class LatentSteps(NamedTuple):
    """How far a transition leads in the space of phi, (B, d) each."""

    one_step: Tensor  # phi(s_{t+1}) - phi(s_t), with gradient: what the representation learns from
    n_step: Tensor  # phi(s_{t+n}) - phi(s_t): what the agent is rewarded for


def latent_steps(phi: Callable[[Tensor], Tensor], batch: Batch) -> LatentSteps:
    """One pass for adjacent states, and another, without gradient, for s_{t+n} if n > 1."""
    before, after = phi(torch.cat([batch.obs, batch.one_step_obs])).chunk(2)
    one_step = after - before
    if batch.next_obs is batch.one_step_obs:
        return LatentSteps(one_step, one_step)
    with torch.no_grad():
        return LatentSteps(one_step, phi(batch.next_obs) - before)


def directional_reward(step: Tensor, direction: Tensor) -> Tensor:
    """(phi(s') - phi(s)) . z, (B,): how far a transition leads along the skill's direction.

    It telescopes: over n steps, as over an episode, it is the sum of the single steps'.
    """
    return (step * direction).sum(-1)


def cosines(direction: Tensor, step: Tensor) -> Tensor:
    """(B, B): how well the direction of row i fits the latent step of row j."""
    return F.normalize(direction, dim=-1) @ F.normalize(step, dim=-1).T


class DualVariable(nn.Module):
    """The multiplier lam of a constraint gap >= 0, by its logarithm so that it stays positive.

    lam falls while the constraint holds and rises while it is broken. `slack` bounds the gap: rows
    that satisfy it by far do not move the representation, and rows that break it weigh more in the
    mean.
    """

    def __init__(self, start: float, slack: float) -> None:
        super().__init__()
        self.slack = slack
        self.log = nn.Parameter(torch.tensor(math.log(start)))

    @property
    def value(self) -> Tensor:
        return self.log.detach().exp()

    def forward(self, gap: Tensor) -> Tensor:
        """A scalar to add to a loss, gap (B,): one gradient for the gap, another for lam.

        d / d gap = -lam,   d / d log lam = gap,   of the mean of min(slack, gap)
        """
        bounded = gap.clamp_max(self.slack).mean()
        return self.log * bounded.detach() - self.value * bounded
