"""Compiled losses against the eager update with its written-out gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch._inductor.config
from torch import Tensor

from comsd import compiling
from comsd.agents.critics import CRITICS
from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.registry import METHODS
from comsd.types import Batch, ObsInfo
from conftest import make_space, method_cases
from test_ddpg import OBS, batch_of

ROWS, UPDATES = 32, 3
VALUES: dict[str, dict[str, Any]] = {  # less to compute
    "comsd": {"k": 4},
    "cic": {"k": 4},
    "aps": {"k": 4},
    "dads": {"alternatives": 12},
    "smm": {"code": 4},
}
CASES = [
    pytest.param(name, kind, VALUES.get(name, {}), id=f"{name}-{kind}")
    for name, kind in method_cases()
]
CASES += [
    pytest.param(
        "cic", "box", {"k": 4, "denominator": "constant", "reward_after": True}, id="as-cic"
    )
]
SPACES = {"plain": "box", "successor": "sphere", "per-skill": "one-hot"}  # of each critic's form


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graphs as torch.compile sees them, without the minutes its code generator takes."""

    def whole(function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(function, fullgraph=True, dynamic=False, backend="aot_eager")

    monkeypatch.setattr(compiling, "whole", whole)


def batches(kind: str) -> list[Batch]:
    """Other skills and rewards each time: a value that a graph holds fast would show."""
    space, batch = make_space(kind, 3), batch_of(ROWS)
    return [
        batch._replace(
            reward=torch.full((ROWS,), float(i)), skill=space.sample(ROWS, np.random.default_rng(i))
        )
        for i in range(UPDATES)
    ]


class Outcome(NamedTuple):
    lessons: list[Tensor]  # rewards and credits, batch after batch
    state: list[Tensor]  # of what learned, in the end


def learnt(
    name: str, kind: str, values: dict[str, Any], training: bool = True, *, compiled: bool
) -> Outcome:
    """What a method makes of a few batches."""
    torch.manual_seed(0)
    method_class = METHODS[name]
    config = method_class.config_class(hidden=16, **values)
    method = method_class(config, make_space(kind, 3), ObsInfo(4, OBS.mean, OBS.std))
    optimizer = method.train(training).optimizer()
    learn = compiling.compiled_learn(method) if compiled else method.learn
    lessons: list[Tensor] = []
    for i, batch in enumerate(batches(kind)):
        with torch._dynamo.config.patch(error_on_recompile=compiled and i > 0):
            lesson = learn(batch, optimizer)
        lessons += [x for x in (lesson.reward, lesson.credit) if x is not None]
    return Outcome(lessons, list(method.state_dict().values()))


def updated(form: str, *, compiled: bool) -> Outcome:
    """An agent after a few updates."""
    torch.manual_seed(0)
    kind = SPACES[form]
    agent = DDPG(DDPGConfig(hidden=16), make_space(kind, 3), OBS, 2, form)
    generator = torch.Generator().manual_seed(0)
    if compiled:
        compiling.compile_agent(agent)
    for i, batch in enumerate(batches(kind)):
        with torch._dynamo.config.patch(error_on_recompile=compiled and i > 0):
            agent.update(batch, batch.reward + batch.obs[:, 0], generator, None)
    return Outcome([], list(agent.state_dict().values()))


def both(run: Callable[..., Outcome], *case: Any) -> tuple[Outcome, Outcome]:
    torch._dynamo.reset()
    return run(*case, compiled=True), run(*case, compiled=False)


def close(compiled: object, eager: object) -> None:
    torch.testing.assert_close(compiled, eager, atol=1e-5, rtol=1e-4)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(("name", "kind", "values"), CASES)
def test_a_method_is_one_graph_without_recompiles_and_gives_the_same_numbers(
    name: str, kind: str, values: dict[str, Any]
) -> None:
    close(*both(learnt, name, kind, values))


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("form", CRITICS)
def test_an_agent_is_one_graph_each_without_recompiles_and_gives_the_same_numbers(
    form: str,
) -> None:
    close(*both(updated, form))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "values"), CASES)
def test_generated_code_of_a_method_gives_the_same_rewards(
    name: str, kind: str, values: dict[str, Any]
) -> None:
    """Not the same weights: a bias that cancels has rounding errors for a gradient, and Adam makes
    full steps of them. CeSD in eval mode, since generated code draws partitions in its own way.
    """
    with torch._inductor.config.patch(fallback_random=True):  # the other random numbers agree
        compiled, eager = both(learnt, name, kind, values, name != "cesd")
    close(compiled.lessons, eager.lessons)


@pytest.mark.slow
@pytest.mark.parametrize("form", CRITICS)
def test_generated_code_of_an_agent_gives_the_same_numbers(form: str) -> None:
    close(*both(updated, form))
