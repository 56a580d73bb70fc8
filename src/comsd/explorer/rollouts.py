"""What the page knows of each skill: measures over several starts, one recorded roll-out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from comsd.agents.base import Policy
from comsd.skills import Box, OneHot, SkillSpace, Sphere

Floats = NDArray[np.floating]

PROBES = 3  # skills around which the effect of every dimension is measured
PROBE_STEPS = 200


@dataclass(frozen=True)
class Measure:
    key: str
    label: str
    unit: str


@dataclass(frozen=True)
class Rollouts:
    """Skills from several starts, with mean actions."""

    measures: dict[Measure, Floats]  # (skills, starts)
    means: Floats  # (skills, starts, O)  mean observations
    frames: Floats  # (skills, time, .)  what draws the first start, its initial state included


class World(Protocol):
    """A kind of environment the page can show."""

    axes: tuple[str, str]  # measures the map shows first

    def rollouts(
        self, policy: Policy, skills: Tensor, starts: Sequence[int], length: int | None = None
    ) -> Rollouts: ...


def exported_skills(space: SkillSpace, n: int) -> tuple[Tensor, list[str]]:
    """The skills of the map (n, Z) and their names: sweeps first, then random ones.

    Of a box: a sixth along the diagonal c (1, ..., 1), the paper's sweep, a sixth along the flag.
    """
    if isinstance(space, OneHot):
        skills = space.grid(n)
        return skills, [f"skill {i}" for i in range(len(skills))]
    rng = np.random.default_rng(0)
    swept = max(2, n // 6)
    if isinstance(space, Box):
        parts = {"c = {:.2g}": space.grid(swept), "flag {:.2g}": space.flags(swept)}
        names = [text.format(z) for text, part in parts.items() for z in part[:, 0].tolist()]
        sweeps = torch.cat([*parts.values()])
    else:
        sweeps = space.grid(swept)
        names = [f"angle {360 * i / swept:.0f}°" for i in range(swept)]
    drawn = space.sample(max(0, n - len(sweeps)), rng)
    names += [f"random {i + 1}" for i in range(len(drawn))]
    return torch.cat([sweeps, drawn])[:n], names[:n]


def add_components(result: Rollouts) -> dict[Measure, Floats]:
    """All measures, with the two principal components of the skills' mean states."""
    means = result.means.astype(np.float64)
    by_skill = means.mean(1)
    centred = by_skill - by_skill.mean(0)
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    shares = sizes**2 / max(float((sizes**2).sum()), 1e-12)
    projected = (means - by_skill.mean(0)) @ directions[:2].T
    return result.measures | {
        Measure(f"ms{i + 1}", f"mean state, component {i + 1}", f"{shares[i]:.0%}"): column
        for i, column in enumerate(np.moveaxis(projected, -1, 0))
    }


def dimension_effects(
    world: World, policy: Policy, space: SkillSpace, spread: Floats
) -> list[float]:
    """How far mean states move when a dimension goes from one end to the other, by dimension.

    Mean over a few random skills; states are in units of `spread` (O,), that of the skills.
    """
    if isinstance(space, OneHot):
        return []
    base = space.sample(PROBES, np.random.default_rng(1))
    ends = (-1.0, 1.0) if isinstance(space, Sphere) else (0.0, 1.0)
    probes = base[:, None, None].repeat(1, space.dim, 2, 1)  # (probes, dimensions, ends, Z)
    for d in range(space.dim):
        probes[:, d, :, d] = torch.tensor(ends)
    if isinstance(space, Sphere):
        probes = F.normalize(probes, dim=-1)
    means = world.rollouts(policy, probes.flatten(0, 2), [0], PROBE_STEPS).means[:, 0]
    low, high = np.moveaxis(means.reshape(PROBES, space.dim, 2, -1), 2, 0)
    return np.linalg.norm((high - low) / spread, axis=-1).mean(0).tolist()
