"""PPO against hand formulas and against torch's own distributions."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Beta
from torch.nn import functional as F

from comsd.agents.base import make_policy_fn
from comsd.agents.ppo import (
    BETA_MARGIN,
    PPO,
    PPOConfig,
    RewardScale,
    advantages,
    beta_entropy,
    beta_log_prob,
    discounted_sums,
    shuffled,
)
from comsd.skills import OneHot
from comsd.types import Batch
from conftest import OBS, make_batch

SPACE = OneHot(4)


@pytest.fixture
def agent() -> PPO:
    torch.manual_seed(0)
    return PPO(PPOConfig(hidden=16), SPACE, OBS, 2)


# --- advantages -----------------------------------------------------------------------------------


def column(*values: float) -> Tensor:
    return torch.tensor(values)[:, None]


def never(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.bool)


def test_discounted_sums_by_hand() -> None:
    x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [4.0, 8.0]])
    assert discounted_sums(x, torch.full((3, 2), 0.5)).tolist() == [[3, 2], [4, 4], [4, 8]]
    rate = torch.tensor([[0.5, 0.5], [0.0, 0.5], [0.5, 0.5]])  # a boundary in the first column
    assert discounted_sums(x, rate).tolist() == [[2, 2], [2, 4], [4, 8]]


def test_gae_with_lambda_one_is_return_minus_value() -> None:
    """Two steps, gamma 0.5, values 10, 20 and a last value 40 that is bootstrapped:
    returns 1 + 0.5 * 2 + 0.25 * 40 = 12 and 2 + 0.5 * 40 = 22."""
    columns = column(1, 2), column(10, 20), column(20, 40), never(2, 1), never(2, 1)
    assert advantages(*columns, 0.5, 1.0).tolist() == [[2], [2]]


def test_gae_with_lambda_zero_is_the_one_step_error() -> None:
    columns = column(1, 2), column(10, 20), column(20, 40), never(2, 1), never(2, 1)
    assert advantages(*columns, 0.5, 0.0).tolist() == [[1], [2]]


def test_gae_over_a_terminated_and_a_truncated_episode() -> None:
    """Gamma 0.5, lambda 0.5; rewards 1, values 4, next values 8, but after the truncation 20.

    Rows 0, 1: an episode that terminates: 1 - 4 = -3 at its end, before that
    1 + 4 - 4 + 0.25 * -3 = 0.25. Rows 2, 3: one that is truncated: 1 + 10 - 4 = 7 from the value
    of its true next observation, before that 1 + 0.25 * 7 = 2.75. Row 4 goes on: 1.
    """
    reward, value, next_value = column(*[1.0] * 5), column(*[4.0] * 5), column(8, 8, 8, 20, 8)
    terminated, ended = never(5, 1), never(5, 1)
    terminated[1] = ended[1] = ended[3] = True
    found = advantages(reward, value, next_value, terminated, ended, 0.5, 0.5)
    assert found.flatten().tolist() == [0.25, -3, 2.75, 7, 1]


def test_gae_does_not_leak_between_environments() -> None:
    """Changing one column leaves the advantages of the other alone."""
    torch.manual_seed(0)
    reward, value, next_value = torch.randn(3, 50, 2)
    ends = never(50, 2), never(50, 2)
    before = advantages(reward, value, next_value, *ends, 0.99, 0.98)
    reward[:, 1] += 100
    value[:, 1] -= 50
    after = advantages(reward, value, next_value, *ends, 0.99, 0.98)
    assert torch.equal(before[:, 0], after[:, 0])
    assert not torch.equal(before[:, 1], after[:, 1])


def test_next_values_are_of_the_true_next_observations(agent: PPO) -> None:
    """The next row's where the episode goes on; at its end that of the last observation."""
    t, n = 5, 3
    batch = make_batch(SPACE, t * n)
    obs, skill = batch.obs.view(t, n, 2), batch.skill.view(t, n, 4)
    true_next = obs.roll(-1, 0).clone()
    ended = torch.rand(t, n, generator=torch.Generator().manual_seed(3)) < 0.4
    ended[-1] = torch.tensor([True, False, False])
    true_next[ended] = torch.randn(int(ended.sum()), 2)
    true_next[-1] = torch.randn(n, 2)
    # Before its end an episode has one skill.
    for i in range(t - 1):
        skill[i + 1] = torch.where(ended[i, :, None], skill[i + 1], skill[i])
    batch = batch._replace(next_obs=true_next.flatten(0, 1), skill=skill.flatten(0, 1))

    def value(obs: Tensor) -> Tensor:
        return agent.value(agent.normalizer(torch.cat([obs, batch.skill], -1)))[:, 0].view(t, n)

    with torch.no_grad():
        found = agent.next_values(batch, value(batch.obs), ended)
        torch.testing.assert_close(found, value(batch.next_obs))


