"""What every method must keep, for every skill space it supports.

Each clause would have caught a fault of a published code base: a skill query overwritten by
zeros, a network that is optimised and never used, running statistics lost at restart.
"""

from __future__ import annotations

import ast
import inspect

import numpy as np
import pytest
import torch

from comsd.methods.base import Method
from comsd.nn import Network, optimizer_step
from comsd.registry import METHODS
from comsd.types import Batch
from comsd.user_files import check_critic
from conftest import OBS, make_batch, make_method, make_space, method_cases

ROWS = 64
VARIANTS: list[tuple[str, str, str | None, dict[str, object]]] = (
    [
        (name, kind, family, {})
        for name, kind in method_cases()
        for family in ("maze", "robots", None)
    ]
    + [
        (name, "box", None, values)
        for name in ("comsd", "cic")
        for values in ({"denominator": "constant"}, {"reward_after": True})
    ]
    + [
        ("comsd", kind, "maze", values)
        for kind in ("one-hot", "box", "sphere")
        for values in (
            {"smw": False},
            {"diversity": False},
            {"exploration": False},
            {"knn": "embedding"},
            {"knn": "trajectory", "knn_form": "log1p", "knn_scale": "std"},
            {"knn": "frozen-random", "knn_form": "log1p"},
            {"diversity_form": "log-q", "query": "learned"},
        )
    ]
    + [
        ("becl", "one-hot", "robots", {"denominator": "all"}),
        ("smm", "one-hot", "robots", {"skill_term": "log-likelihood"}),
    ]
)


@pytest.fixture(
    params=VARIANTS, ids=lambda v: "-".join(map(str, (v[0], v[1], v[2], *v[3].items())))
)
def case(request: pytest.FixtureRequest) -> tuple[Method, str]:
    name, kind, family, values = request.param
    return make_method(name, make_space(kind), family, **values), kind


def rewards(method: Method, batch: Batch) -> torch.Tensor:
    """With the same random numbers each time, for methods that draw some."""
    torch.manual_seed(0)
    return method.intrinsic_reward(batch).reward


def test_every_parameter_gets_gradient(case: tuple[Method, str]) -> None:
    method, kind = case
    trained = [p for p in method.parameters() if p.requires_grad]
    if not trained:
        assert method.optimizer() is None
        return
    batch = make_batch(make_space(kind), ROWS)
    loss, metrics = method.loss(batch, method.embed(batch))
    assert loss.shape == ()
    assert all(not value.requires_grad for value in metrics.values())
    loss.backward()
    cancels = {id(m.out.bias) for m in method.modules() if isinstance(m, Network)}
    for p in trained:
        assert p.grad is not None
        assert p.grad.abs().sum() > 0 or id(p) in cancels  # where only differences count


def test_reward_is_one_finite_number_per_row(case: tuple[Method, str]) -> None:
    method, kind = case
    reward, metrics, _ = method.intrinsic_reward(make_batch(make_space(kind), ROWS))
    assert reward.shape == (ROWS,)
    assert reward.dtype == torch.float32
    assert bool(torch.isfinite(reward).all())
    assert not reward.requires_grad
    assert reward.std() > 0
    assert all(value.numel() in (1, ROWS) for value in metrics.values())


def test_as_many_rows_as_it_needs_are_enough(case: tuple[Method, str]) -> None:
    method, kind = case
    rows = max(method.config.rows_needed().values(), default=2)
    assert bool(torch.isfinite(rewards(method, make_batch(make_space(kind), rows))).all())


def test_redrawing_skills_changes_the_reward_unless_declared(case: tuple[Method, str]) -> None:
    method, kind = case
    space = make_space(kind)
    batch = make_batch(space, ROWS)
    redrawn = batch._replace(skill=make_batch(space, ROWS, seed=1).skill)
    state = {name: value.clone() for name, value in method.state_dict().items()}
    before = rewards(method, batch)
    method.load_state_dict(state)  # running statistics as they were
    after = rewards(method, redrawn)
    uses = method.reward_uses_skill and getattr(method.config, "diversity", True)
    assert uses != torch.equal(before, after)


def test_permuting_the_batch_permutes_the_reward_unless_declared(case: tuple[Method, str]) -> None:
    method, kind = case
    batch = make_batch(make_space(kind), ROWS)
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(0))
    shuffled = type(batch)(*(column[order] for column in batch))
    state = {name: value.clone() for name, value in method.state_dict().items()}
    first = rewards(method, batch)[order]
    method.load_state_dict(state)
    second = rewards(method, shuffled)
    assert method.reward_uses_order != torch.allclose(first, second, atol=1e-5, rtol=1e-4)


