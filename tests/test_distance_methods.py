"""METRA, LSD and CSD against numbers worked out by hand, and the terms they share."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import comsd
from comsd.errors import InputError
from comsd.learners.off_policy import OffPolicyLearner
from comsd.methods.csd import CSD, relative_weights
from comsd.methods.lsd import LSD
from comsd.methods.metra import METRA
from comsd.nets import MLP, Adam, Lipschitz, Units
from comsd.registry import METHODS
from comsd.resolve import resolve
from comsd.skills import OneHot, SkillSpace, Sphere
from comsd.terms import Dual, Moves, cosines, moves, progress
from comsd.types import Batch, ObsInfo
from conftest import OBS, make_batch, make_method
from processes import SMALL, fingerprint

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
    return batch._replace(next_obs=after, near=after)


def along(step: Tensor, whole: Tensor | None = None) -> Moves:
    """Moves in phi that are given; by default of one step."""
    return Moves(step, step.detach() if whole is None else whole)


# --- what they share -----------------------------------------------------------------------------


def test_moves_are_differences_of_embeddings_one_step_and_the_whole_way() -> None:
    phi, batch = MLP(2, 8, 3), make_batch(Sphere(2), 5)
    s, near, after = torch.randn(3, 5, 2)
    step, whole = moves(phi, batch._replace(obs=s, near=near, next_obs=after))
    torch.testing.assert_close(step, phi(near) - phi(s))
    torch.testing.assert_close(whole, phi(after) - phi(s))
    assert step.requires_grad
    assert not whole.requires_grad
    step, whole = moves(phi, batch._replace(obs=s, near=near, next_obs=near))
    assert whole is step


def test_progress_is_the_step_along_the_skill() -> None:
    step = torch.tensor([[2.0, 1.0, -1.0]])
    assert progress(step, torch.tensor([[0.0, 0.6, 0.8]])).item() == pytest.approx(-0.2)
    first = OneHot(3).direction(torch.eye(3)[:1])  # 1, -1/2, -1/2
    assert progress(step, first).item() == pytest.approx(2 - 0.5 + 0.5)
    opposite = cosines(torch.tensor([[0.0, 2.0]]), torch.tensor([[3.0, 4.0], [0.0, -1.0]]))
    assert opposite[0].tolist() == pytest.approx([0.8, -1.0])


def test_progress_telescopes() -> None:
    phi, path, z = MLP(2, 8, 3), torch.randn(10, 2), torch.randn(1, 3)
    steps = make_batch(Sphere(2), 9)._replace(obs=path[:-1], near=path[1:], next_obs=path[1:])
    ends = make_batch(Sphere(2), 1)._replace(obs=path[:1], near=path[1:2], next_obs=path[-1:])
    torch.testing.assert_close(
        progress(moves(phi, steps).step, z).sum(), progress(moves(phi, ends).whole, z).sum()
    )


def test_the_dual_term_has_one_gradient_for_the_gap_and_another_for_lam() -> None:
    dual, gap = Dual(start=3.0, slack=0.1), torch.tensor([0.5, -2.0], requires_grad=True)
    term = dual(gap)
    counted = (0.1 - 2.0) / 2
    assert term.item() == pytest.approx(math.log(3) * counted - 3 * counted)
    to_gap, to_log = torch.autograd.grad(term, [gap, dual.log])
    assert to_gap.tolist() == pytest.approx([0, -3 / 2])  # the slack row moves nothing
    assert to_log.item() == pytest.approx(counted)


def test_a_lipschitz_network_divides_each_weight_by_its_largest_singular_value() -> None:
    torch.manual_seed(0)
    net = Lipschitz(3, 12, 12, 4, init="uniform")
    plain = MLP(3, 12, 12, 4)
    with torch.no_grad():
        plain.flat.copy_(net.flat)
        for weight, _ in plain.layers:
            weight /= torch.linalg.matrix_norm(weight, 2)
    x = torch.randn(20, 3)
    torch.testing.assert_close(net(x), plain(x), atol=1e-4, rtol=1e-4)


def test_the_lipschitz_gradient_passes_through_the_singular_value() -> None:
    torch.manual_seed(0)
    net, x = Lipschitz(3, 6, 2, init="uniform"), torch.randn(20, 3)
    (ours,) = torch.autograd.grad(net(x).square().sum(), [net.flat])
    flat = net.flat.detach().clone().requires_grad_()
    (w1, b1), (w2, b2) = net.views(flat)[0]
    hidden = (x @ (w1 / torch.linalg.matrix_norm(w1, 2)).T + b1).relu()
    y = hidden @ (w2 / torch.linalg.matrix_norm(w2, 2)).T + b2
    (exact,) = torch.autograd.grad(y.square().sum(), [flat])
    torch.testing.assert_close(ours, exact, atol=1e-3, rtol=1e-3)


def test_a_lipschitz_pass_changes_nothing_and_settling_follows_the_weights() -> None:
    torch.manual_seed(0)
    net, x = Lipschitz(3, 12, 4), torch.randn(20, 3)
    before = net.left.clone()
    assert torch.equal(net(x), net(x))
    assert torch.equal(net.left, before)
    with torch.no_grad():
        net.flat.add_(torch.randn_like(net.flat))
    for _ in range(100):
        net.settle()
    net(x)
    for weight, _ in net.layers:
        assert torch.linalg.matrix_norm(weight, 2).item() == pytest.approx(1, abs=1e-3)
    twin = copy.deepcopy(net)
    assert torch.equal(twin(x), net(x))


def test_a_wide_lipschitz_network_keeps_its_slope_while_its_weights_grow() -> None:
    """One iteration per step follows what Adam adds to the first singular direction."""
    torch.manual_seed(0)
    net = Lipschitz(24, 512, 512, 4)
    optimizer, slopes = Adam(net.parameters(), 3e-4), []
    for _ in range(40):
        y = net(torch.randn(64, 24))
        slopes.append(math.prod(torch.linalg.matrix_norm(w, 2).item() for w, _ in net.layers))
        net.settle()
        optimizer.descend(-y.mean())
    assert max(slopes) < 1.1
    assert slopes[-1] == pytest.approx(1, abs=0.01)


def test_units_are_those_of_the_first_rows_and_then_stay() -> None:
    info = ObsInfo(2, torch.tensor([1.0, 2.0]), torch.tensor([2.0, 4.0]))
    x = torch.randn(90, 2) * torch.tensor([3.0, 0.5]) + 7
    fixed, units = Units(info, 0), Units(info, 60)
    wanted = [[1.0, -1.0]]
    assert fixed(torch.tensor([[3.0, -2.0]])).tolist() == wanted
    assert units(torch.tensor([[3.0, -2.0]])).tolist() == wanted  # until there is something to see
    for part in x.split(30):
        fixed.observe(part)
        units.observe(part)  # the third is one too many
    assert fixed(torch.tensor([[3.0, -2.0]])).tolist() == wanted
    seen = x[:60]
    torch.testing.assert_close(units(x), (x - seen.mean(0)) / seen.std(0, correction=0))


def test_a_coordinate_that_never_changes_has_a_bounded_scale() -> None:
    units = Units(ObsInfo(1, torch.zeros(1), torch.ones(1)), 10)
    units.observe(torch.full((10, 1), 5.0))
    assert units(torch.tensor([[5.1]])).item() == pytest.approx(10, rel=1e-3)


@pytest.mark.parametrize("name", DISTANCE)
def test_only_spaces_with_directions_are_accepted(name: str) -> None:
    with pytest.raises(InputError, match=f"allowed for {name}: one-hot, sphere"):
        resolve(name, "walker", space="box")


@pytest.mark.parametrize("name", DISTANCE)
def test_robots_give_windows_of_one_long_held_skill(name: str) -> None:
    config = resolve(name, "walker")
    train: Any = config.train
    assert (train.n_step, train.one_skill, train.hold) == (3, True, 200)
    space = ("one-hot", 16) if name == "csd" else ("sphere", 4)
    assert (config.run.space, config.run.skills) == space
    assert all(config.sources[f"train.{key}"] for key in ("one_skill", "hold"))
    assert resolve(name, "maze-tree").run.space == "one-hot"


@pytest.mark.parametrize("name", DISTANCE)
def test_skills_that_move_along_themselves_are_recognised(name: str) -> None:
    method = make_method(name, Sphere(2), lr=1e-2)
    batch = corridors(Sphere(2))
    optimizer = method.optimizer()
    assert optimizer is not None
    for _ in range(200):
        method.learn(batch, optimizer)
    assert method.health(batch)[f"{name}/cosine"] > 0.9
    assert method.lesson(batch).reward.mean() > 0


@pytest.mark.parametrize("name", DISTANCE)
def test_a_resumed_run_on_a_robot_equals_the_undisturbed_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = SMALL | {"steps": 400}
    del settings["skills"]
    comsd.pretrain(name, run=tmp_path / "whole", **settings)
    with monkeypatch.context() as patch:
        cycle, done = OffPolicyLearner.train_step, 0

        def fails(learner: OffPolicyLearner) -> Any:
            nonlocal done
            done += 1
            if done == 90:
                raise ArithmeticError
            return cycle(learner)

        patch.setattr(OffPolicyLearner, "train_step", fails)
        with pytest.raises(ArithmeticError):
            comsd.pretrain(name, run=tmp_path / "broken", **settings)
    comsd.resume(tmp_path / "broken")
    assert fingerprint(tmp_path / "broken") == fingerprint(tmp_path / "whole")


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


@pytest.mark.parametrize("name", DISTANCE)
def test_the_loss_is_about_one_step_and_the_reward_about_the_whole_window(name: str) -> None:
    batch = make_batch(Sphere(2), 40)
    near, far = batch.obs + 0.3 * batch.action, batch.obs - 2 * batch.action
    window = batch._replace(near=near, next_obs=far)

    def judged(batch: Batch) -> tuple[Tensor, Tensor]:
        method = make_method(name, Sphere(2))
        features = method.embed(batch)
        return method.loss(batch, features)[0], method.lesson(batch, features).reward

    loss, reward = judged(window)
    torch.testing.assert_close(loss, judged(batch._replace(near=near, next_obs=near))[0])
    torch.testing.assert_close(reward, judged(batch._replace(near=far, next_obs=far))[1])


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
    after = batch.obs + size * OBS.std * batch.action
    batch = batch._replace(next_obs=after, near=after)
    optimizer, before = method.optimizer(), method.phi.flat.detach().clone()
    assert optimizer is not None
    method.descend(batch, optimizer)
    assert method.dual.value.item() == pytest.approx(30 * math.exp(sign * 0.02), rel=1e-4)
    moved = (method.phi.flat - before).abs().max().item()
    assert moved == pytest.approx(1e-4, rel=1e-2)  # Adam's first step is its rate


def test_metra_learns_steps_of_length_one() -> None:
    method, batch = metra(lr=1e-2, dual_lr=1e-2), corridors(Sphere(2))
    optimizer = method.optimizer()
    assert optimizer is not None
    for _ in range(400):
        method.learn(batch, optimizer)
    squared = method.embed(batch).step.square().sum(-1)
    assert squared.mean().item() == pytest.approx(1, abs=0.15)
    assert method.lesson(batch).reward.mean() > 0.85  # 1 is the most there is


# --- LSD -----------------------------------------------------------------------------------------


def lsd(**values: Any) -> LSD:
    method = make_method("lsd", Sphere(2), **values)
    assert isinstance(method, LSD)
    return method


def test_lsd_reward_is_the_step_along_the_skill_and_the_loss_minus_its_mean() -> None:
    step = torch.tensor([[0.6, 0.8], [0.0, -2.0]], requires_grad=True)
    batch = two_rows([[1.0, 0.0], [0.6, 0.8]])
    assert lsd().reward(batch, along(step.detach()))[0].tolist() == pytest.approx([0.6, -1.6])
    loss, _ = lsd().loss(batch, along(step))
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
        method.learn(corridors(space), optimizer)
    a, b = 5 * torch.randn(2, 500, 2)
    apart = (method.units(a) - method.units(b)).norm(dim=-1)
    embedded = (method.phi(method.units(a)) - method.phi(method.units(b))).norm(dim=-1)
    assert bool((embedded <= apart * 1.01).all())
    assert (embedded / apart).max() > 0.5  # and the bound is not idle


def test_lsd_distances_do_not_depend_on_the_units_of_the_observations() -> None:
    """After the units have settled: the same motion in metres and in millimetres."""
    batch, factors = make_batch(Sphere(2), 64), torch.tensor([1000.0, 0.1])
    after = batch.near * factors
    scaled = batch._replace(obs=batch.obs * factors, next_obs=after, near=after)
    rewards = []
    for rows in (batch, scaled):
        method = lsd(units_from=1)
        method.lesson(rows)  # shows it the states
        rewards.append(method.lesson(rows).reward)
    torch.testing.assert_close(rewards[0], rewards[1], atol=1e-4, rtol=1e-3)


def test_lsd_looking_does_not_change_the_units() -> None:
    method, batch = lsd(units_from=1000), make_batch(Sphere(2), 64)
    method.eval()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    method.lesson(batch)
    method.health(batch)
    torch.testing.assert_close(method.state_dict(), before)


# --- CSD -----------------------------------------------------------------------------------------


def csd(mean: list[float] | None = None, std: list[float] | None = None, **values: Any) -> CSD:
    """With a density that says the same of every state, where given."""
    method = make_method("csd", Sphere(2), **values)
    assert isinstance(method, CSD)
    if mean is not None and std is not None:
        with torch.no_grad():
            method.density.flat.zero_()
            method.density.layers[-1][1].copy_(torch.tensor([*mean, *map(math.log, std)]))
    return method


def in_units(x: float, y: float) -> list[float]:
    """The observation whose standardised coordinates are x and y."""
    return (OBS.mean + OBS.std * torch.tensor([x, y])).tolist()


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
    (ours,) = torch.autograd.grad(loss, [method.density.flat])
    (wanted,) = torch.autograd.grad(method.surprise(batch)[0].mean(), [method.density.flat])
    torch.testing.assert_close(ours, wanted)


def test_csd_multiplier_has_its_own_rate() -> None:
    method, batch = csd(dual_lr=0.02, lr=1e-4, slack=0.1), make_batch(Sphere(2), 50)
    optimizer = method.optimizer()
    assert optimizer is not None
    gap = method.loss(batch, method.embed(batch))[1]["csd/gap"].clamp_max(0.1).mean()
    method.descend(batch, optimizer)
    rises = -math.copysign(0.02, gap.item())
    assert method.dual.value.item() == pytest.approx(3000 * math.exp(rises), rel=1e-4)


def test_every_method_here_is_registered() -> None:
    assert set(DISTANCE) <= METHODS.keys()
