"""PPO against hand formulas and against torch's own distributions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.distributions import Beta
from torch.nn import functional as F

from comsd.agents.ppo import (
    PPO,
    PPOConfig,
    RewardScale,
    advantages,
    beta_density_and_slope,
    beta_entropy,
    beta_log_density,
    discounted_sums,
    shuffled,
    to_unit,
)
from comsd.errors import RunError
from comsd.skills import OneHot
from conftest import OBS, make_batch

SPACE = OneHot(4)


@pytest.fixture
def agent() -> PPO:
    torch.manual_seed(0)
    return PPO(PPOConfig(hidden=16), SPACE, OBS, 2)


def test_discounted_sums_by_hand() -> None:
    x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [4.0, 8.0]])
    assert discounted_sums(x, 0.5).tolist() == [[3, 2], [4, 4], [4, 8]]


def test_gae_with_lambda_one_is_return_minus_value() -> None:
    """Two steps, gamma 0.5, values 10, 20 and a last value 40 that is bootstrapped:
    returns 1 + 0.5 * 2 + 0.25 * 40 = 12 and 2 + 0.5 * 40 = 22."""
    reward, value = torch.tensor([[1.0], [2.0]]), torch.tensor([[10.0], [20.0], [40.0]])
    assert advantages(reward, value, 0.5, 1.0).tolist() == [[2], [2]]


def test_gae_with_lambda_zero_is_the_one_step_error() -> None:
    reward, value = torch.tensor([[1.0], [2.0]]), torch.tensor([[10.0], [20.0], [40.0]])
    assert advantages(reward, value, 0.5, 0.0).tolist() == [[1], [2]]


def test_gae_does_not_leak_between_episodes() -> None:
    """The columns are episodes: changing one leaves the advantages of the other alone."""
    torch.manual_seed(0)
    reward, value = torch.randn(50, 2), torch.randn(51, 2)
    before = advantages(reward, value, 0.99, 0.98)
    reward[:, 1] += 100
    value[:, 1] -= 50
    after = advantages(reward, value, 0.99, 0.98)
    assert torch.equal(before[:, 0], after[:, 0])
    assert not torch.equal(before[:, 1], after[:, 1])


def test_the_episodes_of_a_flat_batch_are_its_environments(agent: PPO) -> None:
    """Rows are in time-major order: raising the reward of one environment's rows must raise the
    value target of that environment alone."""
    batch = make_batch(SPACE, 6 * 3)
    seen: list[torch.Tensor] = []

    def record(*columns: torch.Tensor) -> None:
        seen.append(columns[-1])  # the value targets

    agent.step = record  # pyright: ignore[reportAttributeAccessIssue]
    agent.config = PPOConfig(hidden=16, epochs=1, minibatches=1)
    reward = torch.zeros(18)
    reward[1::3] = 1.0  # environment 1 at every time
    agent.update(batch, reward, 3, np.random.default_rng(0))
    order = np.random.default_rng(0).permutation(18)
    target = torch.empty(18)
    target[torch.from_numpy(order)] = seen[0]
    by_env = target.view(6, 3).mean(0)
    assert by_env.argmax() == 1


def test_beta_terms_equal_torch() -> None:
    torch.manual_seed(0)
    c = (torch.rand(4, 20, dtype=torch.double) * 5 + 1.05).requires_grad_()
    action = 2 * torch.rand(20, 2, dtype=torch.double) - 1
    beta, log_u = Beta(c[:2].T, c[2:].T), to_unit(action)
    log_density, entropy = beta.log_prob((action + 1) / 2).sum(-1), beta.entropy().sum(-1)
    torch.testing.assert_close(beta_log_density(c, log_u), log_density)
    torch.testing.assert_close(beta_entropy(c), entropy)
    density, slope = beta_density_and_slope(c.detach(), log_u)
    torch.testing.assert_close(density, log_density)
    w = torch.randn(20, dtype=torch.double)
    wanted = torch.autograd.grad((w * log_density + 0.3 * entropy).sum(), c)[0]
    torch.testing.assert_close(slope(w, 0.3), wanted)


def test_actions_on_the_edge_have_a_finite_density() -> None:
    edge = to_unit(torch.tensor([[1.0, -1.0]]))
    assert bool(torch.isfinite(beta_log_density(torch.full((4, 1), 3.0), edge)).all())


def minibatch(agent: PPO) -> list[torch.Tensor]:
    """With many ratios beyond the clip, on both sides."""
    torch.manual_seed(1)
    rows = 64
    x, action = torch.randn(rows, 6), 2 * torch.rand(rows, 2) - 1
    old = beta_log_density(agent.concentrations(x), to_unit(action)).detach()
    old = old + 0.4 * torch.randn(rows)
    advantage = torch.randn(rows)
    most = advantage + 0.2 * advantage.abs()
    return [x.T, to_unit(action), old, advantage, most, torch.randn(rows)]


def test_loss_is_the_textbooks(agent: PPO) -> None:
    x, log_u, old, advantage, most, target = minibatch(agent)
    loss, metrics = agent.loss(x, log_u, old, advantage, most, target)
    a, b = (F.softplus(agent.policy(x.T)) + 1.05).chunk(2, -1)
    beta = Beta(a, b)
    ratio = (beta.log_prob(log_u[:2].T.exp()).sum(-1) - old).exp()
    clipped = ratio.clamp(0.8, 1.2)
    gain = torch.minimum(ratio * advantage, clipped * advantage).mean()
    error = 0.5 * (agent.value(x.T)[:, 0] - target).square().mean()
    torch.testing.assert_close(loss, error - gain - 0.025 * beta.entropy().mean())
    assert 0.2 < metrics["ppo/clipped"] < 0.8


def test_a_step_goes_down_the_gradient_of_the_loss(agent: PPO) -> None:
    columns = minibatch(agent)
    loss, _ = agent.loss(*columns)
    wanted = torch.autograd.grad(loss, [agent.policy.flat, agent.value.flat])
    agent.step(*columns)  # after one step from zero, Adam's mean is a tenth of the gradient
    ours = [10 * mean for mean in agent.optimizer.mean]
    torch.testing.assert_close(ours, list(wanted), atol=1e-6, rtol=1e-4)


def test_reward_scale_centres_and_scales() -> None:
    torch.manual_seed(0)
    scale = RewardScale()
    reward = 100 + 3 * torch.randn(50, 40)
    scaled = scale(reward, 0.99)
    assert abs(scaled.mean().item()) < 1e-3
    assert discounted_sums(scaled, 0.99).std().item() == pytest.approx(1, rel=0.05)


def test_act_is_bounded_seeded_and_greedy_without_a_generator(agent: PPO) -> None:
    obs, skill = torch.randn(100, 2), SPACE.sample(100, np.random.default_rng(0))
    one, two = (agent.act(obs, skill, np.random.default_rng(7)) for _ in range(2))
    assert torch.equal(one, two)
    assert bool((one.abs() <= 1).all())
    assert not torch.equal(one, agent.act(obs, skill))
    assert torch.equal(agent.act(obs, skill), agent.act(obs, skill))


def test_policy_and_value_see_the_skill(agent: PPO) -> None:
    obs = torch.zeros(4, 2)
    actions = agent.act(obs, torch.eye(4))
    assert len({tuple(a) for a in actions.tolist()}) == 4


def test_shuffled_visits_every_row_once_per_epoch_and_keeps_rows_together(
    rng: np.random.Generator,
) -> None:
    rows = torch.arange(20.0)
    for dim, data in ((0, (rows, rows[:, None] + 100)), (-1, (rows, rows[None] + 100))):
        parts = list(shuffled(data, 2, 4, rng, dim=dim))
        assert [len(one) for one, _ in parts] == [5] * 8
        assert all(torch.equal(one + 100, other.flatten()) for one, other in parts)
        first, second = (torch.cat([one for one, _ in epoch]) for epoch in (parts[:4], parts[4:]))
        assert sorted(first.tolist()) == rows.tolist()
        assert first.tolist() != second.tolist()


def test_an_update_learns_what_is_rewarded(agent: PPO) -> None:
    """A bandit: reward for going right. The mean action moves right within a few cycles."""
    rng = np.random.default_rng(0)
    batch = make_batch(SPACE, 400)
    before = agent.act(batch.obs, batch.skill)[:, 0].mean()
    for _ in range(5):
        action = agent.act(batch.obs, batch.skill, rng)
        agent.update(batch._replace(action=action), action[:, 0], 400, rng)
    assert agent.act(batch.obs, batch.skill)[:, 0].mean() > before + 0.05


def test_weights_that_are_not_numbers_stop_the_run(agent: PPO) -> None:
    batch = make_batch(SPACE, 40)
    reward = torch.zeros(40)
    with torch.no_grad():
        agent.value.flat[0] = float("nan")
    with pytest.raises(RunError, match="NaN"):
        agent.update(batch, reward, 4, np.random.default_rng(0))