def test_looking_changes_nothing(case: tuple[Method, str]) -> None:
    """In eval mode rewards and figures leave every number as it is; figures draw none either."""
    method, kind = case
    space = make_space(kind)
    rewards(method, make_batch(space, ROWS, seed=5))  # give running statistics a past
    before = {name: value.clone() for name, value in method.state_dict().items()}
    batch = make_batch(space, ROWS)
    method.eval()
    method.intrinsic_reward(batch)
    drawn = torch.get_rng_state()
    with torch.no_grad():
        method.skill_scores(batch)
        method.diagnostics(batch)
    assert torch.equal(torch.get_rng_state(), drawn)
    after = method.state_dict()
    assert after.keys() == before.keys()
    assert [name for name in before if not torch.equal(after[name], before[name])] == []


def test_saving_and_loading_changes_nothing(case: tuple[Method, str]) -> None:
    method, kind = case
    space = make_space(kind)
    batch = make_batch(space, ROWS)
    rewards(method, make_batch(space, ROWS, seed=5))  # give running statistics a past
    torch.manual_seed(123)
    elsewhere = OBS._replace(
        mean=OBS.mean + 1, std=np.multiply(OBS.std, 2)
    )  # the saved statistics count
    twin = METHODS[method.name](method.config, space, elsewhere)
    twin.load_state_dict({name: value.clone() for name, value in method.state_dict().items()})
    assert torch.equal(rewards(method, batch), rewards(twin, batch))


@pytest.mark.parametrize("name", METHODS)
def test_the_progress_line_shows_what_it_logs(name: str) -> None:
    method = make_method(name, space := make_space("one-hot"), "robots")
    batch = make_batch(space, ROWS)
    logged = method.update(batch, method.optimizer()).metrics | method.diagnostics(batch)
    assert 1 <= len(method.progress_metrics) <= 3
    assert method.progress_metrics.keys() <= logged.keys()


@pytest.mark.parametrize("name", METHODS)
def test_training_the_representation_reduces_its_loss(name: str) -> None:
    """Skills live in separate places: any representation should fit that quickly."""
    space = make_space("one-hot")
    method = make_method(name, space)
    batch = make_batch(space, 250)
    place = 3 * batch.skill.argmax(-1)[:, None].float()
    batch = batch._replace(obs=place + 0.1 * batch.action, next_obs=place - 0.1 * batch.action)
    optimizer = method.optimizer()
    if optimizer is None:
        return  # nothing to train
    losses = []
    for _ in range(200):
        loss, _ = method.loss(batch, method.embed(batch))
        optimizer_step(optimizer, loss)
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1 * abs(losses[0])


def test_an_update_is_a_step_down_the_loss_and_the_rewards(case: tuple[Method, str]) -> None:
    method, kind = case
    optimizer = method.optimizer()
    batch = make_batch(make_space(kind), ROWS)
    if optimizer is None:
        assert torch.equal(method.update(batch, None).reward, rewards(method, batch))
        return
    torch.manual_seed(0)
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    assert {id(p) for p in trained} == {id(p) for p in method.parameters() if p.requires_grad}
    state = {name: value.clone() for name, value in method.state_dict().items()}
    loss, metrics = method.loss(batch, method.embed(batch))
    wanted = torch.autograd.grad(loss, trained)
    method.load_state_dict(state)
    torch.manual_seed(0)
    output = method.update(batch, optimizer)
    torch.testing.assert_close([p.grad for p in trained], list(wanted))
    assert metrics.keys() <= output.metrics.keys()
    assert output.reward.shape == (ROWS,)
    assert not output.reward.requires_grad


@pytest.mark.parametrize("after", [False, True])
def test_the_reward_may_come_from_a_pass_after_the_step(after: bool) -> None:
    method = make_method("diayn", space := make_space("one-hot"), reward_after=after)
    batch = make_batch(space, ROWS)
    before = method.intrinsic_reward(batch).reward
    learnt = method.update(batch, method.optimizer()).reward
    assert torch.equal(learnt, method.intrinsic_reward(batch).reward if after else before)
    assert not torch.equal(before, method.intrinsic_reward(batch).reward)


def test_relabelled_skills_are_declared(case: tuple[Method, str]) -> None:
    """By `on_policy`, with whose choices each row teaches the skill that acted."""
    method, kind = case
    c = method.config
    if all(getattr(c, name) == choice for name, choice in c.on_policy.items()):
        assert method.intrinsic_reward(make_batch(make_space(kind), ROWS)).value_skill is None


@pytest.mark.parametrize("name", METHODS)
def test_there_is_a_critic_of_its_form(name: str) -> None:
    check_critic(METHODS[name])


@pytest.mark.parametrize("name", METHODS)
def test_no_method_imports_another(name: str) -> None:
    module = inspect.getmodule(METHODS[name])
    assert module is not None
    source = inspect.getsource(module)
    imported = [
        n.module or "" for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom)
    ]
    assert not {m.__module__ for m in METHODS.values()} & set(imported)
    assert len(source.splitlines()) <= 170
