"""Candidate skills for a controller that chooses among a few: as different as can be found."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from comsd.envs.base import Env
from comsd.envs.pixels import summarise
from comsd.errors import InputError
from comsd.skills import SkillSpace
from comsd.training.rollout import rollout
from comsd.types import PolicyFn

POOL = 128  # skills that are tried, one environment each
STEPS = 200  # of each


def farthest_points(points: NDArray[np.floating], k: int) -> list[int]:
    """Indices of k rows: the most central one, then always the one farthest from those before."""
    centre = np.linalg.norm(points - points.mean(0), axis=1)
    chosen = [int(centre.argmin())]
    distance = np.linalg.norm(points - points[chosen[0]], axis=1)
    while len(chosen) < k:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, np.linalg.norm(points - points[chosen[-1]], axis=1))
    return chosen


def behaviour(env: Env, policy_fn: PolicyFn) -> NDArray[np.float64]:
    """Mean and standard deviation of the states of a roll-out of each skill, standardised, (N, F).

    Rewards play no part.
    """
    seen = [summarise(step.obs, env.obs_spec) for step in rollout(env, policy_fn, STEPS)]
    states = np.stack(seen, 1, dtype=np.float64)
    features = np.concatenate([states.mean(1), states.std(1)], 1)
    return (features - features.mean(0)) / (features.std(0) + 1e-6)


def draw_pool(space: SkillSpace, k: int, rng: np.random.Generator) -> Tensor:
    """Different skills to choose k from: draws of the prior, or all of a small finite space."""
    pool = space.sample_balanced(max(POOL, k), rng).unique(dim=0)
    if len(pool) < k:
        raise InputError(f"agent.candidates is {k}; it must be at most {len(pool)}, all skills")
    return pool[torch.from_numpy(rng.permutation(len(pool)))]


def choose_candidates(env: Env, policy_fn: PolicyFn, pool: Tensor, k: int) -> Tensor:
    """k skills of the pool whose roll-outs differ most, (k, Z); each acts in one environment."""
    if k == len(pool):
        return pool
    return pool[farthest_points(behaviour(env, policy_fn), k)]
