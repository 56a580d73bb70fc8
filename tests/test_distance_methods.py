"""METRA, LSD and CSD against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from comsd.methods.csd import CSD, relative_weights
from comsd.methods.latent import LatentSteps
from comsd.methods.lsd import LSD
from comsd.methods.metra import METRA
from comsd.methods.spectral import SingularVectors, SpectralLinear
from comsd.registry import METHODS
from comsd.skills import OneHot, SkillSpace, Sphere
from comsd.types import Batch
from conftest import OBS, make_batch, make_constant, make_method

DISTANCE = ("metra", "lsd", "csd")


def batch_of(state: list[list[float]], next_state: list[list[float]], skill: Tensor) -> Batch:
    s, t, nothing = torch.tensor(state), torch.tensor(next_state), torch.zeros(len(state))
    return Batch(s, torch.zeros_like(s), t, t, skill, nothing, nothing)


def two_rows(skill: list[list[float]]) -> Batch:
    """For tests that give the steps in phi themselves."""
    return batch_of([[0.0, 0.0]] * 2, [[0.0, 0.0]] * 2, torch.tensor(skill))


def corridors(space: SkillSpace, rows: int = 200) -> Batch:
    """Every skill moves along itself, from anywhere."""
    batch = make_batch(space, rows)
    after = batch.obs + space.direction(batch.skill)[:, :2]
    return batch._replace(next_obs=after, one_step_obs=after)


def along(step: Tensor) -> LatentSteps:
    """Steps in phi that are given."""
    return LatentSteps(step, step.detach())


# --- all of them ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DISTANCE)
def test_only_spaces_with_directions_are_accepted(name: str) -> None:
    assert METHODS[name].spaces == (OneHot, Sphere)


@pytest.mark.parametrize("name", DISTANCE)
def test_robots_give_windows_of_one_long_held_skill(name: str) -> None:
    tuned = METHODS[name].config_class.tuned["robots"]
    names = ("train.one_skill", "train.hold", "run.space", "run.skills")
    wanted = (True, 200, "one-hot", 16) if name == "csd" else (True, 200, "sphere", 4)
    assert tuple(tuned[key].value for key in names) == wanted
    assert all(tuned[key].source for key in names)
    assert "run.space" not in METHODS[name].config_class.tuned["maze"]


@pytest.mark.parametrize("name", DISTANCE)
def test_skills_that_move_along_themselves_are_recognised(name: str) -> None:
    method = make_method(name, Sphere(2), lr=1e-2)
    batch = corridors(Sphere(2))
    optimizer = method.optimizer()
    assert optimizer is not None
    for _ in range(200):
        method.update(batch, optimizer)
    assert method.diagnostics(batch)[f"{name}/cosine"] > 0.9
    assert method.intrinsic_reward(batch).reward.mean() > 0


@pytest.mark.parametrize("name", DISTANCE)
def test_the_loss_is_about_one_step_and_the_reward_about_the_whole_window(name: str) -> None:
    batch = make_batch(Sphere(2), 40)
    one, far = batch.obs + 0.3 * batch.action, batch.obs - 2 * batch.action
    window = batch._replace(one_step_obs=one, next_obs=far)

    def judged(batch: Batch) -> tuple[Tensor, Tensor]:
        method = make_method(name, Sphere(2))
        features = method.embed(batch)
        return method.loss(batch, features)[0], method.intrinsic_reward(batch, features).reward

    loss, reward = judged(window)
    torch.testing.assert_close(loss, judged(batch._replace(one_step_obs=one, next_obs=one))[0])
    torch.testing.assert_close(reward, judged(batch._replace(one_step_obs=far, next_obs=far))[1])


# --- METRA ---------------------------------------------------------------------------------------


def metra(**values: Any) -> METRA:
    method = make_method("metra", Sphere(2), **values)
    assert isinstance(method, METRA)
    return method


def test_metra_reward_is_the_step_along_the_skill() -> None:
    step = torch.tensor([[0.6, 0.8], [0.0, -2.0]])
    reward, _ = metra().reward(two_rows([[1.0, 0.0], [0.6, 0.8]]), along(step))
    assert reward.tolist() == pytest.approx([0.6, -1.6])
    one_hot = make_method("metra", OneHot(2))
    reward, _ = one_hot.reward(two_rows([[1.0, 0.0], [0.0, 1.0]]), along(step))
    assert reward.tolist() == pytest.approx([0.6 - 0.8, -2.0])  # centred: (1, -1) and (-1, 1)


def test_metra_penalty_is_of_the_squared_length() -> None:
    """Of (0.6, 0.8): 1, nothing counts; of (0, -2): 4, three too much."""
    step = torch.tensor([[0.6, 0.8], [0.0, -2.0]], requires_grad=True)
    loss, metrics = metra().loss(two_rows([[1.0, 0.0], [0.6, 0.8]]), along(step))
    gap, progressed = (0 - 3) / 2, (0.6 - 1.6) / 2
    assert loss.item() == pytest.approx(-(progressed + 30 * gap) + math.log(30) * gap, rel=1e-5)
    assert metrics["metra/squared_step"].tolist() == pytest.approx([1, 4])
    (grad,) = torch.autograd.grad(loss, [step])
    # (-z + 30 * 2 * step) / 2, the first row at its bound too
    assert grad.flatten().tolist() == pytest.approx([17.5, 24, -0.3, -60.4], rel=1e-4)


def test_metra_may_be_held_to_the_mean_square_as_in_its_code() -> None:
    """Of (0, -2): 4 as a sum, 2 as a mean."""
    step, skill = torch.tensor([[0.0, -2.0]] * 2), [[0.6, 0.8]] * 2
    metrics = metra(constraint="mean").loss(two_rows(skill), along(step))[1]
    assert metrics["metra/squared_step"].tolist() == pytest.approx([2, 2])


def test_metra_short_steps_are_not_penalised() -> None:
    step = torch.tensor([[0.3, 0.1], [0.2, 0.0]], requires_grad=True)
    skill = [[1.0, 0.0], [0.6, 0.8]]
    loss, _ = metra().loss(two_rows(skill), along(step))
    (grad,) = torch.autograd.grad(loss, [step])
    torch.testing.assert_close(grad, -torch.tensor(skill) / 2)
    counted = 1e-3
    progressed = (0.3 + 0.12) / 2
    assert loss.item() == pytest.approx(
        -progressed - 30 * counted + math.log(30) * counted, rel=1e-4
    )


@pytest.mark.parametrize(("size", "sign"), [(20.0, 1), (0.01, -1)])
def test_metra_multiplier_rises_where_steps_are_too_long_and_falls_elsewhere(
    size: float, sign: int
) -> None:
    method = metra(dual_lr=0.02, lr=1e-4)
    batch = make_batch(Sphere(2), 50)
    after = batch.obs + size * torch.from_numpy(OBS.std) * batch.action
    batch = batch._replace(next_obs=after, one_step_obs=after)
    optimizer, before = method.optimizer(), [p.detach().clone() for p in method.phi.parameters()]
    method.representation_step(batch, optimizer)
    assert method.dual.value.item() == pytest.approx(30 * math.exp(sign * 0.02), rel=1e-4)
    moved = [(p - q).abs().max() for p, q in zip(method.phi.parameters(), before, strict=True)]
    assert max(moved).item() == pytest.approx(1e-4, rel=1e-2)  # Adam's first step is its rate


def test_metra_learns_steps_of_length_one() -> None:
    method, batch = metra(lr=1e-2, dual_lr=1e-2), corridors(Sphere(2))
    optimizer = method.optimizer()
    assert optimizer is not None
    for _ in range(400):
        method.update(batch, optimizer)
    squared = method.embed(batch).one_step.square().sum(-1)
    assert squared.mean().item() == pytest.approx(1, abs=0.15)
    assert method.intrinsic_reward(batch).reward.mean() > 0.85  # 1 is the most there is


# --- LSD -----------------------------------------------------------------------------------------


def lsd(**values: Any) -> LSD:
    method = make_method("lsd", Sphere(2), **values)
    assert isinstance(method, LSD)
    return method


def test_lsd_reward_is_the_step_along_the_skill_and_the_loss_minus_its_mean() -> None:
    step = torch.tensor([[0.6, 0.8], [0.0, -2.0]], requires_grad=True)
    batch = two_rows([[1.0, 0.0], [0.6, 0.8]])
    method = lsd()
    features = method.embed(batch)._replace(steps=along(step))
    assert method.reward(batch, features)[0].tolist() == pytest.approx([0.6, -1.6])
    loss, _ = method.loss(batch, features)
    assert loss.item() == pytest.approx(-(0.6 - 1.6) / 2)
    (grad,) = torch.autograd.grad(loss, [step])
    torch.testing.assert_close(grad, -batch.skill / 2)


@pytest.mark.parametrize("space", [Sphere(2), OneHot(5)], ids=repr)
def test_lsd_never_moves_further_than_the_state(space: SkillSpace) -> None:
    """Any two states, after steps that would like to move as far as they can."""
    method = make_method("lsd", space, lr=1e-2)
    assert isinstance(method, LSD)
    optimizer = method.optimizer()
    assert optimizer is not None
    for _ in range(200):
        method.update(corridors(space), optimizer)
    a, b = 5 * torch.randn(2, 500, 2)
    apart = (method.units(a) - method.units(b)).norm(dim=-1)
    embedded = (method.phi(method.units(a)) - method.phi(method.units(b))).norm(dim=-1)
    assert bool((embedded <= apart * 1.01).all())
    assert (embedded / apart).max() > 0.5  # and the bound is not idle


def test_lsd_finds_the_singular_vectors_of_a_layer_once_per_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For both passes and for the block that the next update starts from."""
    method, batch = lsd(), make_batch(Sphere(2), 16)
    layers, original, found = method.phi.layers, SpectralLinear.singular_vectors, []

    def record(layer: SpectralLinear) -> SingularVectors:
        found.append(original(layer))
        return found[-1]

    monkeypatch.setattr(SpectralLinear, "singular_vectors", record)
    method.update(batch._replace(next_obs=2 * batch.obs), method.optimizer())
    assert len(found) == len(layers)
    for layer, vectors in zip(layers, found, strict=True):
        assert torch.equal(layer.block, vectors.block)


