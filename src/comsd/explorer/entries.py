"""What a page shows of a run: who is on its map, and what they did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from comsd.agents.base import Policy
from comsd.evaluation.rollouts import Floats, Rollouts
from comsd.explorer.arrays import Arrays
from comsd.explorer.measures import (
    Measured,
    World,
    dimension_effects,
    probed_steps,
    skill_names,
)
from comsd.skills import SkillSpace


class Entries:
    """The skills of a pre-trained run."""

    has_sliders = True

    def __init__(
        self, policy: Policy, space: SkillSpace, world: World, sweeps: dict[str, Tensor]
    ) -> None:
        self.policy, self.space, self.world, self.sweeps = policy, space, world, sweeps
        self.names = skill_names(space, sweeps)
        self.skills = torch.cat([torch.zeros(0, space.dim), *sweeps.values()])
        self.flags: list[float] = space.flag(self.skills).tolist()

    @property
    def planned_steps(self) -> int:
        """Of the environment."""
        evaluator = self.world.evaluator
        measured = len(self.names) * evaluator.starts * evaluator.steps
        return measured + (probed_steps(self.world, self.space) if self.has_sliders else 0)

    def roll_outs(self) -> Iterator[Rollouts]:
        """Sweep by sweep, as evaluations do: last digits depend on how many act at once."""
        for skills in self.sweeps.values():
            if len(skills):
                yield self.world.evaluator.roll_out(self.policy, skills)

    def effects(self, spread: Floats) -> list[float]:
        """Of each dimension."""
        if not self.has_sliders:
            return []
        return dimension_effects(self.world, self.policy, self.space, spread)

    def to_json(self, measured: Measured, arrays: Arrays) -> dict[str, Any]:
        """What pages of other runs do not have."""
        return {}
