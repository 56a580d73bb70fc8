"""Shared pieces of the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch

from comsd.envs.foreign import IMPORTED, REGISTERED
from comsd.envs.reward import REWARDS
from comsd.methods.base import Method
from comsd.methods.synthetic import OBS, make_batch, narrow_config  # noqa: F401
from comsd.nn import Network
from comsd.registry import LOADED, METHODS
from comsd.skills import SPACES, SkillSpace
from comsd.types import ObsSpec

torch.set_num_threads(1)
os.environ.pop("COLUMNS", None)  # pytest-xdist's: tables are as wide as wanted, as in a pipe


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """What a test registers is gone after it: tests share a process, in any order."""
    tables: list[dict[Any, Any]] = [METHODS, REGISTERED, IMPORTED, REWARDS, LOADED]
    before = [dict(table) for table in tables]
    yield
    for table, known in zip(tables, before, strict=True):
        table.clear()
        table.update(known)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def plain_obs(dim: int) -> ObsSpec:
    """Observations that networks see as they are."""
    return ObsSpec((dim,), "float32", np.zeros(dim, np.float32), np.ones(dim, np.float32))


needs_dmc = pytest.mark.skipif(
    find_spec("dm_control") is None, reason="dm_control is not installed"
)


def make_method(
    name: str, space: SkillSpace, family: str | None = "maze", **values: object
) -> Method:
    """A method with its values for the maze, narrow, with other values where given."""
    method, families = METHODS[name], [family] if family else []
    config = narrow_config(method.config_class, families, **{"init": "uniform", **values})
    torch.manual_seed(0)
    return method(config, space, OBS)


@torch.no_grad()
def make_constant(net: Network, output: list[float]) -> None:
    """Make a network answer the same to every input."""
    for parameter in net.parameters():
        parameter.zero_()
    bias = net.out.bias
    assert isinstance(bias, torch.Tensor)
    bias.copy_(torch.tensor(output))


def method_cases() -> list[tuple[str, str]]:
    return [(name, space.kind) for name, m in METHODS.items() for space in m.spaces]


def make_space(kind: str, dim: int = 5) -> SkillSpace:
    return SPACES[kind](dim)
