"""What the rest of the library asks of an environment."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


class Step(NamedTuple):
    """What `num_envs` environments answer to one action each."""

    obs: Array  # (N, O)
    reward: NDArray[np.floating]  # (N,)  the task's reward; zeros where there is no task
    last: bool  # the episodes end here, all together, by time limit


class Env(Protocol):
    """`num_envs` copies of an environment that run in step, for exactly `horizon` steps."""

    num_envs: int
    obs_dim: int
    action_dim: int
    horizon: int
    repeat: int  # steps of the simulation that one `step` takes
    obs_mean: Array  # fixed statistics for networks that want standardised input
    obs_std: Array

    def reset(self) -> Array:
        """Start all episodes; returns (N, O) observations."""
        ...

    def step(self, action: Array) -> Step:
        """Actions are in [-1, 1]."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything the future depends on, as arrays and JSON values."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
