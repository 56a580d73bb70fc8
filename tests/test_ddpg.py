"""DDPG: its losses against hand formulas, and one update."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from comsd.agents.base import ACTION_LIMIT, make_policy_fn
from comsd.agents.critics import CRITICS
from comsd.agents.ddpg import DDPG, DDPGConfig
from comsd.skills import Box
from comsd.types import Batch
from conftest import plain_obs

OBS, SPACE, ROWS = plain_obs(4), Box(3), 16


@pytest.fixture
def agent() -> DDPG:
    torch.manual_seed(0)
    return DDPG(DDPGConfig(hidden=16), SPACE, OBS, 2)


def batch_of(rows: int = ROWS) -> Batch:
    g = torch.Generator().manual_seed(1)
    obs, next_obs = torch.randn(2, rows, 4, generator=g)
    skill, action = torch.rand(rows, 3, generator=g), torch.rand(rows, 2, generator=g) * 2 - 1
    return Batch(
        obs, action, next_obs, next_obs, skill, torch.zeros(rows), torch.full((rows,), 0.97)
    )


def weights(module: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in module.parameters()]


def test_the_target_is_the_lesser_value_of_the_next_action(agent: DDPG) -> None:
    b, noise, reward = batch_of(), 0.3 * torch.randn(ROWS, 2), torch.randn(ROWS)
    b = b._replace(discount=torch.rand(ROWS))  # 0 where the episode terminated
    b.discount[0] = 0
    with torch.no_grad():
        for p in agent.target.parameters():
            p.add_(0.1 * torch.randn_like(p))
        y = agent.td_target(b, reward, b.skill, noise)
        next_x = torch.cat([b.next_obs, b.skill], -1)
        action = (agent.actor(next_x).tanh() + noise).clamp(-ACTION_LIMIT, ACTION_LIMIT)
        q1, q2 = agent.target(b.next_obs, b.skill, action).T
    torch.testing.assert_close(y, reward + b.discount * torch.minimum(q1, q2))
    assert y[0] == reward[0]


def test_the_critic_loss_is_the_mean_of_both_squared_errors(agent: DDPG) -> None:
    b, y = batch_of(), torch.randn(ROWS)
    loss, q = agent.critic_loss(b, b.skill, y)
    torch.testing.assert_close(loss, (q - y[:, None]).square().sum(-1).mean())
    assert not q.requires_grad


def test_the_actor_loss_is_minus_the_lesser_value(agent: DDPG) -> None:
    """The gradient passes the clamp as if it were not there."""
    b, noise = batch_of(), 0.3 * torch.randn(ROWS, 2)
    noise[:8] = 3.0  # far beyond the clamp
    loss, own_mean = agent.actor_loss(b.obs, b.skill, noise)
    mean = agent.actor(torch.cat([b.obs, b.skill], -1)).tanh()
    action = (mean + noise).clamp(-ACTION_LIMIT, ACTION_LIMIT).detach().requires_grad_()
    q = agent.critic(b.obs, b.skill, action).amin(-1)
    torch.testing.assert_close(loss, -q.mean())
    torch.testing.assert_close(own_mean, mean)
    (slope,) = torch.autograd.grad(-q.mean(), [action])
    parameters = list(agent.actor.parameters())
    wanted = torch.autograd.grad((mean * slope).sum(), parameters)
    torch.testing.assert_close(torch.autograd.grad(loss, parameters), wanted)


@pytest.mark.parametrize("form", CRITICS)
def test_an_update_is_adam_on_both_losses_and_a_soft_update(form: str) -> None:
    """Written out with torch.optim: critic first, then the actor on the new critic."""
    torch.manual_seed(0)
    agent, b, reward = DDPG(DDPGConfig(hidden=16), SPACE, OBS, 2, form), batch_of(), torch.randn(16)
    other = copy.deepcopy(agent)
    metrics = agent.update(b, reward, torch.Generator().manual_seed(0))

    now, later = other.clipped_noise(2, b.action, torch.Generator().manual_seed(0))
    y = other.td_target(b, reward, b.skill, later)
    critic_loss, q = other.critic_loss(b, b.skill, y)
    optimizer = torch.optim.Adam(other.critic.parameters(), 1e-4)
    critic_loss.backward()
    optimizer.step()
    parameters = list(other.actor.parameters())
    gradients = torch.autograd.grad(other.actor_loss(b.obs, b.skill, now)[0], parameters)
    for p, g in zip(parameters, gradients, strict=True):
        p.grad = g
    torch.optim.Adam(parameters, 1e-4).step()
    with torch.no_grad():
        for p, p_target in zip(other.critic.parameters(), other.target.parameters(), strict=True):
            p_target.copy_(0.99 * p_target + 0.01 * p)
    torch.testing.assert_close(dict(agent.state_dict()), dict(other.state_dict()))
    for ours, wanted in zip(agent.critic.parameters(), other.critic.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, wanted.grad)  # nothing from the actor's loss
    torch.testing.assert_close(metrics["ddpg/q"], q)
    torch.testing.assert_close(metrics["ddpg/squared_error"], (q - y[:, None]).square())
    assert all(not value.requires_grad for value in metrics.values())


def always(agent: DDPG, raw: list[float]) -> None:
    """The same actions for every observation; raw: before tanh."""
    out = agent.actor.out
    assert isinstance(out, torch.nn.Linear)
    torch.nn.init.zeros_(out.weight)
    out.bias.data = torch.tensor(raw)


def test_the_penalty_is_on_what_tanh_is_applied_to(agent: DDPG) -> None:
    b, noise = batch_of(), torch.zeros(ROWS, 2)
    always(agent, [3.0, -1.0])
    plain, _ = agent.actor_loss(b.obs, b.skill, noise)
    agent.config = dataclasses.replace(agent.config, saturation_penalty=0.1)
    penalised, _ = agent.actor_loss(b.obs, b.skill, noise)
    assert (penalised - plain).item() == pytest.approx(0.1 * (9 + 1) / 2, abs=1e-5)


def test_saturated_actions_are_counted(agent: DDPG) -> None:
    """One of two actions is at its bound whatever the observation."""
    always(agent, [3.0, 0.5])  # tanh 3 = .995
    metrics = agent.update(batch_of(), torch.randn(ROWS), torch.Generator().manual_seed(0))
    torch.testing.assert_close(metrics["ddpg/saturation"], torch.full((ROWS,), 0.5))


def test_noise_in_the_losses_is_clipped(agent: DDPG) -> None:
    noise = agent.clipped_noise(2, torch.zeros(5000, 2), torch.Generator().manual_seed(0))
    assert noise.shape == (2, 5000, 2)
    assert noise.abs().max() == pytest.approx(0.3)
    assert noise.std().item() == pytest.approx(0.18, abs=0.02)  # 0.2 before the clip


def test_acting_adds_unclipped_noise_and_stays_inside(agent: DDPG) -> None:
    obs, skill = np.random.default_rng(1).normal(size=(4000, 4)), torch.rand(4000, 3)
    obs = obs.astype(np.float32)
    mean = make_policy_fn(agent.policy, skill, None)(obs)
    noisy = make_policy_fn(agent.policy, skill, np.random.default_rng(0))(obs)
    assert (noisy - mean).std().item() == pytest.approx(0.2, abs=0.02)
    assert np.abs(noisy - mean).max() > 0.5
    assert np.abs(noisy).max() <= ACTION_LIMIT
    assert noisy.dtype == mean.dtype == np.float32
    assert np.array_equal(mean, make_policy_fn(agent.policy, skill, None)(obs))


@pytest.mark.parametrize("taken", ["none", "trunk", "full"])
def test_an_agent_starts_from_another(agent: DDPG, taken: str) -> None:
    torch.manual_seed(1)
    other = DDPG(DDPGConfig(hidden=16), SPACE, OBS, 2)
    agent.update(batch_of(), torch.randn(ROWS), torch.Generator().manual_seed(0))
    own = weights(other.critic)
    other.init_from(agent, taken)
    assert all(map(torch.equal, weights(other.actor), weights(agent.actor)))
    assert all(map(torch.equal, weights(other.target), weights(other.critic)))
    trunk = len(weights(other.critic.trunk))
    copied = {"none": 0, "trunk": trunk, "full": len(own)}[taken]
    wanted = weights(agent.critic)[:copied] + own[copied:]
    assert all(map(torch.equal, weights(other.critic), wanted))
    with torch.no_grad():
        next(agent.actor.parameters()).add_(1)  # a copy, not the same weights
    assert not torch.equal(weights(other.actor)[0], weights(agent.actor)[0])
