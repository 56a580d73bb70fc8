"""Every method's reward and loss against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from comsd.methods.aps import APS
from comsd.methods.becl import BeCL, next_of_same_skill
from comsd.methods.cesd import CeSD, Features, sinkhorn
from comsd.methods.cic import CIC
from comsd.methods.comsd import ComSD
from comsd.methods.contrastive import ContrastiveFeatures
from comsd.methods.dads import DADS
from comsd.methods.diayn import DIAYN
from comsd.skills import Box, OneHot, SkillSpace, Sphere
from comsd.types import Batch
from conftest import make_batch, make_constant, make_method


def contrasted(next_state: Tensor, key: Tensor, state: Tensor | None = None) -> ContrastiveFeatures:
    """Each row with a one-hot query of its own."""
    own = torch.eye(len(key))
    return ContrastiveFeatures(next_state if state is None else state, next_state, key, own, own)


def rows(space: SkillSpace, next_obs: list[list[float]], skill: list[int] | Tensor) -> Batch:
    s = torch.tensor(next_obs, dtype=torch.float)
    z = skill if isinstance(skill, Tensor) else torch.eye(space.dim)[skill]
    nothing = torch.zeros(len(s))
    return Batch(torch.zeros_like(s), torch.zeros_like(s), s, s, z, nothing, nothing)


# --- ComSD ---------------------------------------------------------------------------------------


def comsd(**values: Any) -> ComSD:
    method = make_method("comsd", OneHot(6), **values)
    assert isinstance(method, ComSD)
    return method


def test_dynamic_weight_is_eq_11() -> None:
    """w = (0, 2): with f = (0, 1) the weight is twice the flag; with f = (1/3, 2/3), 6 flag - 2
    between 0 and 2. The paper's clamp names its bounds in the other order, which would give 0."""
    skill = torch.tensor([[0], [1 / 3], [0.5], [2 / 3], [1]])
    weights: dict[str, Any] = {"w_low": 0, "w_high": 2}
    wide = make_method("comsd", Box(1), f_low=0, f_high=1, **weights)
    narrow = make_method("comsd", Box(1), f_low=1 / 3, f_high=2 / 3, **weights)
    assert isinstance(wide, ComSD)
    assert isinstance(narrow, ComSD)
    assert wide.beta(skill).tolist() == pytest.approx([0, 2 / 3, 1, 4 / 3, 2])
    assert narrow.beta(skill).tolist() == pytest.approx([0, 0, 1, 2, 2], abs=1e-6)


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
    q, log_q = (
        comsd(**only, diversity_form=f).intrinsic_reward(batch).reward for f in ("q", "log-q")
    )
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
        method.representation_step(batch, optimizer)
    metrics = method.intrinsic_reward(batch).metrics
    assert metrics["comsd/r_div"].mean() > 5  # the best possible is e^2 = 7.39
    swapped = batch._replace(skill=batch.skill.roll(1, dims=-1))
    assert method.intrinsic_reward(swapped).metrics["comsd/r_div"].mean() < 2


def test_comsd_frozen_random_is_knn_of_an_untrained_net_between_s_and_next_s() -> None:
    method = comsd(diversity=False, knn="frozen-random", knn_form="log1p", k=3)
    assert method.optimizer() is None
    batch = make_batch(OneHot(6), 30)
    reward = method.intrinsic_reward(batch).reward
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
    make_constant(method.mu, [0.0, 0.0])  # every centre at the mean of the maze
    assert method.embed(batch)[0].tolist() == pytest.approx([1 + 1.5**2] * 2)


# --- BeCL ----------------------------------------------------------------------------------------


def test_becl_positive_is_the_next_row_of_the_same_skill() -> None:
    label = torch.tensor([0, 1, 0, 2, 1, 0])
    assert next_of_same_skill(label).tolist() == [2, 4, 5, 3, 1, 0]


def becl_with(features: list[list[float]]) -> BeCL:
    method = make_method("becl", OneHot(2))
    assert isinstance(method, BeCL)
    method.f.forward = lambda x: torch.tensor(features, dtype=x.dtype)
    return method


