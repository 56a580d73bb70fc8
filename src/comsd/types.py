"""The records that pass between environment, method and agent."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # environments can be listed without torch
    from torch import Tensor

Metrics = dict[str, "Tensor"]
"""Figures by `group/name`, left on their device; whoever writes them down takes the mean."""


class ObsSpec(NamedTuple):
    """Shape and fixed statistics of one environment's observation."""

    shape: tuple[int, ...]
    dtype: str
    mean: NDArray[np.float32]  # for networks with standardised input
    std: NDArray[np.float32]

    @property
    def dim(self) -> int:
        return prod(self.shape)


class ObsInfo(NamedTuple):
    """What networks may know about observations before they have seen any."""

    dim: int
    mean: Tensor  # (O,)
    std: Tensor  # (O,)


class Lesson(NamedTuple):
    """What a method made of a batch, for the agent to learn from."""

    reward: Tensor  # (B,)
    metrics: Metrics
    credit: Tensor | None = None  # (B, Z)  the skill each row counts for; None: the one that acted


class Batch(NamedTuple):
    """A flat batch of transitions; how it was gathered is nobody's business downstream."""

    obs: Tensor  # (B, O)  s
    action: Tensor  # (B, A)  a
    next_obs: Tensor  # (B, O)  s', n steps later
    near: Tensor  # (B, O)  one step later; next_obs itself where n = 1
    skill: Tensor  # (B, Z)  the z that produced a
    reward: Tensor  # (B,)    of the task, summed over the n steps with discount; 0 without a task
    discount: Tensor  # (B,)    of what follows s'