# --- the update -----------------------------------------------------------------------------------


def test_the_columns_of_a_flat_batch_are_its_environments(
    agent: PPO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are in time-major order: raising the reward of one environment's rows must raise the
    value target of that environment alone."""
    batch, targets = make_batch(SPACE, 6 * 3), []
    original = agent.loss

    def record(*columns: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        targets.append(columns[-1])
        return original(*columns)

    monkeypatch.setattr(agent, "loss", record)
    agent.config = PPOConfig(hidden=16, epochs=1, minibatches=1)
    reward = torch.zeros(18)
    reward[1::3] = 1.0  # environment 1 at every time
    agent.update(batch, reward, never(6, 3), never(6, 3), np.random.default_rng(0))
    order = np.random.default_rng(0).permutation(18)
    target = torch.empty(18)
    target[torch.from_numpy(order)] = targets[0]
    assert target.view(6, 3).mean(0).argmax() == 1


def concentrations(rows: int) -> tuple[Tensor, Tensor]:
    a, b = torch.rand(2, 2, rows, dtype=torch.double) * 5 + 1.05  # (A, B) each
    return a.requires_grad_(), b.requires_grad_()


def test_beta_terms_equal_torch() -> None:
    torch.manual_seed(0)
    (a, b), u = concentrations(20), torch.rand(2, 20, dtype=torch.double)
    beta = Beta(a.T, b.T)
    log_prob, entropy = beta.log_prob(u.T).sum(-1), beta.entropy().sum(-1)
    torch.testing.assert_close(beta_log_prob(a, b, u), log_prob)
    torch.testing.assert_close(beta_entropy(a, b), entropy)
    ours = torch.autograd.grad((beta_log_prob(a, b, u) + 0.3 * beta_entropy(a, b)).sum(), [a, b])
    wanted = torch.autograd.grad((log_prob + 0.3 * entropy).sum(), [a, b])
    torch.testing.assert_close(ours, wanted)


def test_actions_on_the_edge_have_a_finite_density(agent: PPO) -> None:
    u = torch.tensor([[1.0], [0.0]]).clamp(BETA_MARGIN, 1 - BETA_MARGIN)
    three = torch.full((2, 1), 3.0)
    assert bool(torch.isfinite(beta_log_prob(three, three, u)).all())
    batch = make_batch(SPACE, 40)
    batch = batch._replace(action=batch.action.sign())
    metrics = agent.update(
        batch, torch.randn(40), never(10, 4), never(10, 4), np.random.default_rng(0)
    )
    assert all(bool(torch.isfinite(value).all()) for value in metrics.values())


def minibatch(agent: PPO) -> list[Tensor]:
    """With many ratios beyond the clip, on both sides."""
    torch.manual_seed(1)
    x, u = torch.randn(64, 6), torch.rand(64, 2)
    old = beta_log_prob(*agent.concentrations(x), u.T).detach() + 0.4 * torch.randn(64)
    return [x, u, old, torch.randn(64), torch.randn(64)]


def test_the_loss_is_the_textbooks(agent: PPO) -> None:
    x, u, old, advantage, target = minibatch(agent)
    loss, metrics = agent.loss(x, u, old, advantage, target)
    a, b = (F.softplus(agent.actor(x)) + 1.05).chunk(2, -1)
    beta = Beta(a, b)
    ratio = (beta.log_prob(u).sum(-1) - old).exp()
    clipped = ratio.clamp(0.8, 1.2)
    gain = torch.minimum(ratio * advantage, clipped * advantage).mean()
    error = 0.5 * (agent.value(x)[:, 0] - target).square().mean()
    torch.testing.assert_close(loss, error - gain - 0.025 * beta.entropy().mean())
    assert 0.2 < metrics["ppo/clipped"] < 0.8
    assert all(not value.requires_grad for value in metrics.values())


def test_an_update_takes_adam_steps_down_the_loss(agent: PPO) -> None:
    """One epoch of one minibatch, written out with torch.optim."""
    agent.config = PPOConfig(hidden=16, epochs=1, minibatches=1)
    other, batch, reward = copy.deepcopy(agent), make_batch(SPACE, 40), torch.randn(40)
    ends = never(10, 4), never(10, 4)
    ends[1][4] = True
    agent.update(batch, reward, *ends, np.random.default_rng(0))

    weights = [*other.actor.parameters(), *other.value.parameters()]
    optimizer = torch.optim.Adam(weights, 3e-4, eps=1e-5)
    x = other.normalizer(torch.cat([batch.obs, batch.skill], -1))
    u = (batch.action + 1) / 2
    with torch.no_grad():
        old = beta_log_prob(*other.concentrations(x), u.T)
        value = other.value(x).view(10, 4)
        scaled = other.reward_scale(reward.view(10, 4), 0.99 * (~ends[1]).float(), ends[0])
        next_value = other.next_values(batch, value, ends[1])
        gain = advantages(scaled, value, next_value, *ends, 0.99, 0.98).flatten()
        target = gain + value.flatten()
        gain = (gain - gain.mean()) / gain.std()
    other.loss(x, u, old, gain, target)[0].backward()
    optimizer.step()
    ours = [*agent.actor.parameters(), *agent.value.parameters()]
    torch.testing.assert_close(ours, weights, atol=1e-6, rtol=1e-4)


def test_an_update_learns_what_is_rewarded(agent: PPO) -> None:
    """A bandit: reward for going right. The mean action moves right within a few cycles."""
    rng, batch = np.random.default_rng(0), make_batch(SPACE, 400)
    obs = batch.obs.numpy()

    def mean_action() -> float:
        return make_policy_fn(agent.policy, batch.skill, None)(obs)[:, 0].mean().item()

    before = mean_action()
    for _ in range(5):
        action = torch.from_numpy(make_policy_fn(agent.policy, batch.skill, rng)(obs))
        ends = torch.ones(1, 400, dtype=torch.bool)
        agent.update(batch._replace(action=action), action[:, 0], ends, ends, rng)
    assert mean_action() > before + 0.05


def test_shuffled_visits_every_row_once_per_epoch_and_keeps_rows_together(
    rng: np.random.Generator,
) -> None:
    rows = torch.arange(20.0)
    parts = list(shuffled((rows, rows[:, None] + 100), 2, 4, rng))
    assert [len(one) for one, _ in parts] == [5] * 8
    assert all(torch.equal(one + 100, other.flatten()) for one, other in parts)
    sizes = [len(one) for (one,) in shuffled((torch.arange(49.0),), 1, 16, rng)]
    assert len(sizes) == 16
    assert min(sizes) == 3
    first, second = (torch.cat([one for one, _ in epoch]) for epoch in (parts[:4], parts[4:]))
    assert sorted(first.tolist()) == rows.tolist()
    assert first.tolist() != second.tolist()


# --- rewards and acting ---------------------------------------------------------------------------


def test_reward_scale_centres_and_scales() -> None:
    torch.manual_seed(0)
    reward, discount = 100 + 3 * torch.randn(50, 40), torch.full((50, 40), 0.99)
    scaled = RewardScale()(reward, discount, never(50, 40))
    assert abs(scaled.mean().item()) < 1e-3
    assert discounted_sums(scaled, discount).std().item() == pytest.approx(1, rel=0.05)


def test_returns_of_the_reward_scale_stop_at_the_end_of_an_episode() -> None:
    """Rewards 1 and -1, gamma 1, ends after both: returns 1 and -1, std 1."""
    scale = RewardScale()
    scaled = scale(torch.tensor([[1.0], [-1.0]]), torch.zeros(2, 1), never(2, 1))
    assert scaled.flatten().tolist() == pytest.approx([1, -1])
    assert scale.returns.std.item() == pytest.approx(1)


def test_rewards_are_not_centred_where_episodes_terminate() -> None:
    """Reward 1 in each of 10 steps: to survive them all is worth more than to end after two."""
    scale, reward, discount = RewardScale(), torch.ones(10, 2), torch.full((10, 2), 0.9)
    terminated = never(10, 2)
    terminated[1, 1] = True
    scaled = scale(reward, discount * ~terminated, terminated)
    assert bool((scaled > 0).all())
    again = RewardScale()
    again.load_state_dict(scale.state_dict())
    torch.testing.assert_close(  # nor in a later cycle in which none terminates
        again(reward, discount, never(10, 2)), scale(reward, discount, never(10, 2))
    )
    assert bool((again(reward, discount, never(10, 2)) > 0).all())


def test_actions_are_bounded_seeded_and_greedy_without_a_generator(agent: PPO) -> None:
    obs = np.random.default_rng(1).normal(size=(100, 2)).astype(np.float32)
    skill = SPACE.sample(100, np.random.default_rng(0))
    one, two = (make_policy_fn(agent.policy, skill, np.random.default_rng(7))(obs) for _ in (1, 2))
    mean = make_policy_fn(agent.policy, skill, None)
    assert np.array_equal(one, two)
    assert bool((np.abs(one) <= 1).all())
    assert one.dtype == np.float32
    assert not np.array_equal(one, mean(obs))
    assert np.array_equal(mean(obs), mean(obs))


def test_sampled_actions_follow_the_beta_distribution(agent: PPO) -> None:
    obs, skill = torch.zeros(20_000, 2), torch.eye(4)[:1].expand(20_000, -1)
    with torch.no_grad():
        drawn = (agent.policy.sample(obs, skill, np.random.default_rng(0)) + 1) / 2
        a, b = agent.policy.concentrations(obs[:1], skill[:1])
    beta = Beta(a[0], b[0])
    assert drawn.mean(0).tolist() == pytest.approx(beta.mean.tolist(), abs=0.01)
    assert drawn.var(0).tolist() == pytest.approx(beta.variance.tolist(), rel=0.05)
    mean = 2 * beta.mean - 1
    torch.testing.assert_close(agent.policy(obs[:1], skill[:1])[0].detach(), mean)


def test_policy_and_value_see_the_skill(agent: PPO) -> None:
    actions = agent.policy(torch.zeros(4, 2), torch.eye(4))
    assert len({tuple(a) for a in actions.tolist()}) == 4
    x = agent.normalizer(torch.cat([torch.zeros(4, 2), torch.eye(4)], -1))
    assert len(set(agent.value(x).flatten().tolist())) == 4


def test_policy_and_update_use_the_same_distribution(agent: PPO) -> None:
    batch: Batch = make_batch(SPACE, 8)
    x = agent.normalizer(torch.cat([batch.obs, batch.skill], -1))
    ours = [c.T for c in agent.concentrations(x)]
    torch.testing.assert_close(ours, list(agent.policy.concentrations(batch.obs, batch.skill)))
