"""The skills by which a run is described: eleven each, or all of a space with fewer."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from comsd.skills import Box, OneHot, SkillSpace

SWEEP_SIZE = 11  # as in the paper

SWEEPS = {
    "constant": "box: c (1, ..., 1), c = 0 to 1, the paper's; sphere: a circle; one-hot: first 11",
    "flag": "box: the first coordinate swept, the others 0.5",
    "random": "random skills, the same for every run",
}


def skill_sweeps(space: SkillSpace) -> dict[str, Tensor]:
    """Skills (n, Z) by the name of their sweep."""
    result = {"constant": space.grid(SWEEP_SIZE)}
    if isinstance(space, Box):
        result["flag"] = space.flags(SWEEP_SIZE)
    n = min(SWEEP_SIZE, space.dim) if isinstance(space, OneHot) else SWEEP_SIZE
    result["random"] = space.sample_balanced(n, np.random.default_rng(0))
    return result
