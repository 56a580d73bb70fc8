"""Metrics of roll-outs (skills, starts, time): how active skills are, how far they reach, whether
they differ.

AKD(roll-out)     mean distance of each of its states to its k nearest others: near 0 for a robot
                  that lies still, about 10 for one that moves all the time
AKD(skill)        its mean over starts
MS-coverage       mean distance of the mean states (MS) of skills to their nearest others
A(f), rho         activity along the flag: mean AKD of skills with flag f; its rank correlation
identification    share of roll-outs that the nearest centroid assigns to their skill
travel            distance from the start of a roll-out to its end
state coverage    the AKD of states drawn from the roll-outs of all skills together (k-NN)
x-y coverage      squares of the plane that the roll-outs of all skills together visit (binned)

Intervals are 95 % percentile bootstraps over the skills, the starts or both, whichever were drawn.
There is none from fewer than four, nor where all values are alike: it would have no width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

from comsd.evaluation.rollouts import Floats, Rollouts
from comsd.methods.entropy import knn_distances
from comsd.skill_sets import FLAGS

Values = dict[str, float]  # by the name of the metric
Interval = tuple[float, float]

NEIGHBOURS = 16  # k of the AKD
MEAN_NEIGHBOURS = (3, 1, 5, 10)  # k' of the MS-coverage; 3 is the one that is quoted
POOLED = 2000  # states of all skills together
RESAMPLES = 1000
FEWEST = 4  # values behind an interval: one from two starts may miss its own estimate


class Measured(NamedTuple):
    """Metrics, and the intervals of those that have one."""

    values: Values
    intervals: dict[str, Interval]

    def __or__(self, other: Measured) -> Measured:  # type: ignore[override]
        return Measured(self.values | other.values, self.intervals | other.intervals)


def percentiles(drawn: Floats) -> Interval:
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def draws(n: int, seed: int = 0) -> NDArray[np.int64]:
    """(resamples, n): which of n to take in each."""
    return np.random.default_rng(seed).integers(n, size=(RESAMPLES, n))


def mean_with_interval(name: str, values: Floats) -> Measured:
    """The mean of independent values (n,)."""
    measured = Measured({name: float(values.mean())}, {})
    if len(values) >= FEWEST and np.ptp(values) > 0:
        measured.intervals[name] = percentiles(values[draws(len(values))].mean(1))
    return measured


# --- activity -------------------------------------------------------------------------------------


def akd(states: Floats, k: int = NEIGHBOURS) -> float:
    """Of states (time, O): mean distance to the k nearest others; of fewer, to all of them."""
    k = min(k, len(states) - 1)
    if k < 1:
        return 0.0
    rows = torch.from_numpy(states).double()
    return knn_distances(rows, rows, k + 1)[:, 1:].mean().item()


def activity(rollouts: Rollouts, k: int = NEIGHBOURS) -> Floats:
    """(skills, starts): the AKD of every roll-out."""
    rows = zip(rollouts.obs, rollouts.length, strict=True)
    return np.array([[akd(o[:n], k) for o, n in zip(*row, strict=True)] for row in rows])


def mean_states(rollouts: Rollouts) -> Floats:
    """(skills, O): over the states of each skill, every start with the same weight."""
    return rollouts.mean(rollouts.obs).mean(1)


def state_components(means: Floats, n: int = 2) -> tuple[Floats, list[float]]:
    """Mean states (skills, starts, O) along the n directions in which those of skills differ most.

    (skills, starts, n), and the share of the skills' variance in each.
    """
    by_skill = means.astype(np.float64).mean(1)
    _, sizes, directions = np.linalg.svd(by_skill - by_skill.mean(0), full_matrices=False)
    shares = sizes**2 / max(float((sizes**2).sum()), 1e-12)
    return (means - by_skill.mean(0)) @ directions[:n].T, shares[:n].tolist()


def ms_coverage(means: Floats, k: int = MEAN_NEIGHBOURS[0]) -> float:
    """Mean distance between each mean state and its k nearest others."""
    rows = torch.from_numpy(means)
    return knn_distances(rows, rows, k + 1)[:, 1:].mean().item()


def sweep_metrics(name: str, active: Floats, means: Floats) -> Values:
    """Of the AKDs (skills, starts) and the mean states (skills, O) of one sweep."""
    skill = active.mean(1)
    values = {
        f"akd_max_{name}": float(skill.max()),
        f"akd_range_{name}": float(np.ptp(skill)),
        f"akd_variance_{name}": float(skill.var()),
        f"akd_mean_{name}": float(skill.mean()),
    }
    if active.shape[1] > 1:
        values[f"akd_sd_{name}"] = float(active.std(1, ddof=1).mean())
    shown = [k for k in MEAN_NEIGHBOURS if k < len(means)]
    return values | {f"ms_coverage{k}_{name}": ms_coverage(means, k) for k in shown}


def flag_metrics(active: Floats) -> Measured:
    """A(f) and rho of AKDs (flags, skills, starts).

    rho is Spearman's, over the skills of all flags, each with its mean over starts. Resampled are
    the skills, which are the same at every flag, and the starts.
    """
    names = [f"activity_{flag:g}" for flag in FLAGS]
    values = dict(zip(names, active.mean((1, 2)).tolist(), strict=True))
    values["activity_rho"] = float(rank_correlation(active.mean(2)[None])[0])
    if min(active.shape[1:]) < FEWEST:
        return Measured(values, {})
    skills, starts = draws(active.shape[1], 0), draws(active.shape[2], 1)
    shares = np.stack([np.bincount(row, minlength=active.shape[2]) for row in starts])
    drawn = np.einsum("fkj,rj->rfk", active, shares / active.shape[2])  # means over starts
    drawn = np.take_along_axis(drawn, skills[:, None], 2)
    intervals = {name: percentiles(drawn[:, i].mean(1)) for i, name in enumerate(names)}
    intervals["activity_rho"] = percentiles(rank_correlation(drawn))
    return Measured(values, intervals)


def rank_correlation(active: Floats) -> Floats:
    """(n,): Spearman's rho of flag and activity (n, flags, skills); 0 where all are alike."""
    n, flags, skills = active.shape
    x = rankdata(np.repeat(np.arange(flags), skills))
    y = rankdata(active.reshape(n, -1), axis=1)
    x, y = x - x.mean(), y - y.mean(1, keepdims=True)
    return y @ x / np.maximum(np.sqrt((x @ x) * (y * y).sum(1)), 1e-12)