def test_becl_ratio_on_four_points() -> None:
    """Two skills at right angles, T = 0.5: e^2 / (e^2 + 2), two negatives each."""
    batch = rows(OneHot(2), [[0, 0]] * 4, [0, 0, 1, 1])
    module = becl_with([[2.0, 0], [1, 0], [0, 1], [0, 3]])
    reward = module.intrinsic_reward(batch).reward
    assert reward.tolist() == pytest.approx([math.e**2 / (math.e**2 + 2)] * 4)


def test_becl_confused_skills_earn_a_third() -> None:
    batch = rows(OneHot(2), [[0, 0]] * 4, [0, 1, 0, 1])
    reward = becl_with([[1.0, 0]] * 4).intrinsic_reward(batch).reward
    assert reward.tolist() == pytest.approx([1 / 3] * 4)


def test_becl_row_without_partner_is_left_out() -> None:
    batch = rows(OneHot(2), [[0, 0]] * 3, [0, 0, 1])
    module = becl_with([[1.0, 0], [1, 0], [0, 1]])
    features = module.embed(batch)
    assert module.reward(batch, features)[0][2].item() == 0
    one = -math.log(math.e**2 / (math.e**2 + 1))
    assert module.loss(batch, features)[0].item() == pytest.approx(one)  # of the other two


# --- APS -----------------------------------------------------------------------------------------


def aps(space: SkillSpace | None = None, **values: Any) -> APS:
    method = make_method("aps", space or Sphere(2), None, **values)
    assert isinstance(method, APS)
    return method


def test_aps_feature_reward_is_the_cosine() -> None:
    """w = (0.6, 0.8), phi = (3, 0) and (0, -5): 0.6 and -0.8, whatever the length of phi."""
    skill = torch.tensor([[0.6, 0.8]] * 2)
    batch = rows(Sphere(2), [[0, 0]] * 2, skill)
    phi = torch.tensor([[3.0, 0], [0, -5]])
    method = aps(k=2)
    assert method.reward(batch, phi)[1]["aps/r_sf"].tolist() == pytest.approx([0.6, -0.8])
    assert method.loss(batch, phi)[0].item() == pytest.approx(0.1)


def test_aps_entropy_is_divided_by_the_running_mean() -> None:
    """phi at 0, 1, 3, two neighbours with self: distances 0 1, 0 1, 0 2, so M = 2 / 3."""
    method = aps(k=2)
    phi = torch.tensor([[0.0, 0], [1, 0], [3, 0]])
    batch = rows(Sphere(2), [[0, 0]] * 3, torch.tensor([[0.0, 1]] * 3))  # at right angles to phi
    reward, metrics = method.reward(batch, phi)
    wanted = [math.log1p((d * 3 / 2 - 1e-4) / 2) for d in (1, 1, 2)]
    assert reward.tolist() == pytest.approx(wanted)
    assert metrics["aps/mean"].item() == pytest.approx(2 / 3)


def test_aps_has_twelve_neighbours_and_no_scale_of_its_own() -> None:
    """Thirteen points in a row: the end misses the last; ten times as far apart, the same."""
    wanted = None
    for step in (1.0, 10.0):
        method = aps()
        phi = torch.zeros(13, 2)
        phi[:, 0] = step * torch.arange(13.0)
        skill = torch.tensor([[0.0, 1]] * 13)
        reward = method.reward(rows(Sphere(2), [[0, 0]] * 13, skill), phi)[0]
        table = (phi[:, :1] - phi[:, 0]).abs().sort(1).values[:, :12]
        first = (torch.arange(12.0) * step / table.mean() - 1e-4).clamp_min(0).mean().log1p()
        assert reward[0].item() == pytest.approx(first.item(), rel=1e-5)
        wanted = reward if wanted is None else wanted
        torch.testing.assert_close(reward, wanted)


@pytest.mark.parametrize("scale", [1.0, -20.0])
def test_aps_regression_finds_the_skill_behind_the_rewards(scale: float) -> None:
    """R = scale * (w . u): the skill is w, or -w, of length one."""
    method, space = aps(Sphere(3)), Sphere(3)
    batch = make_batch(space, 500)
    w = torch.tensor([2.0, -1.0, 2.0]) / 3
    u = F.normalize(method.embed(batch), dim=-1).detach()
    found = method.regress_skill(batch._replace(reward=scale * u @ w))
    assert found.tolist() == pytest.approx((math.copysign(1, scale) * w).tolist(), abs=0.05)
    assert found.norm().item() == pytest.approx(1)


