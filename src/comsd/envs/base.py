"""The interface of environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from comsd.types import Array, Mask, ObsSpec


def action_rng(seed: int) -> np.random.Generator:
    """For noise in actions beside environments of the same seed, many of which draw from
    default_rng(seed) themselves: the two must not be the same numbers.
    """
    return np.random.default_rng([seed, 1])


class Step(NamedTuple):
    """Results of one action in each of `num_envs` environments. Read only: arrays may be shared."""

    obs: NDArray[Any]  # (N, ...)  the true next observation, also where the episode ended
    reward: NDArray[np.floating]  # (N,)  of the task; zeros without one
    terminated: Mask  # (N,)  in a terminal state: no future reward
    truncated: Mask  # (N,)  by the time limit: bootstrap from `obs`
    infos: Sequence[dict[str, Any]] = ()  # Gymnasium's, one per environment; empty for ours
    began: Mask | None = None  # (N,)  no transition: the action was ignored, an episode began

    @property
    def ended(self) -> Mask:
        return self.terminated | self.truncated


class Env(Protocol):
    """`num_envs` copies of an environment, stepped together, each with its own episodes.

    Episodes never restart by themselves: call `reset` with the mask of those that ended.
    """

    num_envs: int
    obs_spec: ObsSpec
    action_dim: int
    horizon: int  # time limit of an episode, in steps
    repeat: int  # simulation steps per `step`

    def reset(self, where: Mask | None = None) -> NDArray[Any]:
        """Start new episodes where the mask (N,) is True, by default everywhere.

        Returns the observations of all environments; the others are not affected. Environments
        that begin episodes only in the next step say so in its `Step.began`.
        """
        ...

    def step(self, action: Array) -> Step:
        """Actions (N, A) in [-1, 1]."""
        ...

    def positions(self) -> NDArray[np.floating] | None:
        """Where each body is now, (N, 2): x-y, or x-z of one that moves in that plane.

        For pictures of trajectories; None where it is unknown.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """The complete state, as arrays and JSON values: a restored copy continues bit for bit."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> NDArray[Any] | None:
        """Returns the observations of new episodes where the state could not be saved."""
        ...