def test_lsd_distances_do_not_depend_on_the_units_of_the_observations() -> None:
    """After the units have settled: the same motion in metres and in millimetres."""
    batch, factors = make_batch(Sphere(2), 64), torch.tensor([1000.0, 0.1])
    after = batch.one_step_obs * factors
    scaled = batch._replace(obs=batch.obs * factors, next_obs=after, one_step_obs=after)
    rewards = []
    for rows in (batch, scaled):
        method = lsd(units_from=1)
        method.intrinsic_reward(rows)  # shows it the states
        rewards.append(method.intrinsic_reward(rows).reward)
    torch.testing.assert_close(rewards[0], rewards[1], atol=1e-4, rtol=1e-3)


def test_lsd_looking_does_not_change_the_units() -> None:
    method, batch = lsd(units_from=1000), make_batch(Sphere(2), 64)
    method.eval()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    method.intrinsic_reward(batch)
    method.diagnostics(batch)
    torch.testing.assert_close(method.state_dict(), before)


# --- CSD -----------------------------------------------------------------------------------------


def csd(mean: list[float] | None = None, std: list[float] | None = None, **values: Any) -> CSD:
    """With a density that says the same of every state, where given."""
    method = make_method("csd", Sphere(2), **values)
    assert isinstance(method, CSD)
    if mean is not None and std is not None:
        make_constant(method.density, [*mean, *map(math.log, std)])
    return method


