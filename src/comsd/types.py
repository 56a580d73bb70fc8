"""The records that pass between environment, method and agent."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.float32]
Mask = NDArray[np.bool_]
# From observations of all environments (N, ...) to actions (N, A).
PolicyFn = Callable[[NDArray[Any]], Array]

Metrics = dict[str, "Tensor"]
"""Figures by `group/name`, left on their device; the logger takes the mean."""


class ObsSpec(NamedTuple):
    """What observations look like, known before any is seen."""

    shape: tuple[int, ...]
    dtype: str  # of NumPy, such as float32, or uint8 for images
    mean: NDArray[Any]  # fixed statistics for networks that want normalised input
    std: NDArray[Any]
    frames: int = 1  # that are stacked along the first axis, oldest first, if these are images

    @property
    def dim(self) -> int:
        """Numbers in one observation."""
        return math.prod(self.shape)


class RewardOutput(NamedTuple):
    """What a method makes of a batch, for the agent to learn from."""

    reward: Tensor  # (B,)
    metrics: Metrics
    value_skill: Tensor | None = None  # (B, Z) relabelled skill; None: the skill that acted


class Batch(NamedTuple):
    """A flat batch of transitions."""

    obs: Tensor  # (B, ...)  s_t
    action: Tensor  # (B, A)  a_t
    next_obs: Tensor  # (B, ...)  s_{t+n}
    one_step_obs: Tensor  # (B, ...)  s_{t+1}; next_obs itself where n = 1
    skill: Tensor  # (B, Z)  the z that produced a_t
    reward: Tensor  # (B,)  of the task, discounted sum over the n steps; 0 without a task
    discount: Tensor  # (B,)  of the value of s_{t+n}; 0 where the episode terminated
