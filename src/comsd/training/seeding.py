"""The state of all random generators of a training run."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def random_state(rngs: dict[str, np.random.Generator], device: torch.device) -> dict[str, Any]:
    """Of NumPy's generators by name, and of torch's, which methods draw from."""
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
