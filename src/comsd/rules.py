"""Who decides which skill acts: the prior in pre-training, a selection rule in fine-tuning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from comsd.skills import SkillSpace
from comsd.types import Batch

Experience = Callable[[], Batch]  # every transition so far


class Rule:
    """Chooses skills; it has settled on one from the beginning, or may do so later."""

    acts = False  # do its skills act from the first step, in place of random actions?

    def __init__(self, skill: Tensor | None = None) -> None:
        self.skill = skill  # (Z,) the one it has settled on

    def choose(self, n: int, steps: int, rng: np.random.Generator, seen: Experience) -> Tensor:
        """Skills for n environments, (n, Z)."""
        if self.skill is None:
            return self.search(n, steps, rng, seen)
        return self.skill.expand(n, -1)

    def search(self, n: int, steps: int, rng: np.random.Generator, seen: Experience) -> Tensor:
        raise AssertionError("nothing to search")

    def state_dict(self) -> dict[str, Any]:
        return {"skill": self.skill}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.skill = state["skill"]


class Prior(Rule):
    """Always another skill."""

    def __init__(self, space: SkillSpace) -> None:
        super().__init__()
        self.space = space

    def search(self, n: int, steps: int, rng: np.random.Generator, seen: Experience) -> Tensor:
        return self.space.sample(n, rng)


class Resample(Rule):
    """Always another skill, as in pre-training; `skill` is the one that acts at the time."""

    def __init__(self, space: SkillSpace, first: Tensor) -> None:
        super().__init__(first)
        self.space = space

    def choose(self, n: int, steps: int, rng: np.random.Generator, seen: Experience) -> Tensor:
        drawn = self.space.sample(n, rng)
        self.skill = drawn[0]
        return drawn


class BestOf(Rule):
    """Tries each candidate once, then keeps the one whose steps brought most reward."""

    acts = True

    def __init__(self, candidates: Tensor) -> None:
        super().__init__()
        self.candidates = candidates  # (k, Z)
        self.tried = 0

    def search(self, n: int, steps: int, rng: np.random.Generator, seen: Experience) -> Tensor:
        if self.tried < len(self.candidates):
            index = [(self.tried + i) % len(self.candidates) for i in range(n)]
            self.tried += n
            return self.candidates[index]
        batch = seen()
        acted = [(batch.skill == c.to(batch.skill.device)).all(-1) for c in self.candidates]
        rewards = [float(batch.reward[rows].mean()) for rows in acted]
        self.skill = self.candidates[int(np.nanargmax(rewards))]
        return self.skill.expand(n, -1)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "tried": self.tried}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.tried = state["tried"]


class Regress(Rule):
    """Skills from the prior until enough was seen, then the one the rewards ask for."""

    def __init__(
        self, space: SkillSpace, after: int, regress: Callable[[Batch], Tensor | None]
    ) -> None:
        super().__init__()
        self.space, self.after, self.regress = space, after, regress

    def search(self, n: int, steps: int, rng: np.random.Generator, seen: Experience) -> Tensor:
        if steps < self.after:
            return self.space.sample(n, rng)
        skill = self.regress(Batch(*(column.cpu() for column in seen())))
        assert skill is not None, "checked before the run"
        self.skill = skill.cpu()
        return self.skill.expand(n, -1)
