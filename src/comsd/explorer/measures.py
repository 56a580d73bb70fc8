"""What the page knows of each skill: figures from several starts, and one recorded roll-out.

Roll-outs and figures are those of `comsd.evaluation`; of the skills that `comsd analyse` looks at,
the page has the same names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from comsd.agents.base import Policy
from comsd.evaluation.metrics import mean_states, state_components
from comsd.evaluation.rollouts import Floats, Rollouts
from comsd.evaluation.skills import SkillEvaluator
from comsd.explorer.arrays import Arrays
from comsd.skill_sets import SWEEP_SIZE, labels, random_skills
from comsd.skills import Box, OneHot, SkillSpace, Sphere

MOST_EXPLORED = 1000  # skills of a page, which holds a roll-out of each
PROBES = 3  # skills around which the effect of every dimension is measured
PROBE_STEPS = 200


@dataclass(frozen=True)
class Measure:
    key: str
    label: str
    unit: str


class World(Protocol):
    """A kind of environment the page can show."""

    axes: tuple[str, str]  # measures the map shows first
    dt: float  # seconds of a control step
    ends: str  # what happens in the page when an episode would end

    @property
    def evaluator(self) -> SkillEvaluator:
        """Whose starts are the same for all skills."""
        ...

    def measures(self, rollouts: Rollouts) -> dict[Measure, Floats]:
        """By (skills, starts)."""
        ...

    def frames(self, rollouts: Rollouts) -> Floats:
        """(skills, 1 + time, .): what draws the first start, from the initial state on."""
        ...

    def spec(self, arrays: Arrays) -> dict[str, Any]:
        """What the page needs to act live."""
        ...

    def checks(self, policy: Policy, skills: Tensor, arrays: Arrays) -> dict[str, Any]:
        """What Python does in some states, each under another skill."""
        ...


@dataclass(frozen=True)
class Measured:
    values: dict[Measure, Floats]  # (skills, starts)
    spread: Floats  # (O,)  of mean states, over skills and starts
    frames: list[Floats]  # by skill (time, .)


def exported_skills(space: SkillSpace, n: int) -> dict[str, Tensor]:
    """The skills of the map (., Z) by sweep: up to a fifth in each ordered one, the rest random."""
    if isinstance(space, OneHot):
        return {"constant": space.grid(n)}
    swept = min(SWEEP_SIZE, max(1, n // 5))
    result = {"constant": space.grid(swept)}
    if isinstance(space, Box):
        result["flag"] = space.flags(swept)[: n - swept]
    left = n - sum(map(len, result.values()))
    return result | {"random": random_skills(space, left)}


def skill_names(space: SkillSpace, sweeps: dict[str, Tensor]) -> list[str]:
    return [name for sweep, skills in sweeps.items() for name in labels(space, sweep, skills)]


def measure(world: World, roll_outs: Iterable[Rollouts]) -> Measured:
    """Of several skills each."""
    values: dict[Measure, list[Floats]] = {}
    means, frames = [], []
    for rollouts in roll_outs:
        for key, rows in world.measures(rollouts).items():
            values.setdefault(key, []).append(rows)
        means.append(rollouts.mean(rollouts.obs))
        ends = 1 + rollouts.length[:, 0]
        frames += [f[:n] for f, n in zip(world.frames(rollouts), ends, strict=True)]
    states = np.concatenate(means)  # (skills, starts, O)
    placed, shares = state_components(states)
    components = {
        Measure(f"ms{i + 1}", f"mean state, component {i + 1}", f"{share:.0%}"): placed[..., i]
        for i, share in enumerate(shares)
    }
    whole = {key: np.concatenate(rows) for key, rows in values.items()}
    return Measured(whole | components, states.std((0, 1)) + 1e-6, frames)


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
    steps = min(PROBE_STEPS, world.evaluator.steps)
    means = mean_states(world.evaluator.roll_out(policy, probes.flatten(0, 2), 1, steps))
    low, high = np.moveaxis(means.reshape(PROBES, space.dim, 2, -1), 2, 0)
    return np.linalg.norm((high - low) / spread, axis=-1).mean(0).tolist()


def probed_steps(world: World, space: SkillSpace) -> int:
    """Of the environment, for the effects."""
    probes = 0 if isinstance(space, OneHot) else 2 * PROBES * space.dim
    return probes * min(PROBE_STEPS, world.evaluator.steps)