def in_units(x: float, y: float) -> list[float]:
    """The observation whose standardised coordinates are x and y."""
    return (OBS.mean + OBS.std * np.array([x, y])).tolist()


def test_csd_weights_have_product_one_and_shrink_with_the_spread() -> None:
    """sigma = 1, e: the geometric mean of 1 / sigma is e^(-1/2), so the weights are e and 1/e."""
    assert relative_weights(torch.tensor([0.0, 1.0])).tolist() == pytest.approx(
        [math.e, 1 / math.e]
    )
    log_std = torch.randn(50, 7)
    weights = relative_weights(log_std)
    torch.testing.assert_close(weights.prod(-1), torch.ones(50), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(relative_weights(log_std + 3), weights, atol=1e-5, rtol=1e-4)
    assert torch.equal(weights.argmax(-1), log_std.argmin(-1))


def test_csd_distance_and_likelihood_by_hand() -> None:
    """ds = (2, 3), mu = (1, -1), sigma = (1, e): errors 1 and 4."""
    method = csd([1.0, -1.0], [1.0, math.e])
    batch = batch_of([in_units(0, 0)], [in_units(2, 3)], torch.tensor([[1.0, 0.0]]))
    nll, distance = method.surprise(batch)
    assert distance.item() == pytest.approx((math.e * 1 + 16 / math.e) / 2, rel=1e-4)
    wanted = -torch.distributions.Normal(
        torch.tensor([1.0, -1.0]), torch.tensor([1.0, math.e])
    ).log_prob(torch.tensor([2.0, 3.0]))
    assert nll.item() == pytest.approx(wanted.sum().item(), rel=1e-4)
    assert not distance.requires_grad


def test_csd_penalty_is_of_mean_squares_within_the_distance() -> None:
    """d = (1 + 9) / 2 = 5 with equal sigmas; the step (2, 4) has mean square 10: 5 too much."""
    method = csd([0.0, 0.0], [1.0, 1.0], dual=3.0)
    batch = batch_of([in_units(0, 0)], [in_units(1, 3)], torch.tensor([[0.6, 0.8]]))
    step = torch.tensor([[2.0, 4.0]], requires_grad=True)
    loss, metrics = method.loss(batch, along(step))
    nll = math.log(2 * math.pi) + 10 / 2
    progressed = 1.2 + 3.2
    assert loss.item() == pytest.approx(-progressed + 3 * 5 - math.log(3) * 5 + nll, rel=1e-4)
    assert metrics["csd/gap"].item() == pytest.approx(-5, rel=1e-4)
    (grad,) = torch.autograd.grad(loss, [step])
    assert grad.flatten().tolist() == pytest.approx([-0.6 + 3 * 2, -0.8 + 3 * 4], rel=1e-4)


def test_csd_reward_is_ten_times_the_step_along_the_skill() -> None:
    step = torch.tensor([[0.6, 0.8], [0.0, -2.0]])
    batch = two_rows([[1.0, 0.0], [0.6, 0.8]])
    assert csd().reward(batch, along(step))[0].tolist() == pytest.approx([6, -16])
    assert csd(scale=1.0).reward(batch, along(step))[0].tolist() == pytest.approx([0.6, -1.6])


def test_csd_density_learns_from_the_likelihood_alone() -> None:
    method, batch = csd(), make_batch(Sphere(2), 50)
    loss, _ = method.loss(batch, method.embed(batch))
    parameters = list(method.density.parameters())
    wanted = torch.autograd.grad(method.surprise(batch)[0].mean(), parameters)
    torch.testing.assert_close(torch.autograd.grad(loss, parameters), wanted)


def test_csd_multiplier_has_its_own_rate() -> None:
    method, batch = csd(dual_lr=0.02, lr=1e-4, slack=0.1), make_batch(Sphere(2), 50)
    optimizer = method.optimizer()
    assert optimizer is not None
    gap = method.loss(batch, method.embed(batch))[1]["csd/gap"].clamp_max(0.1).mean()
    method.representation_step(batch, optimizer)
    rises = -math.copysign(0.02, gap.item())
    assert method.dual.value.item() == pytest.approx(3000 * math.exp(rises), rel=1e-4)