def test_aps_ridge_by_hand() -> None:
    """Two orthogonal features, R = (3, 4): U'U = I, w = R / 1.001, which is (0.6, 0.8)."""
    method, space = aps(), Sphere(2)
    method.phi.forward = lambda x: torch.eye(2, dtype=x.dtype)
    batch = rows(space, [[0, 0]] * 2, torch.eye(2))._replace(reward=torch.tensor([3.0, 4.0]))
    assert method.regress_skill(batch).tolist() == pytest.approx([0.6, 0.8])
    zero = method.regress_skill(batch._replace(reward=torch.zeros(2)))
    assert zero.norm().item() == pytest.approx(1)  # rewards that say nothing: any skill


def test_other_methods_cannot_regress() -> None:
    assert make_method("diayn", OneHot(2)).regress_skill(make_batch(OneHot(2), 4)) is None


# --- CeSD ----------------------------------------------------------------------------------------


def cesd(dim: int = 2, **values: Any) -> CeSD:
    method = make_method("cesd", OneHot(dim), None, **values)
    assert isinstance(method, CeSD)
    return method


def test_sinkhorn_on_two_by_two() -> None:
    """exp(logits) = [[4, 1], [1, 1]]. Once: columns by 5 and 2, then rows by 1.3 and 0.7.

    In the limit [[x, 1 - x], [1 - x, x]] with the same cross ratio: x^2 / (1 - x)^2 = 4.
    """
    logits = torch.tensor([[4.0, 1], [1, 1]]).log()
    once = [[0.8 / 1.3, 0.5 / 1.3], [0.2 / 0.7, 0.5 / 0.7]]
    torch.testing.assert_close(sinkhorn(logits, 1), torch.tensor(once))
    torch.testing.assert_close(sinkhorn(logits, 50), torch.tensor([[2.0, 1], [1, 2]]) / 3)


def test_sinkhorn_balances_what_leans_to_one_side() -> None:
    q = sinkhorn(torch.randn(60, 4) + torch.tensor([5.0, 0, 0, 0]), 30)
    torch.testing.assert_close(q.sum(1), torch.ones(60))
    torch.testing.assert_close(q.sum(0), torch.full((4,), 15.0), rtol=1e-3, atol=1e-3)


def embedded(state: Tensor, next_state: Tensor) -> ContrastiveFeatures:
    return contrasted(next_state, next_state, state)


def test_cesd_prototype_loss_by_hand() -> None:
    """Prototypes along the axes, s' on them: q is even after balancing; p = softmax(1 / 0.1, 0)."""
    method = cesd()
    with torch.no_grad():
        method.prototypes.copy_(2 * torch.eye(2))
    x = embedded(torch.tensor([[5.0, 0], [0, 3]]), torch.eye(2))
    loss = method.prototype_loss(x).item()
    q = 1 / (1 + math.exp(-10))  # symmetric, so Sinkhorn leaves the softmax as it is
    log_p, log_not = -math.log1p(math.exp(-10)), -10 - math.log1p(math.exp(-10))
    assert loss == pytest.approx(-(q * log_p + (1 - q) * log_not), rel=1e-3)


def test_cesd_prototype_gradient_by_hand() -> None:
    """Prototypes along a state and at 60 degrees from it; (p - q) of the state's part across each.

    Along a prototype the gradient is zero: its length does not matter.
    """
    method = cesd(sharpness=1.0)
    side = math.sqrt(0.75)
    with torch.no_grad():
        method.prototypes.copy_(torch.tensor([[3.0, 0], [1.0, 2 * side]]))  # lengths 3 and 2
    x = embedded(torch.tensor([[1.0, 0]]), torch.tensor([[1.0, 0]]))
    (grad,) = torch.autograd.grad(method.prototype_loss(x), [method.prototypes])
    p = math.exp(0.5) / (math.exp(1) + math.exp(0.5))  # of the second; balanced q is even
    wanted = (p - 0.5) / 2 * torch.tensor([0.75, -0.5 * side])  # state less its part along u
    assert grad[0].tolist() == pytest.approx([0, 0], abs=1e-6)
    torch.testing.assert_close(grad[1], wanted)


