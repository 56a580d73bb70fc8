"""Compiled losses against the eager update with its written-out gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from comsd import compiling
from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.methods import METHODS
from comsd.skills import Box, OneHot, SkillSpace, Sphere
from comsd.types import ObsInfo
from test_ddpg import OBS, batch_of

CASES: dict[str, tuple[str, SkillSpace, dict[str, Any]]] = {
    "comsd": ("comsd", Box(3), {"k": 4}),
    "cic": ("cic", Box(3), {"k": 4}),
    "diayn": ("diayn", OneHot(3), {}),
    "dads": ("dads", Box(3), {"alternatives": 12}),
    "dads-one-hot": ("dads", OneHot(3), {}),
    "becl": ("becl", OneHot(3), {}),
    "smm": ("smm", OneHot(3), {"code": 4}),
    "aps": ("aps", Sphere(3), {"k": 4}),
    "cesd": ("cesd", OneHot(3), {}),
    "metra": ("metra", Sphere(3), {}),
    "lsd": ("lsd", Sphere(3), {}),
    "csd": ("csd", OneHot(3), {}),
}


def run(case: str, compiled: bool, updates: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    name, space, values = CASES[case]
    info, skill = ObsInfo(4, OBS.mean, OBS.std), space.sample(32, np.random.default_rng(0))
    kind = METHODS[name]
    agent = DDPG(DDPGConfig(hidden=16), space, info, 2, kind.critic)
    method = kind(kind.config_class(hidden=16, **values), space, info)
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


@pytest.mark.parametrize("name", CASES)
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
