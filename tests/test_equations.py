"""Every method's reward and loss against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from comsd.contrast import Contrasted
from comsd.methods.becl import BeCL, partners
from comsd.methods.cic import CIC
from comsd.methods.comsd import ComSD
from comsd.methods.dads import DADS
from comsd.methods.diayn import DIAYN
from comsd.skills import Box, OneHot, SkillSpace
from comsd.types import Batch
from conftest import make_batch, make_method


def contrasted(state: Tensor, key: Tensor) -> Contrasted:
    """Each row with a one-hot query of its own."""
    return Contrasted(state, key, torch.eye(len(key)), torch.eye(len(key)))


def rows(space: SkillSpace, next_obs: list[list[float]], skill: list[int] | Tensor) -> Batch:
    s = torch.tensor(next_obs)
    z = skill if isinstance(skill, Tensor) else torch.eye(space.dim)[skill]
    nothing = torch.zeros(len(s))
    return Batch(torch.zeros_like(s), torch.zeros_like(s), s, z, nothing, nothing)


# --- ComSD ---------------------------------------------------------------------------------------


def comsd(**values: Any) -> ComSD:
    method = make_method("comsd", OneHot(6), **values)
    assert isinstance(method, ComSD)
    return method


def test_comsd_maze_weights_are_equal_steps_from_one_half_to_one() -> None:
    weights = comsd().beta(torch.eye(6)).tolist()
    assert weights == pytest.approx([0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    assert comsd(smw=False).beta(torch.eye(6)).tolist() == pytest.approx([0.75] * 6)


def test_comsd_reward_is_eq_12() -> None:
    """r = r_exp + alpha * beta(z) * q: all three parts by hand for one row of a batch."""
    method = comsd(k=2, alpha=0.3)
    batch = rows(OneHot(6), [[0, 0], [1, 0], [3, 0]], [0, 5, 3])
    features = method.embed(batch)
    reward, metrics = method.reward(batch, features)
    assert features is not None
    key = features.key[1]
    q = math.exp(key[5].item() / key.norm().item() / 0.5)  # the one-hot query picks coordinate 5
    r_exp = (math.log(1.001) + math.log(2.001)) / 2  # distances 1 and 2
    assert reward[1].item() == pytest.approx(r_exp + 0.3 * 1.0 * q, rel=1e-5)
    assert metrics["comsd/r_exp"].mean().item() == pytest.approx(
        np.mean([math.log(a + 1e-3) for a in (1, 3, 1, 2, 2, 3)])
    )


def test_comsd_diversity_reward_is_q_or_log_q() -> None:
    batch = make_batch(OneHot(6), 20)
    only = {"exploration": False, "alpha": 1.0, "smw": False, "w_low": 1.0, "w_high": 1.0}
    q, log_q = (comsd(**only, diversity_form=f).rewards(batch)[0] for f in ("q", "log-q"))
    torch.testing.assert_close(q.log(), log_q)
    assert bool((q >= math.exp(-2)).all())
    assert bool((q <= math.exp(2) + 1e-4).all())


def test_comsd_diversity_reward_is_not_constant_after_fitting() -> None:
    """The released maze code zeroes the query: loss constant, reward 1 everywhere."""
    method = comsd()
    batch = make_batch(OneHot(6), 120)
    place = torch.stack([space_index := batch.skill @ torch.arange(6.0), -space_index], -1)
    batch = batch._replace(obs=place, next_obs=place)
    optimizer = method.optimizer()
    assert optimizer is not None
    for _ in range(300):
        method.descend(batch, optimizer)
    _, metrics = method.rewards(batch)
    assert metrics["comsd/r_div"].mean() > 5  # the best possible is e^2 = 7.39
    swapped = batch._replace(skill=batch.skill.roll(1, dims=-1))
    assert method.rewards(swapped)[1]["comsd/r_div"].mean() < 2


def test_comsd_frozen_random_is_knn_of_an_untrained_net_between_s_and_next_s() -> None:
    method = comsd(diversity=False, knn="frozen-random", knn_form="log1p", k=3)
    assert method.optimizer() is None
    batch = make_batch(OneHot(6), 30)
    reward = method.rewards(batch)[0]
    net = method.f_frozen
    distances = (net(batch.obs)[:, None] - net(batch.next_obs)).norm(dim=-1).sort(1).values[:, :3]
    variance = distances.var(correction=0)
    wanted = (distances / variance - 5e-4).clamp_min(0).mean(1).log1p()
    torch.testing.assert_close(reward, wanted, rtol=1e-4, atol=1e-4)


def test_comsd_box_flag_is_the_first_coordinate() -> None:
    method = make_method("comsd", Box(3), family=None)
    assert isinstance(method, ComSD)
    skill = torch.tensor([[0.0, 0.9, 0.9], [0.5, 0.1, 0.1], [1.0, 0.2, 0.2]])
    assert method.beta(skill).tolist() == [0, 1, 2]


# --- CIC -----------------------------------------------------------------------------------------


def test_cic_reward_is_knn_entropy_of_the_state_embedding() -> None:
    method = make_method("cic", OneHot(3), k=2)
    assert isinstance(method, CIC)
    state = torch.tensor([[0.0, 0, 0], [1.0, 0, 0], [3.0, 0, 0]])
    reward, _ = method.reward(rows(OneHot(3), [[0, 0]] * 3, [0, 1, 2]), contrasted(state, state))
    variance = 5 / 9
    wanted = [math.log1p((d / variance - 5e-4) / 2) for d in (1, 1, 2)]
    assert reward.tolist() == pytest.approx(wanted)


def test_cic_loss_at_perfect_alignment() -> None:
    """Three skills, keys equal to their queries, T = 0.5: log(e^2 + 2) - 2."""
    method = make_method("cic", OneHot(3))
    features = contrasted(torch.eye(3), torch.eye(3))
    loss, _ = method.loss(rows(OneHot(3), [[0, 0]] * 3, [0, 1, 2]), features)
    assert loss.item() == pytest.approx(math.log(math.e**2 + 2) - 2)


def test_cic_running_variance_remembers_earlier_batches() -> None:
    method = make_method("cic", OneHot(3), k=2)
    assert isinstance(method, CIC)
    batch = rows(OneHot(3), [[0, 0]] * 3, [0, 1, 2])
    near, far = torch.tensor([[0.0], [1], [3]]), torch.tensor([[0.0], [10], [30]])
    method.reward(batch, contrasted(near, near))
    method.reward(batch, contrasted(far, far))
    wanted = np.var([0, 1, 0, 1, 0, 2, 0, 10, 0, 10, 0, 20])
    assert method.entropy.moments.variance.item() == pytest.approx(wanted)


# --- DIAYN ---------------------------------------------------------------------------------------


def diayn() -> DIAYN:
    method = make_method("diayn", OneHot(2))
    assert isinstance(method, DIAYN)
    return method


def test_diayn_reward_of_even_logits_is_zero() -> None:
    """log 1/2 + log 2 = 0."""
    batch = rows(OneHot(2), [[0, 0]], [1])
    assert diayn().reward(batch, torch.zeros(1, 2))[0].tolist() == pytest.approx([0])


def test_diayn_reward_at_known_logits() -> None:
    """Logits (log 3, 0): q = 3/4 and 1/4."""
    logits = torch.tensor([[math.log(3), 0.0]] * 2)
    reward, metrics = diayn().reward(rows(OneHot(2), [[0, 0]] * 2, [0, 1]), logits)
    assert reward.tolist() == pytest.approx([math.log(1.5), math.log(0.5)])
    assert metrics["diayn/accuracy"].mean().item() == 0.5


def test_diayn_loss_is_the_cross_entropy() -> None:
    logits = torch.tensor([[math.log(3), 0.0]] * 2)
    loss, _ = diayn().loss(rows(OneHot(2), [[0, 0]] * 2, [0, 1]), logits)
    assert loss.item() == pytest.approx(-(math.log(0.75) + math.log(0.25)) / 2)


# --- DADS ----------------------------------------------------------------------------------------


def dads() -> DADS:
    method = make_method("dads", OneHot(2))
    assert isinstance(method, DADS)
    return method


def test_dads_reward_by_hand() -> None:
    """Squared distances 0 and 1: 0 - log((1 + 1/e) / 2)."""
    batch = rows(OneHot(2), [[0, 0]], [0])
    reward, _ = dads().reward(batch, torch.tensor([[0.0, 1.0]]))
    assert reward.item() == pytest.approx(-math.log((1 + math.exp(-1)) / 2))


def test_dads_reward_is_bounded_and_survives_distance() -> None:
    """exp(-200) is zero in float32; the reward far from all skills must stay finite."""
    batch = rows(OneHot(2), [[0, 0]] * 2, [0, 1])
    reward, _ = dads().reward(batch, torch.tensor([[200.0, 300.0]] * 2))
    assert reward.tolist() == pytest.approx([math.log(2), math.log(2) - 100], rel=1e-4)


def test_dads_distances_are_in_maze_units() -> None:
    """mu works in standardised units; what the loss sees are raw coordinates."""
    method = dads()
    batch = rows(OneHot(2), [[1.0, -2.0]], [0])
    with torch.no_grad():
        method.mu.flat.zero_()  # every centre at the mean of the maze
    assert method.embed(batch)[0].tolist() == pytest.approx([1 + 1.5**2] * 2)


# --- BeCL ----------------------------------------------------------------------------------------


def test_becl_partner_is_the_next_row_of_the_same_skill() -> None:
    assert partners(torch.tensor([0, 1, 0, 2, 1, 0])).tolist() == [2, 4, 5, 3, 1, 0]


def becl_with(features: list[list[float]]) -> BeCL:
    method = make_method("becl", OneHot(2))
    assert isinstance(method, BeCL)
    method.f.forward = lambda x, *, frozen=False: torch.tensor(features, dtype=x.dtype)  # noqa: ARG005
    return method


def test_becl_ratio_on_four_points() -> None:
    """Two skills at right angles, T = 0.5: e^2 / (e^2 + 2), two negatives each."""
    batch = rows(OneHot(2), [[0, 0]] * 4, [0, 0, 1, 1])
    module = becl_with([[2.0, 0], [1, 0], [0, 1], [0, 3]])
    reward = module.rewards(batch)[0]
    assert reward.tolist() == pytest.approx([math.e**2 / (math.e**2 + 2)] * 4)


def test_becl_confused_skills_earn_a_third() -> None:
    batch = rows(OneHot(2), [[0, 0]] * 4, [0, 1, 0, 1])
    reward = becl_with([[1.0, 0]] * 4).rewards(batch)[0]
    assert reward.tolist() == pytest.approx([1 / 3] * 4)


def test_becl_row_without_partner_is_left_out() -> None:
    batch = rows(OneHot(2), [[0, 0]] * 3, [0, 0, 1])
    module = becl_with([[1.0, 0], [1, 0], [0, 1]])
    features = module.embed(batch)
    assert module.reward(batch, features)[0][2].item() == 0
    one = -math.log(math.e**2 / (math.e**2 + 1))
    assert module.loss(batch, features)[0].item() == pytest.approx(2 * one / 3)