# --- motion ---------------------------------------------------------------------------------------


def travel(rollouts: Rollouts) -> Floats:
    """(skills, starts): from start to end in a straight line."""
    return of_tracks(rollouts, lambda track: np.linalg.norm(track[-1] - track[0]))


def path_length(rollouts: Rollouts) -> Floats:
    """(skills, starts): along the way."""
    return of_tracks(rollouts, lambda track: np.linalg.norm(np.diff(track, axis=0), axis=1).sum())


def forward_speed(rollouts: Rollouts, dt: float) -> Floats:
    """(skills, starts): along x, per second; dt: seconds of a step."""
    return of_tracks(rollouts, lambda track: (track[-1, 0] - track[0, 0]) / (len(track) - 1) / dt)


def of_tracks(rollouts: Rollouts, figure: Callable[[Floats], Any]) -> Floats:
    return np.array([[float(figure(track)) for track in skill] for skill in rollouts.tracks()])


# --- differences ----------------------------------------------------------------------------------


def identified(features: Floats) -> NDArray[np.bool_]:
    """(skills, starts): does the nearest centroid, leaving the roll-out itself out, name its skill?

    features (skills, starts, F).
    """
    skills, starts, _ = features.shape
    scaled = (features - features.mean((0, 1))) / (features.std((0, 1)) + 1e-8)
    centroids, own = scaled.mean(1), np.arange(skills)
    distances = np.linalg.norm(scaled[:, :, None] - centroids, axis=-1)
    without_itself = (starts * centroids[:, None] - scaled) / (starts - 1)
    distances[own, :, own] = np.linalg.norm(scaled - without_itself, axis=-1)
    return distances.argmin(-1) == own[:, None]


def identification(rollouts: Rollouts) -> Measured:
    """By the mean and the standard deviation of the states; the interval is over skills."""
    parts = rollouts.mean(rollouts.obs), rollouts.std(rollouts.obs)
    found = identified(np.concatenate(parts, -1))
    measured = mean_with_interval("identification", found.mean(1))
    return measured if found.shape[1] >= FEWEST else Measured(measured.values, {})


# --- coverage -------------------------------------------------------------------------------------


def state_coverage(rollouts: Rollouts, rows: int = POOLED) -> float:
    """The AKD of states drawn from all roll-outs, the same number however long these are."""
    states = rollouts.obs[rollouts.valid]
    return akd(np.random.default_rng(0).permutation(states)[:rows])


def xy_coverage(rollouts: Rollouts, side: float) -> int:
    """The number of squares of this side that are visited."""
    visited = np.concatenate([track for skill in rollouts.tracks() for track in skill])
    return len(np.unique(np.floor(visited / side).astype(np.int64), axis=0))
