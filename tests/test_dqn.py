"""Double DQN over candidate skills: its target and loss by hand, acting, one update."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from comsd.agents.base import make_policy_fn
from comsd.agents.dqn import DQN, DQNConfig
from comsd.skills import NoSkill
from comsd.types import Batch
from conftest import plain_obs

OBS, SPACE = plain_obs(4), NoSkill(0)
CANDIDATES = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])


def make_agent(**settings: float) -> DQN:
    torch.manual_seed(0)
    config = DQNConfig(candidates=3, hidden=8, **settings)  # pyright: ignore[reportArgumentType]
    agent = DQN(config, SPACE, OBS, 2)
    agent.candidates.copy_(CANDIDATES)
    return agent


@torch.no_grad()
def answer(net: nn.Module, values: list[float]) -> None:
    """Make a network answer the same to every input."""
    for parameter in net.parameters():
        parameter.zero_()
    bias = list(net.parameters())[-1]
    bias.copy_(torch.tensor(values))


def batch_of(action: Tensor, reward: list[float], discount: list[float]) -> Batch:
    rows = len(action)
    obs, skill = torch.ones(rows, 4), torch.zeros(rows, 0)
    return Batch(obs, action, obs, obs, skill, torch.tensor(reward), torch.tensor(discount))


def test_the_online_values_choose_and_the_target_says_what_that_is_worth() -> None:
    """Q prefers candidate 1, for Q' worth 20: 1 + .5 * 20 = 11; a terminal step is worth 2."""
    agent = make_agent()
    answer(agent.q, [1.0, 3.0, 2.0])
    answer(agent.target, [30.0, 20.0, 10.0])
    batch = batch_of(CANDIDATES[[0, 2]], [1.0, 2.0], [0.5, 0.0])
    assert agent.td_target(batch, batch.reward).tolist() == [11.0, 2.0]


def test_the_loss_is_that_of_the_candidate_that_acted() -> None:
    """Values 1, 3, 2 of candidates 2, 0: (2 - 5)^2 and (1 - 1)^2, of mean 4.5."""
    agent = make_agent()
    answer(agent.q, [1.0, 3.0, 2.0])
    batch = batch_of(CANDIDATES[[2, 0]], [0.0, 0.0], [1.0, 1.0])
    loss, q = agent.loss(batch, torch.tensor([5.0, 1.0]))
    assert q.tolist() == [2.0, 1.0]
    assert loss.item() == 4.5


def test_an_update_is_adam_on_the_loss_and_a_soft_update() -> None:
    agent = make_agent(target_ema=0.1)
    twin, before = copy.deepcopy(agent.q), copy.deepcopy(agent.target)
    batch = batch_of(CANDIDATES[[2, 0, 1]], [1.0, 0.0, 2.0], [0.9, 0.9, 0.9])
    batch = batch._replace(obs=torch.randn(3, 4), next_obs=torch.randn(3, 4))
    optimizer = torch.optim.Adam(twin.parameters(), lr=agent.config.lr)
    y = agent.td_target(batch, batch.reward)
    (twin(batch.obs)[torch.arange(3), torch.tensor([2, 0, 1])] - y).square().mean().backward()
    optimizer.step()
    metrics = agent.update(batch, batch.reward, torch.Generator())
    for mine, wanted in zip(agent.q.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine, wanted)
    each = zip(agent.target.parameters(), before.parameters(), twin.parameters(), strict=True)
    for target, old, new in each:
        torch.testing.assert_close(target, 0.9 * old + 0.1 * new)
    assert set(metrics) == {"dqn/reward", "dqn/q", "dqn/squared_error"}


def test_the_action_is_a_candidate_and_random_choices_fade() -> None:
    agent = make_agent(epsilon=0.2, epsilon_updates=10)
    answer(agent.q, [1.0, 3.0, 2.0])
    obs, skill = np.zeros((3000, 4), np.float32), torch.zeros(3000, 0)
    greedy = make_policy_fn(agent.policy, skill, None)(obs)
    assert (greedy == CANDIDATES[1].numpy()).all()
    policy_fn = make_policy_fn(agent.policy, skill, np.random.default_rng(0))

    def share_of_best() -> float:
        return float((policy_fn(obs) == CANDIDATES[1].numpy()).all(1).mean())

    assert share_of_best() == pytest.approx(1 / 3, abs=0.03)  # epsilon 1
    agent.updates += 5
    assert share_of_best() == pytest.approx(1 - 0.6 * 2 / 3, abs=0.03)
    agent.updates += 100
    assert share_of_best() == pytest.approx(1 - 0.2 * 2 / 3, abs=0.03)


def test_candidates_and_the_count_of_updates_are_saved() -> None:
    agent, other = make_agent(), DQN(DQNConfig(candidates=3, hidden=8), SPACE, OBS, 2)
    agent.updates += 7
    other.load_state_dict(agent.state_dict())
    assert torch.equal(other.candidates, CANDIDATES)
    policy = other.policy
    assert policy.epsilon == agent.policy.epsilon < 1
    obs = torch.randn(5, 4)
    assert torch.equal(policy(obs, torch.zeros(0)), agent.policy(obs, torch.zeros(0)))
