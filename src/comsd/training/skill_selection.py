"""Which skill acts: a draw from the prior in pre-training, a selection rule in fine-tuning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from comsd.skills import SkillSpace
from comsd.types import Batch

Experience = Callable[[], Batch]  # every transition so far


class SkillSelector:
    """Chooses skills; it may have selected one from the beginning, or do so later."""

    def __init__(self, skill: Tensor | None = None, *, acts_at_once: bool = False) -> None:
        """acts_at_once: the policy acts from the first step, in place of random actions."""
        self.selected_skill = skill  # (Z,)
        self.acts_at_once = acts_at_once

    def choose(self, n: int, steps: int, rng: np.random.Generator, past: Experience) -> Tensor:
        """Skills for n environments, (n, Z)."""
        if self.selected_skill is None:
            return self.search(n, steps, rng, past)
        return self.selected_skill.expand(n, -1)

    def search(self, n: int, steps: int, rng: np.random.Generator, past: Experience) -> Tensor:
        raise AssertionError("a skill is selected from the beginning")

    def state_dict(self) -> dict[str, Any]:
        return {"skill": self.selected_skill}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.selected_skill = state["skill"]


class SampleSkill(SkillSelector):
    """Always another skill from the prior."""

    def __init__(self, space: SkillSpace) -> None:
        super().__init__()
        self.space = space

    def search(self, n: int, steps: int, rng: np.random.Generator, past: Experience) -> Tensor:
        return self.space.sample(n, rng)


class ResampleSkill(SampleSkill):
    """Always another skill, as in pre-training; the selected one is the one that acts now."""

    def __init__(self, space: SkillSpace, first: Tensor) -> None:
        super().__init__(space)
        self.selected_skill = first

    def choose(self, n: int, steps: int, rng: np.random.Generator, past: Experience) -> Tensor:
        drawn = self.search(n, steps, rng, past)
        self.selected_skill = drawn[0]
        return drawn


class BestOfK(SkillSelector):
    """Tries each candidate, then keeps the one with the highest return of a try."""

    def __init__(self, candidates: Tensor) -> None:
        super().__init__(acts_at_once=True)
        self.candidates = candidates  # (k, Z)
        self.tried = 0

    def search(self, n: int, steps: int, rng: np.random.Generator, past: Experience) -> Tensor:
        if self.tried < len(self.candidates):
            index = [(self.tried + i) % len(self.candidates) for i in range(n)]
            self.tried += n
            return self.candidates[index]
        batch = past()
        acted = [(batch.skill == c.to(batch.skill.device)).all(-1) for c in self.candidates]
        totals = [float(batch.reward[rows].sum()) if rows.any() else np.nan for rows in acted]
        tries = [len(range(i, self.tried, len(acted))) for i in range(len(acted))]
        self.selected_skill = self.candidates[int(np.nanargmax(np.divide(totals, tries)))]
        return self.selected_skill.expand(n, -1)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "tried": self.tried}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.tried = state["tried"]


class RewardRegression(SampleSkill):
    """Skills from the prior until enough was seen, then the one the rewards ask for."""

    def __init__(
        self, space: SkillSpace, after: int, regress: Callable[[Batch], Tensor | None]
    ) -> None:
        super().__init__(space)
        self.after, self.regress = after, regress

    def search(self, n: int, steps: int, rng: np.random.Generator, past: Experience) -> Tensor:
        if steps < self.after:
            return super().search(n, steps, rng, past)
        skill = self.regress(Batch(*(column.cpu() for column in past())))
        assert skill is not None, "checked before the run"
        self.selected_skill = skill.cpu()
        return self.selected_skill.expand(n, -1)
