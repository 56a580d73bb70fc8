"""Losses under torch.compile against the eager ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from comsd.agents.critics import CRITICS
from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.agents.sac import SAC, SACConfig
from comsd.registry import METHODS
from comsd.skills import SkillSpace
from comsd.types import Batch
from conftest import make_space, method_cases, plain_obs

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
AGENTS = [*(("ddpg", form) for form in CRITICS), ("sac", "plain")]
SPACES = {"plain": "box", "successor": "sphere", "per-skill": "one-hot"}  # of each critic's form

Compile = Callable[..., Any] | None
TRACED = partial(torch.compile, backend="aot_eager")  # the graphs, without generating code


def batches(space: SkillSpace) -> list[Batch]:
    """Other skills and rewards each time: a value that a graph holds fast would show."""
    found = []
    for i in range(UPDATES):
        g = torch.Generator().manual_seed(i)
        obs, next_obs = torch.randn(2, ROWS, 4, generator=g)
        action = torch.rand(ROWS, 2, generator=g) * 2 - 1
        skill, reward = space.sample(ROWS, np.random.default_rng(i)), torch.full((ROWS,), float(i))
        columns = obs, action, next_obs, next_obs, skill, reward, torch.full((ROWS,), 0.97)
        found.append(Batch(*columns))
    return found


def train_method(
    name: str, kind: str, values: dict[str, Any], compile: Compile
) -> tuple[list[Tensor], list[Tensor]]:
    """Losses, rewards and relabelled skills of a few updates, and what was learned."""
    torch.manual_seed(0)
    kind_class, space = METHODS[name], make_space(kind, 3)
    method = kind_class(kind_class.config_class(hidden=16, **values), space, plain_obs(4))
    if compile is not None:
        method.embed_and_loss = compile(method.embed_and_loss)
    optimizer, outputs = method.optimizer(), []
    for batch in batches(space):
        output = method.update(batch, optimizer)
        outputs += [output.reward, *output.metrics.values()]
        outputs += [] if output.value_skill is None else [output.value_skill]
    return [x.detach().clone() for x in outputs], list(method.state_dict().values())


def train_agent(
    name: str, form: str, compile: Compile, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Tensor], list[Tensor]]:
    """The same of an agent."""
    torch.manual_seed(0)
    space = make_space(SPACES[form], 3)
    make, config = {"ddpg": (DDPG, DDPGConfig), "sac": (SAC, SACConfig)}[name]
    agent = make(config(hidden=16), space, plain_obs(4), 2, form)
    if compile is not None:
        with monkeypatch.context() as patch:
            patch.setattr(torch, "compile", compile)
            agent.compile_losses()
    generator, outputs = torch.Generator().manual_seed(0), []
    for batch in batches(space):
        outputs += agent.update(batch, batch.reward + batch.obs[:, 0], generator).values()
    return [x.clone() for x in outputs], list(agent.state_dict().values())


def close(compiled: object, eager: object) -> None:
    torch.testing.assert_close(compiled, eager, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("name", "kind", "values"), CASES)
def test_the_loss_of_a_method_is_one_graph_with_the_same_numbers(
    name: str, kind: str, values: dict[str, Any]
) -> None:
    torch.compiler.reset()
    whole = partial(TRACED, fullgraph=True)
    close(train_method(name, kind, values, whole), train_method(name, kind, values, None))


@pytest.mark.parametrize(("name", "form"), AGENTS)
def test_the_losses_of_an_agent_have_the_same_numbers(
    name: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows per skill are numbers of Python: that critic is no single graph."""
    torch.compiler.reset()
    compile = TRACED if form == "per-skill" else partial(TRACED, fullgraph=True)
    eager = train_agent(name, form, None, monkeypatch)
    close(train_agent(name, form, compile, monkeypatch), eager)


def test_another_batch_of_the_same_size_is_not_compiled_again() -> None:
    torch.compiler.reset()
    compiled: list[int] = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        compiled.append(len(graph.graph.nodes))
        return graph.forward

    count = partial(torch.compile, backend=backend)
    train_method("comsd", "box", VALUES["comsd"], count)
    assert len(compiled) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "values"), CASES)
def test_generated_code_of_a_method_gives_the_same_rewards(
    name: str, kind: str, values: dict[str, Any]
) -> None:
    """Of the first update: a bias that cancels has rounding errors for a gradient, and Adam makes
    full steps of them. Noise is drawn in another way, so methods that draw any are not compared.
    """
    torch.compiler.reset()
    compiled = train_method(name, kind, values, torch.compile)[0]
    eager = train_method(name, kind, values, None)[0]
    assert all(bool(torch.isfinite(x).all()) for x in compiled)
    if name not in ("smm", "cesd", "dads"):
        first = len(eager) // UPDATES
        close(compiled[:first], eager[:first])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "form"), AGENTS)
def test_generated_code_of_an_agent_gives_the_same_numbers(
    name: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.compiler.reset()
    eager = train_agent(name, form, None, monkeypatch)
    close(train_agent(name, form, torch.compile, monkeypatch), eager)