def cesd_case(method: CeSD) -> tuple[Tensor, Any, Tensor | None]:
    """Partition 0: states 0, 1, 3 of skills 0, 0, 1; partition 1: states 100, 104 of skill 1."""
    partition = torch.eye(2)[[0, 0, 0, 1, 1]]
    state = torch.tensor([[0.0, 0], [1, 0], [3, 0], [100, 0], [104, 0]])
    batch = rows(OneHot(2), [[0, 0]] * 5, [0, 0, 1, 1, 1])
    features = Features(contrasted(state, state), partition)
    reward, metrics = method.reward(batch, features)
    return reward, metrics, method.value_skill(batch, features)


def test_cesd_reward_stays_within_the_partition() -> None:
    """Two neighbours with self: 1 1 2 in one partition, 4 4 in the other, none across."""
    reward, metrics, value_skill = cesd_case(cesd(k=2, weight=0.5))
    variance = np.var([0, 1, 0, 1, 0, 2, 0, 4, 0, 4])
    r_ent = [math.log1p((d / variance - 5e-4) / 2) for d in (1, 1, 2, 4, 4)]
    r_con = [0.5 / 2] * 3 + [0.5] * 2  # one stranger among the first, none among the others
    assert metrics["cesd/r_ent"].tolist() == pytest.approx(r_ent, rel=1e-4)
    assert metrics["cesd/r_con"].tolist() == pytest.approx(r_con)
    assert reward.tolist() == pytest.approx(np.add(r_ent, r_con), rel=1e-4)
    assert value_skill is not None
    assert value_skill.argmax(-1).tolist() == [0, 0, 0, 1, 1]  # the third row acted for skill 1
    assert metrics["cesd/own"].tolist() == [1, 1, 0, 1, 1]


def test_cesd_neighbours_that_a_partition_lacks_do_not_count() -> None:
    """Three neighbours wanted: the partition of two has 0 and 4, and its mean is over two."""
    method = cesd(k=3)
    _, metrics, _ = cesd_case(method)
    found = [0, 1, 3, 0, 1, 2, 0, 2, 3, 0, 4, 0, 4]
    variance = np.var(found)
    r_ent = [
        math.log1p((a / variance + b / variance - 1e-3) / 3) for a, b in ((1, 3), (1, 2), (2, 3))
    ]
    r_ent += [math.log1p((4 / variance - 5e-4) / 2)] * 2
    assert metrics["cesd/r_ent"].tolist() == pytest.approx(r_ent, rel=1e-4)
    assert method.entropy.moments.count.item() == len(found)
    assert method.entropy.moments.variance.item() == pytest.approx(variance, rel=1e-5)


def test_cesd_without_relabelling_pays_nothing_outside() -> None:
    reward, _, value_skill = cesd_case(cesd(k=2, outside="nothing"))
    paid, _, _ = cesd_case(cesd(k=2))
    assert value_skill is None
    assert reward.tolist() == pytest.approx([*paid[:2].tolist(), 0, *paid[3:].tolist()])


def test_cesd_draws_partitions_in_proportion_and_takes_the_likeliest_otherwise() -> None:
    """cos = 1 and cos(60 degrees) = 0.5 at temperature 0.5: odds of e^1, 0.731 to 0.269."""
    method = cesd(sharpness=0.5)
    with torch.no_grad():
        method.prototypes.copy_(torch.tensor([[1.0, 0], [0.5, math.sqrt(0.75)]]))
    state = torch.tensor([[2.0, 0]]).repeat(20_000, 1)
    x = contrasted(state, state)
    torch.manual_seed(0)
    share = method.assigned(x).partition[:, 0].mean().item()
    assert share == pytest.approx(1 / (1 + math.exp(-1)), abs=0.01)
    assert bool((method.eval().assigned(x).partition[:, 0] == 1).all())
