"""DIAYN, DADS, BeCL and SMM in their robot forms: numbers worked out by hand, and values."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from comsd.methods.becl import BeCL, next_of_same_skill
from comsd.methods.dads import DADS
from comsd.methods.diayn import DIAYN
from comsd.methods.smm import SMM, SMMConfig
from comsd.registry import METHODS
from comsd.skills import Box, OneHot, SkillSpace
from comsd.types import Batch
from conftest import make_batch, make_constant, make_method, plain_obs


def rows(skill: Tensor, obs: list[list[float]], next_obs: list[list[float]] | None = None) -> Batch:
    s = torch.tensor(obs)
    nothing = torch.zeros(len(s))
    after = s if next_obs is None else torch.tensor(next_obs)
    return Batch(s, torch.zeros_like(s), after, after, skill, nothing, nothing)


class Fixed(nn.Module):
    """A network whose output is given."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.output = output

    def forward(self, _: Tensor) -> Tensor:
        return self.output


# --- DIAYN ---------------------------------------------------------------------------------------


def diayn_that_says(logits: list[float]) -> DIAYN:
    method = make_method("diayn", OneHot(len(logits)), "robots")
    assert isinstance(method, DIAYN)
    make_constant(method.classifier, logits)
    return method


def test_diayn_reward_of_three_skills() -> None:
    """Logits log 2, 0, log 5: q = 1/4, 1/8, 5/8, each times K = 3."""
    method = diayn_that_says([math.log(2), 0.0, math.log(5)])
    reward, metrics, _ = method.intrinsic_reward(rows(torch.eye(3), [[0.0, 1.0]] * 3))
    assert reward.tolist() == pytest.approx([math.log(3 / 4), math.log(3 / 8), math.log(15 / 8)])
    assert metrics["diayn/accuracy"].tolist() == [0, 0, 1]


def test_diayn_reward_is_at_most_log_k_and_finite_when_surely_wrong() -> None:
    """q = 1 gives log 4; a logit short by 200 gives log 4 - 200, where q is 0 in float32."""
    reward = (
        diayn_that_says([200.0, 0, 0, 0])
        .intrinsic_reward(rows(torch.eye(4)[:2], [[0.0, 0]] * 2))
        .reward
    )
    assert reward.tolist() == pytest.approx([math.log(4), math.log(4) - 200])


def test_diayn_looks_at_the_next_state_only() -> None:
    method = make_method("diayn", OneHot(3), "robots")
    batch = make_batch(OneHot(3), 8)
    elsewhere = batch._replace(obs=batch.obs + 5)
    assert torch.equal(
        method.intrinsic_reward(batch).reward, method.intrinsic_reward(elsewhere).reward
    )


def test_diayn_scores_are_log_q_of_every_skill_in_every_state() -> None:
    batch = rows(torch.eye(2)[[0, 1, 1]], [[0.0, 0]] * 3)
    scores = diayn_that_says([math.log(3), 0.0]).skill_scores(batch)
    wanted = [[math.log(0.75)] * 3, [math.log(0.25)] * 3, [math.log(0.25)] * 3]
    torch.testing.assert_close(scores, torch.tensor(wanted))


# --- SMM -----------------------------------------------------------------------------------------


def smm(**values: Any) -> SMM:
    """K = 2, two numbers of state: x has four. It reconstructs zeros; d(z | s) is 3/4, 1/4."""
    config = SMMConfig(hidden=16, vae_hidden=16, code=3, **values)
    method = SMM(config, OneHot(2), plain_obs(2))
    make_constant(method.encoder, [0.0] * 6)
    make_constant(method.decoder, [0.0] * 4)
    make_constant(method.discriminator, [math.log(3), 0.0])
    return method


SMM_BATCH = rows(torch.eye(2), [[1.0, 2.0], [0.0, -3.0]], [[9.0, 9.0]] * 2)


