"""What trainers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from comsd.envs.base import Array


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
