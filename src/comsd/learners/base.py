"""What the loop asks of a learner, whichever way it gathers experience."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from comsd.envs.base import Array
from comsd.methods.base import Method
from comsd.types import Metrics


def random_state(rngs: dict[str, np.random.Generator], device: torch.device) -> dict[str, Any]:
    """The state of all generators that a learner and its method draw from."""
    return {
        "rng": {name: rng.bit_generator.state for name, rng in rngs.items()},
        "torch_rng": torch.get_rng_state(),
        "cuda_rng": [torch.cuda.get_rng_state(device)] if device.type == "cuda" else [],
    }


def restore_random(
    state: dict[str, Any], rngs: dict[str, np.random.Generator], device: torch.device
) -> None:
    for name, rng in rngs.items():
        rng.bit_generator.state = state["rng"][name]
    torch.set_rng_state(state["torch_rng"])
    if device.type == "cuda" and state["cuda_rng"]:
        torch.cuda.set_rng_state(state["cuda_rng"][0], device)


class Policy(Protocol):
    """Acts for a skill; with a generator it samples, without one it takes the mean."""

    def act(
        self, obs: Tensor | Array, skill: Tensor, rng: np.random.Generator | None = None
    ) -> Tensor: ...

    def player(self, skill: Tensor, rng: np.random.Generator | None) -> Callable[[Array], Array]:
        """The same for one skill per environment that stays: from observations to actions."""
        ...


class Learner(Protocol):
    """Alternates between gathering experience and learning from it."""

    steps: int  # environment steps taken so far

    @property
    def agent(self) -> Policy: ...

    @property
    def method(self) -> Method: ...

    @property
    def settled(self) -> Tensor | None:
        """The one skill, (Z,), that the run has settled on, if it has."""
        ...

    def cycle(self) -> Metrics:
        """Gather and learn once; may raise RunError if a number is not finite.

        Nothing is returned before learning begins.
        """
        ...

    def health(self) -> Metrics:
        """More figures for the log, apart from training."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything the future depends on, in branches that can be read alone."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