def test_smm_reward_has_four_terms() -> None:
    """|x|^2 = 1 + 4 + 1 and 9 + 1, -log d(z | s) = log 4/3 and log 4, log K = log 2, log p* = 0."""
    reward, metrics, _ = smm().intrinsic_reward(SMM_BATCH)
    density, skill = [6, 10], [math.log(4 / 3), math.log(4)]
    wanted = [d + s + math.log(2) for d, s in zip(density, skill, strict=True)]
    assert reward.tolist() == pytest.approx(wanted)
    assert metrics["smm/density"].tolist() == pytest.approx(density)
    assert metrics["smm/skill"].tolist() == pytest.approx(skill)


def test_smm_papers_sign_and_weights() -> None:
    method = smm(skill_term="log-likelihood", skill_weight=2.0, density_weight=0.5)
    wanted = [3 - 2 * math.log(4 / 3) + math.log(2), 5 - 2 * math.log(4) + math.log(2)]
    assert method.intrinsic_reward(SMM_BATCH).reward.tolist() == pytest.approx(wanted)


def test_smm_loss_sums_the_kl_and_averages_the_squares() -> None:
    """Code of mean 1 and variance 4: KL = 3 (1 + 4 - log 4 - 1) / 2; squares 16 / 8."""
    method = smm(beta=0.5)
    make_constant(method.encoder, [1.0] * 3 + [math.log(4)] * 3)
    loss, metrics = method.loss(SMM_BATCH, method.embed(SMM_BATCH))
    kl, cross_entropy = 3 * (4 - math.log(4)) / 2, (math.log(4 / 3) + math.log(4)) / 2
    assert metrics["smm/kl"].item() == pytest.approx(kl)
    assert metrics["smm/vae"].item() == pytest.approx(0.5 * kl + 2)
    assert loss.item() == pytest.approx(0.5 * kl + 2 + cross_entropy)


def test_smm_noise_is_for_training_only() -> None:
    method = make_method("smm", OneHot(2), "robots")
    first, second = (method.intrinsic_reward(SMM_BATCH).reward for _ in range(2))
    assert not torch.equal(first, second)
    method.eval()
    first, second = (method.intrinsic_reward(SMM_BATCH).reward for _ in range(2))
    assert torch.equal(first, second)


def test_smm_networks_learn_at_their_own_rates() -> None:
    """Adam's first step is the learning rate, whatever the gradient."""
    method = make_method("smm", OneHot(5), "robots")
    assert isinstance(method, SMM)
    before = {name: p.detach().clone() for name, p in method.named_parameters()}
    method.representation_step(make_batch(OneHot(5), 64), method.optimizer())
    for name, p in method.named_parameters():
        rate = 1e-3 if name.startswith("discriminator") else 1e-2
        assert (p - before[name]).abs().max().item() == pytest.approx(rate, rel=1e-2)


# --- DADS ----------------------------------------------------------------------------------------


def dads(space: SkillSpace, **values: Any) -> DADS:
    method = make_method("dads", space, "robots", **values)
    assert isinstance(method, DADS)
    return method


def test_dads_reward_by_hand_with_unit_variance() -> None:
    """Squared errors 2 and 4, 6: log q = -1 and -2, -3 without the constant."""
    reward = dads(Box(2)).log_ratio(torch.tensor([[2.0, 4.0, 6.0]]), torch.tensor([2.0]))
    mean = (math.exp(-1) + math.exp(-2) + math.exp(-3)) / 3
    assert reward.item() == pytest.approx(-1 - math.log(mean))


def test_dads_reward_lies_between_its_bounds() -> None:
    """At most log(L + 1), L = 100; a log-ratio counts as no more than 50."""
    method = dads(Box(2))
    best = torch.tensor([[0.0] + [1e6] * 100])
    assert method.log_ratio(best, best[:, 0]).item() == pytest.approx(math.log(101))
    worst = torch.tensor([[1e4] + [0.0] * 100])
    wanted = math.log(101) - math.log(1 + 100 * math.exp(50))
    assert method.log_ratio(worst, worst[:, 0]).item() == pytest.approx(wanted)
    same = torch.full((1, 101), 3.0)
    assert method.log_ratio(same, same[:, 0]).item() == pytest.approx(0, abs=1e-6)


