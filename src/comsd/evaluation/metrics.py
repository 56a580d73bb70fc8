"""The skills by which a robot's run is described, and metrics of the states of their roll-outs.

AKD(skill)      mean distance of each state of a roll-out to its k nearest others: near 0 for a
                robot that lies still, about 10 for one that moves all the time
MS-coverage     mean distance of the mean states (MS) of skills to their nearest others
identification  share of roll-outs that the nearest centroid assigns to their skill
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from comsd.methods.entropy import knn_distances
from comsd.skills import Box, OneHot, SkillSpace

States = NDArray[np.float32]  # (skills, time, O)

SWEEP_SIZE = 11  # skills of each sweep, as in the paper, or all of a space with fewer
SWEEPS = {
    "constant": "box: c (1, ..., 1), c = 0 to 1, the paper's; sphere: a circle; one-hot: first 11",
    "flag": "box: the first coordinate swept, the others 0.5",
    "random": "random skills, the same for every run",
}
NEIGHBOURS = 16  # k of the AKD
MEAN_NEIGHBOURS = (3, 1, 5, 10)  # k' of the MS-coverage; 3 is the one that is quoted

SWEEP_MEANINGS = {
    f"akd_{statistic}_{name}": f"AKD, {statistic} over the sweep: {skills}"
    for name, skills in SWEEPS.items()
    for statistic in ("max", "range", "variance")
} | {
    f"ms_coverage{k}_{name}": f"distance of mean states to their {k} nearest, {name} sweep"
    for name in SWEEPS
    for k in MEAN_NEIGHBOURS
}


def skill_sweeps(space: SkillSpace) -> dict[str, Tensor]:
    """Skills (n, Z) by the name of their sweep."""
    result = {"constant": space.grid(SWEEP_SIZE)}
    if isinstance(space, Box):
        result["flag"] = space.flags(SWEEP_SIZE)
    n = min(SWEEP_SIZE, space.dim) if isinstance(space, OneHot) else SWEEP_SIZE
    return result | {"random": space.sample_balanced(n, np.random.default_rng(0))}


def akd(states: States, k: int = NEIGHBOURS) -> NDArray[np.float64]:
    """(skills,): mean distance to the k nearest of the same skill's states, self excluded."""
    rows = [torch.from_numpy(s).double() for s in states]
    return np.array([knn_distances(s, s, k + 1)[:, 1:].mean().item() for s in rows])


def ms_coverage(states: States, k: int = MEAN_NEIGHBOURS[0]) -> float:
    """Mean distance between each mean state and its k nearest others."""
    means = torch.from_numpy(states.mean(1, dtype=np.float64))
    return knn_distances(means, means, k + 1)[:, 1:].mean().item()


def sweep_metrics(name: str, states: States) -> dict[str, float]:
    activity = akd(states)
    return {
        f"akd_max_{name}": float(activity.max()),
        f"akd_range_{name}": float(np.ptp(activity)),
        f"akd_variance_{name}": float(activity.var()),
    } | {
        f"ms_coverage{k}_{name}": ms_coverage(states, k) for k in MEAN_NEIGHBOURS if k < len(states)
    }


def identification(features: NDArray[np.float64]) -> float:
    """Leave-one-out accuracy of the nearest centroid; features (skills, rollouts, F)."""
    skills, rollouts, _ = features.shape
    scaled = (features - features.mean((0, 1))) / (features.std((0, 1)) + 1e-8)
    centroids = scaled.mean(1)  # (skills, F)
    hits = 0
    for i in range(skills):
        for row in scaled[i]:
            others = centroids.copy()
            others[i] = (rollouts * centroids[i] - row) / (rollouts - 1)
            hits += int(np.linalg.norm(others - row, axis=1).argmin()) == i
    return hits / (skills * rollouts)
