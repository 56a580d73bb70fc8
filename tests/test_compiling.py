"""Compiled losses against the eager update with its written-out gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from comsd import compiling
from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.methods import METHODS
from comsd.skills import Box
from comsd.types import ObsInfo
from test_ddpg import OBS, batch_of


def run(method_name: str, compiled: bool, updates: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    kind = METHODS[method_name]
    space = (Box if Box in kind.spaces else kind.spaces[0])(3)
    info, skill = ObsInfo(4, OBS.mean, OBS.std), space.sample(32, np.random.default_rng(0))
    agent = DDPG(DDPGConfig(hidden=16), space, info, 2, kind.critic)
    neighbours: dict[str, Any] = (
        {"k": 4} if "k" in {f.name for f in fields(kind.config_class)} else {}
    )
    method = kind(kind.config_class(hidden=16, **neighbours), space, info)
    optimizer, generator = method.optimizer(), torch.Generator().manual_seed(0)
    learn: Callable[..., Any] = method.learn
    if compiled:
        learn = compiling.compiled_learn(method)
        compiling.compile_agent(agent)
    for i in range(updates):
        with torch._dynamo.config.patch(error_on_recompile=compiled and i > 0):
            batch = batch_of(32)._replace(reward=torch.full((32,), float(i)), skill=skill)
            reward, _, credit = learn(batch, optimizer)
            agent.update(batch, reward, generator, credit)
    return [*agent.state_dict().values(), *method.state_dict().values()]


@pytest.mark.parametrize("name", METHODS)
def test_one_graph_each_no_recompiles_and_the_same_numbers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graphs as torch.compile sees them, without the minutes its code generator takes."""

    def traced(function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(function, fullgraph=True, dynamic=False, backend="aot_eager")

    torch._dynamo.reset()
    monkeypatch.setattr(compiling, "whole", traced)
    torch.testing.assert_close(run(name, True, 4), run(name, False, 4), atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_generated_code_gives_the_same_numbers() -> None:
    torch._dynamo.reset()
    torch.testing.assert_close(run("comsd", True, 4), run("comsd", False, 4), atol=1e-5, rtol=1e-4)
