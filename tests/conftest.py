"""Shared pieces of the tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from comsd.methods.base import Method
from comsd.registry import METHODS
from comsd.skills import SPACES, SkillSpace
from comsd.types import Batch, ObsInfo

torch.set_num_threads(1)

OBS = ObsInfo(2, torch.tensor([0.0, -3.5]), torch.tensor([3.7, 1.6]))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def make_batch(space: SkillSpace, rows: int, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    obs = torch.from_numpy(rng.normal(0, 3, (rows, 2)).astype(np.float32))
    action = torch.from_numpy(rng.uniform(-1, 1, (rows, 2)).astype(np.float32))
    skill, reward, discount = space.sample(rows, rng), torch.zeros(rows), torch.full((rows,), 0.99)
    after = obs + 0.95 * action
    return Batch(obs, action, after, after, skill, reward, discount)


def make_method(
    name: str, space: SkillSpace, family: str | None = "maze", **values: object
) -> Method:
    """A method as it is in the maze, narrow, with other values where given."""
    method = METHODS[name]
    tuned = method.config_class.tuned.get(family, {}) if family else {}
    settings: dict[str, Any] = {key: s.value for key, s in tuned.items() if "." not in key}
    settings |= {"hidden": 16, "init": "uniform"} | values
    torch.manual_seed(0)
    return method(method.config_class(**settings), space, OBS)


def method_cases() -> list[tuple[str, str]]:
    return [(name, space.kind) for name, m in METHODS.items() for space in m.spaces]


def make_space(kind: str, dim: int = 5) -> SkillSpace:
    return SPACES[kind](dim)