def test_dads_predicts_the_normalised_change() -> None:
    """Changes (0, 3) and (2, 7) become (-1, -1) and (1, 1): zero is off by 2 in square."""
    method = dads(OneHot(3))
    make_constant(method.mu, [0.0, 0.0])
    batch = rows(torch.eye(3)[:2], [[5.0, 1.0], [-7.0, 2.0]], [[5.0, 4.0], [-5.0, 9.0]])
    errors = method.embed(batch)
    torch.testing.assert_close(errors, torch.full((2, 3), 2.0), atol=1e-4, rtol=0)
    loss, metrics = method.loss(batch, errors)
    assert loss.item() == pytest.approx(1, abs=1e-4)  # half of it, as the variance is 1
    assert metrics["dads/squared_error"].item() == pytest.approx(2, abs=1e-4)


@pytest.mark.parametrize(("space", "compared"), [(OneHot(4), 4), (Box(2), 24)])
def test_dads_compares_the_own_skill_with_the_others(space: SkillSpace, compared: int) -> None:
    """One column at a time, and one alternative: 23 draws take several passes."""
    method = dads(space, alternatives=23)
    batch = make_batch(space, 9)
    torch.manual_seed(1)
    errors = method.embed(batch)
    torch.manual_seed(1)
    skills = torch.cat([batch.skill[None], space.alternatives(batch.skill, 23)])
    assert errors.shape == (9, compared)
    change = batch.one_step_obs - batch.obs
    obs, change = (
        (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt() for x in (batch.obs, change)
    )
    for column, skill in zip(errors.T, skills, strict=True):
        wanted = (method.mu(torch.cat([obs, skill], -1)) - change).square().sum(-1)
        torch.testing.assert_close(column, wanted, atol=1e-5, rtol=1e-4)


# --- BeCL ----------------------------------------------------------------------------------------


def becl_with(features: list[list[float]], **values: Any) -> BeCL:
    method = make_method("becl", OneHot(2), "robots", **values)
    assert isinstance(method, BeCL)
    method.add_module("head", Fixed(torch.tensor(features)))
    return method


def test_becl_ratio_at_known_angles() -> None:
    """0, 60, 90, 180 degrees, T = 0.5: e^(2 cos) with the partner over that and the others."""
    points = [[math.cos(a), math.sin(a)] for a in (0, math.pi / 3, math.pi / 2, math.pi)]
    batch = rows(torch.eye(2)[[0, 0, 1, 1]], [[0.0, 0]] * 4)
    reward, metrics, _ = becl_with(points).intrinsic_reward(batch)
    e, root = math.exp, math.sqrt(3)
    wanted = [
        e(1) / (e(1) + 1 + e(-2)),
        e(1) / (e(1) + e(root) + e(-1)),
        1 / (1 + 1 + e(root)),
        1 / (1 + e(-2) + e(-1)),
    ]
    assert reward.tolist() == pytest.approx(wanted, rel=1e-5)
    assert metrics["becl/ratio"].item() == pytest.approx(sum(wanted) / 4, rel=1e-5)


@pytest.mark.parametrize(("denominator", "beside"), [("others", 0), ("all", 1)])
def test_becl_denominators(denominator: str, beside: int) -> None:
    """Three rows of each of two skills at right angles: does the third one count?"""
    points = [[1.0, 0]] * 3 + [[0, 2.0]] * 3
    batch = rows(torch.eye(2)[[0, 0, 0, 1, 1, 1]], [[0.0, 0]] * 6)
    reward = becl_with(points, denominator=denominator).intrinsic_reward(batch).reward
    square = math.e**2
    assert reward.tolist() == pytest.approx([square / ((1 + beside) * square + 3)] * 6)


@pytest.mark.parametrize("denominator", ["others", "all"])
def test_becl_a_skill_alone_is_masked(denominator: str) -> None:
    batch = rows(torch.eye(2)[[0, 1, 0]], [[0.0, 0]] * 3)
    method = becl_with([[1.0, 0], [0, 1.0], [1.0, 0]], denominator=denominator)
    features = method.embed(batch)
    ratio = math.e**2 / (math.e**2 + 1)
    assert method.reward(batch, features)[0].tolist() == pytest.approx([ratio, 0, ratio])
    assert method.loss(batch, features)[0].item() == pytest.approx(-math.log(ratio))


@pytest.mark.parametrize("denominator", ["others", "all"])
def test_becl_loss_and_gradient_are_those_of_eq_2(denominator: str) -> None:
    """Against the equation row by row; the last row is alone."""
    method = make_method("becl", OneHot(3), "robots", denominator=denominator)
    assert isinstance(method, BeCL)
    label = torch.tensor([0, 1, 0, 1, 0, 1, 1, 2])
    f = torch.randn(8, 4, dtype=torch.double, requires_grad=True)
    method.add_module("head", Fixed(f))
    cosine = torch.cosine_similarity(f[:, None], f, dim=-1)
    losses = []
    for i, p in enumerate(next_of_same_skill(label).tolist()[:-1]):
        e = (cosine[i] / 0.5).exp()
        apart = label != label[i] if denominator == "others" else torch.arange(8) != i
        apart[p] = True
        losses.append(-(e[p] / e[apart].sum()).log())
    wanted = torch.stack(losses).mean()
    batch = rows(torch.eye(3)[label], [[0.0, 0]] * 8)
    loss, _ = method.loss(batch, method.embed(batch))
    torch.testing.assert_close(loss, wanted)
    to_f = torch.autograd.grad(loss, [f])
    torch.testing.assert_close(to_f, torch.autograd.grad(wanted, [f]))


def test_becl_without_any_pair_learns_nothing() -> None:
    method = make_method("becl", OneHot(3), "robots")
    batch = rows(torch.eye(3), [[0.0, 0], [1, 1], [2, 0]])
    loss, _ = method.loss(batch, method.embed(batch))
    assert loss.item() == 0
    assert not any(g.any() for g in torch.autograd.grad(loss, list(method.parameters())))


def test_becl_has_a_head_on_robots_and_none_in_the_maze() -> None:
    robots, maze = (make_method("becl", OneHot(3), family) for family in ("robots", "maze"))
    assert {name.split(".")[0] for name, _ in robots.named_parameters()} == {"f", "head"}
    assert {name.split(".")[0] for name, _ in maze.named_parameters()} == {"f"}


# --- values ---------------------------------------------------------------------------------------

VALUES: dict[str, dict[str, Any]] = {
    "diayn": {"run.space": "one-hot", "run.skills": 16, "train.hold": 50},
    "becl": {"run.space": "one-hot", "run.skills": 16, "train.representation_steps": 3},
    "smm": {"run.space": "one-hot", "run.skills": 4, "train.hold": 1000},
    "dads": {"run.space": "box", "run.skills": 2, "train.hold": 200},
}


@pytest.mark.parametrize("name", VALUES)
def test_values_on_robots_and_their_sources(name: str) -> None:
    tuned = METHODS[name].config_class.tuned["robots"]
    assert {key: tuned[key].value for key in VALUES[name]} == VALUES[name]
    assert "code" in tuned["run.space"].source
    own = {key: setting.value for key, setting in tuned.items() if "." not in key}
    config: Any = METHODS[name].config_class(**own)
    assert (config.hidden, config.lr) == (1024, 1e-3 if name == "smm" else 1e-4)
